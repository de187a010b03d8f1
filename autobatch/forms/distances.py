"""``kl_divergence`` of ``torch.distributions``, as Python for one example.

torch's own writes the rule that it has found into a dict of its module: what all threads share. Its
rule for two distributions of one exponential family (Wisharts) runs a backward pass of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
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


def of_one_family(p: Any, q: Any) -> Tensor:
    """The Bregman divergence of the families' log-normalizer, between their natural parameters."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot \
                            be computed using Bregman divergences"
        )
    own = [part.detach() for part in p._natural_params]

    def total(*parts: Tensor) -> Tensor:
        return p._log_normalizer(*parts).sum()  # type: ignore[no-any-return]

    slopes = torch.func.grad(total, argnums=tuple(range(len(own))))(*own)
    found: Tensor = q._log_normalizer(*q._natural_params) - p._log_normalizer(*own)
    for mine, other, slope in zip(own, q._natural_params, slopes, strict=True):
        term = (other - mine) * slope
        for _ in range(len(q.event_shape)):
            term = term.sum(-1)
        found = found - term
    return found
