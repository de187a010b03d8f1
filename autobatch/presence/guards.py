"""Guards: operands whose gradient is zero in the rows that nobody needed.

In: an operand of an operation that ``risks`` tells of. Out: the same tensor by another node, whose
gradient is looked at as it comes to that: where all is finite, that is all. What a run returns goes
through nodes that tell which of its results the backward at work has come by.

Invariants: a ``Record`` holds nodes only while a backward runs, for they hold it. Where no results
are known the gradient stays as it is: so it does for derivatives of gradients, and within
functorch's transforms, where there are no guards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.compat import after_backward, backward_at_work, node_at_work, within_level
from autobatch.presence.walk import Mask, needed


@dataclass(slots=True, eq=False)
class Known:
    """What one backward has come to: ``roots``, and the masks that follow from so many of them."""

    roots: list[Any] = field(default_factory=list)
    count: int = 0
    masks: dict[Any, Mask] = field(default_factory=dict)

    def mask(self, node: Any) -> Mask:
        """Which rows of a node are needed; None: all, or who knows."""
        if self.count != len(self.roots):
            self.count, self.masks = len(self.roots), needed(self.roots)
        return self.masks.get(node)


@dataclass(slots=True, eq=False)
class Record:
    """What a run knows of its gradients, backward by backward.

    ``is_wild``: whether it has run an operation that may give what is not finite; ``is_used``:
    whether it has guards.
    """

    is_wild: bool = False
    is_used: bool = False
    backwards: dict[int, Known] = field(default_factory=dict)

    def arrived(self, grad: Tensor) -> None:
        """A backward has come to a result."""
        task = backward_at_work()
        known = self.backwards.get(task)
        if known is None:
            known = self.backwards[task] = Known()
            after_backward(partial(self.forget, task))
        known.roots.append(node_at_work())

    def forget(self, task: int) -> None:
        self.backwards.pop(task, None)

    def cleaned(self, dim: int, grad: Tensor | None) -> Tensor | None:
        """The gradient of an operand, its rows in dimension ``dim``; None: as it is.

        Autograd has None for one that nothing has come to.
        """
        known = self.backwards.get(backward_at_work())
        if known is None or grad is None or is_finite(grad):
            return None
        mask = known.mask(node_at_work())
        if mask is None or mask.shape != (grad.shape[dim],) or mask.all():
            return None
        rows = torch.from_numpy(mask).to(grad.device)
        sizes = [1] * grad.dim()
        sizes[dim] = -1
        return torch.where(rows.view(sizes), grad, torch.zeros((), dtype=grad.dtype))

    def left(self, tensor: Tensor) -> Tensor:
        """A result of the run, all of whose rows are needed if it is."""
        if tensor.grad_fn is None or not self.is_used or within_level() or not has_views(tensor):
            return tensor
        result = tensor.view_as(tensor)
        result.register_hook(self.arrived)  # type: ignore[no-untyped-call]
        return result


def has_views(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided


def is_finite(grad: Tensor) -> bool:
    """Whether a gradient is sure to be finite."""
    total = grad.detach().sum()
    return math.isfinite(abs(total.item()))


_AT_WORK: ContextVar[Record | None] = ContextVar("autobatch.presence", default=None)


def record_at_work() -> Record | None:
    return _AT_WORK.get()


@contextmanager
def presence() -> Iterator[Record]:
    """A run's record, at work inside where gradients may be wanted."""
    record = Record()
    if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        yield record
        return
    token = _AT_WORK.set(record)
    try:
        yield record
    finally:
        _AT_WORK.reset(token)


def guarded(operand: Tensor, dim: int, shape: tuple[int, ...] | None = None) -> Tensor:
    """An operand of what may have an infinite derivative or value.

    ``shape``: what it is broadcast to, where all threads share it.
    """
    record = _AT_WORK.get()
    if record is None:
        return operand
    record.is_wild = True
    return looked_at(record, operand, dim, shape)


def guarded_rows(column: Tensor) -> Tensor:
    """A column whose rows go to what runs thread by thread, and may have any derivative."""
    record = _AT_WORK.get()
    return column if record is None else looked_at(record, column, 0)


def looked_at(
    record: Record, operand: Tensor, dim: int, shape: tuple[int, ...] | None = None
) -> Tensor:
    if not operand.requires_grad or not torch.is_grad_enabled() or within_level():
        return operand
    if not has_views(operand):
        return operand
    record.is_used = True
    result = operand.view_as(operand) if shape is None else operand.expand(shape)
    result.register_hook(partial(record.cleaned, dim))  # type: ignore[no-untyped-call]
    return result


def wild() -> None:
    """What runs may give what is not finite, and is not differentiated."""
    record = _AT_WORK.get()
    if record is not None:
        record.is_wild = True


def guarded_if_wild(operand: Tensor, dim: int, shape: tuple[int, ...] | None = None) -> Tensor:
    """An operand of what has an infinite derivative only where the other one is infinite."""
    record = _AT_WORK.get()
    if record is None or not record.is_wild:
        return operand
    return guarded(operand, dim, shape)
