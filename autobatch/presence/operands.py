"""Operands that a backward may come back to, as the saver at work has autograd's own.

Where one is at work, they are saved as those of an operation are, so that what is computed once
more, or lies on the host, is not held here; and they come back where they are in autograd's graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from autobatch.saving.savers import is_again, is_saving


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Operands:
    """``saver``, if not None, comes of the node that has saved the tensors among those ``given``.

    Without it torch 2.11 lets go of what the node has saved.
    """

    given: tuple[Any, ...]
    saver: Tensor | None = None

    def all(self) -> list[Any]:
        if self.saver is None:
            return list(self.given)
        saved = iter(cast("Any", self.saver.grad_fn).saved_tensors)
        return [next(saved) if each is SAVED else each for each in self.given]


SAVED = object()
"""Stands for a tensor that a node has saved."""


def operands_of(given: Sequence[Any]) -> Operands:
    tensors = [each for each in given if isinstance(each, Tensor)]
    if not tensors or not (is_saving() or is_again()):
        return Operands(tuple(given))
    saver = Remembered.apply(*tensors)  # type: ignore[no-untyped-call]
    if saver.grad_fn is None:  # none of them is differentiated
        return Operands(tuple(given))
    return Operands(tuple(SAVED if isinstance(each, Tensor) else each for each in given), saver)


class Remembered(torch.autograd.Function):
    """Saves what it gets, some of which is differentiated."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return tensors[0].new_empty(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        raise AssertionError("nobody differentiates it")
