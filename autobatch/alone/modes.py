"""The mode of torch's that plain Python may enter: ``torch.no_grad()``.

Within it each operation of a thread does what it does in the loop, and its end puts back what was.
As a decorator it wraps a function that is called with what the wrapper gets.
"""

from __future__ import annotations

from types import FunctionType, MethodType

import torch

from autobatch.ir.program import Var
from autobatch.vm.purity import Known, content


@torch.no_grad()
def _wrapped() -> None: ...


_WRAPPER, _MAKE = _wrapped.__code__, torch.no_grad.clone


def is_no_grad(known: Known, mode: Var) -> bool:
    """Whether what a ``with`` enters is ``torch.no_grad()``."""
    definition = known.definitions.get(mode)
    while definition is not None and definition.name == "copy":
        definition = known.definitions.get(definition.args[0])
    if definition is None or definition.name != "call" or len(definition.args) != 1:
        return False
    return known.looked_up(definition.args[0]) is torch.no_grad


def decorated(function: FunctionType) -> FunctionType | None:
    """The function that ``@torch.no_grad()`` has wrapped; None for any other."""
    if function.__code__ is not _WRAPPER:
        return None
    names = function.__code__.co_freevars
    cells = dict(zip(names, map(content, function.__closure__ or ()), strict=True))
    make, inner = cells.get("ctx_factory"), cells.get("func")
    if not isinstance(make, MethodType) or make.__func__ is not _MAKE:
        return None
    if type(make.__self__) is not torch.no_grad or not isinstance(inner, FunctionType):
        return None
    return inner
