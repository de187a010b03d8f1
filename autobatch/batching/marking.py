"""Custom ``autograd.Function``s that write to what they are given, and say so (``mark_dirty``).

They run thread by thread, on each thread's own tensors. Which of their operands they write is known
once they have: what existed before the call goes in as a copy, and a copy that has changed is
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.compat import shown_name
from autobatch.errors import AutobatchError
from autobatch.structure import own_attribute


def custom_function(callee: Any) -> type[torch.autograd.Function] | None:
    """The Function whose ``apply`` it is, if it is one's."""
    kind = own_attribute(callee, "__self__")
    is_custom = isinstance(kind, type) and issubclass(kind, torch.autograd.Function)
    return kind if is_custom else None


def is_marking(callee: Any) -> bool:
    """Whether it is ``apply`` of a Function that calls ``mark_dirty``."""
    kind = custom_function(callee)
    if kind is None:
        return False
    codes = (
        getattr(getattr(kind, name), "__code__", None) for name in ("forward", "setup_context")
    )
    return any(code is not None and "mark_dirty" in code.co_names for code in codes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Spared:
    """``apply`` that gets copies of what existed before; writing to one raises ``refusal``."""

    apply: Callable[..., Any]
    is_foreign: Callable[[Any], bool]
    refusal: AutobatchError

    @property
    def __name__(self) -> str:
        return shown_name(self.apply)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        lent = [arg for arg in args if isinstance(arg, Tensor) and self.is_foreign(arg)]
        spared = {id(arg): arg.clone() for arg in lent}
        given = [spared.get(id(arg), arg) for arg in args]
        out = self.apply(*given, **kwargs)
        if any(has_changed(arg, spared[id(arg)]) for arg in lent):
            raise self.refusal
        return out


def has_changed(before: Tensor, now: Tensor) -> bool:
    with torch.no_grad():
        same = (before == now) | ((before != before) & (now != now))
        return not bool(same.all())
