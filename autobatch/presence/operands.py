"""Operands that a backward may come back to, as the saver at work has autograd's own.

Where one is at work, they are saved as those of an operation are, so that what is computed once
more, or lies on the host, is not held here; and they come back where they are in autograd's graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.saving.savers import is_again, is_saving


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Operands:
    """``node`` has saved the tensors among those ``given``, if it is not None."""

    given: tuple[Any, ...]
    node: Any = None

    def all(self) -> list[Any]:
        if self.node is None:
            return list(self.given)
        saved = iter(self.node.saved_tensors)
        return [next(saved) if each is SAVED else each for each in self.given]


SAVED = object()
"""Stands for a tensor that a node has saved."""


def operands_of(given: Sequence[Any]) -> Operands:
    tensors = [each for each in given if isinstance(each, Tensor)]
    if not tensors or not (is_saving() or is_again()):
        return Operands(tuple(given))
    node = Remembered.apply(*tensors).grad_fn  # type: ignore[no-untyped-call]
    if node is None:  # none of them is differentiated
        return Operands(tuple(given))
    return Operands(tuple(SAVED if isinstance(each, Tensor) else each for each in given), node)


class Remembered(torch.autograd.Function):
    """Saves what it gets, some of which is differentiated."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return tensors[0].new_empty(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        raise AssertionError("nobody differentiates it")
