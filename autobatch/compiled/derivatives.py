"""Derivatives in machine code: ``torch.func.grad(f)`` and the like, of a program function ``f``.

torch traces the derivative for the shapes of its arguments. ``f`` itself is written, too, and
thrown away: so it is refused where it does anything but compute, and what its names mean is held
on to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from autobatch.compiled.arrays.calls import outline
from autobatch.compiled.arrays.graph import Traced, traced
from autobatch.compiled.types import Refused, Value

MAKERS = frozenset(
    {torch.func.grad, torch.func.grad_and_value, torch.func.jacrev, torch.func.jacfwd}
    | {torch.func.hessian}
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Derived:
    """``result`` is what a transform has made of ``function``; its graphs are kept by arguments."""

    result: Any
    function: Any
    graphs: dict[Any, Traced] = field(default_factory=dict)

    def graph(self, args: list[Value], named: dict[str, Value]) -> tuple[Traced, list[Value]]:
        """The graph for such arguments, and those of them that are tensors."""
        found: list[Value] = []
        given = [outline(arg, found) for arg in args]
        by_name = {name: outline(arg, found) for name, arg in named.items()}
        key = repr((given, by_name))
        if key not in self.graphs:
            self.graphs[key] = traced(self.result, given, by_name)
        return self.graphs[key], found


def options_of(named: dict[str, Value], args: list[Value]) -> dict[str, Any] | None:
    """``argnums`` and the like as they are; None if one is not known."""
    if args:
        return None
    found: dict[str, Any] = {}
    for name, value in named.items():
        try:
            found[name] = outline(value, [])
        except Refused:
            return None
    return found
