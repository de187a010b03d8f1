"""``kl_divergence`` of ``torch.distributions``, as Python for one example.

torch's own writes the rule that it has found into a dict of its module: what all threads share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from autobatch.compat import kl_rule_of


def rule_of(left: type, right: type) -> Callable[..., Any]:
    """The rule that is registered for two classes of distributions."""
    return kl_rule_of(left, right)  # type: ignore[no-any-return, no-untyped-call]


rule_of.__autobatch__ = "host"  # type: ignore[attr-defined]


def kl_divergence(p: Any, q: Any) -> Tensor:
    """``torch.distributions.kl_divergence``; ``NotImplementedError`` where there is no rule."""
    rule = rule_of(type(p), type(q))
    if rule is NotImplemented:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {p.__class__.__name__} "
            f"and q type {q.__class__.__name__}"
        )
    found: Tensor = rule(p, q)
    return found
