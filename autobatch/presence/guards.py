"""Guards: operands and results whose gradient is zero in the rows that nobody needed.

In: an operand, or a result, of an operation that ``risks`` tells of. Out: the same tensor, by
another node for an operand, whose gradient is looked at as it comes to that: where all is finite,
that is all. What a run returns goes through nodes that tell which of its results the backward at
work has come by. Each graph that the tensor is in has such nodes (``layers``).

A gradient that may itself be differentiated is looked at on its way back, too: before and after the
operation, so that what it makes of rows that nobody needed leaves it on no side.

Invariant: where no results are known the gradient stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from autobatch.compat import (
    on_device,
    within_duals,
    within_level,
)
from autobatch.presence.kinds import Derived
from autobatch.presence.known import Again, Known, Place
from autobatch.presence.layers import Layer, differentiated, is_in_a_graph
from autobatch.presence.masks import Mask, all_of, is_nothing
from autobatch.presence.moves import PLACE, noted, notes_of
from autobatch.presence.record import Record, has_views, is_finite, may_spoil, record_at_work
from autobatch.saving.savers import decided

Fold = tuple[int, int]
"""Rows of a dimension that threads are folded into: ``(a, b)`` of ``[a, k, b]``."""
ONE: Fold = (1, 1)
WHOLE = -1
"""The dimension that threads have rows in, of what all of them share and is computed once."""


def folded(mask: np.ndarray, fold: Fold) -> np.ndarray:
    """Of each of such rows what a mask says of its thread."""
    turns, count = fold
    return np.tile(mask.repeat(count), turns)


@dataclass(slots=True, eq=False, repr=False)
class Guard:
    """Looks at the gradient of one layer at a place; ``is_made``, if it may be made zero there."""

    record: Record
    place: Place | Again
    layer_dim: int
    level: int
    is_made: bool = True
    fold: Fold = ONE

    def __call__(self, grad: Tensor | None) -> Tensor | None:
        """The gradient without the rows that nobody needed; None: as it is.

        Autograd has None for one that nothing has come to.
        """
        known = self.record.known()
        if isinstance(self.place, Again):
            known = self.record.at_work()
            known.lend(self.place.known)
        if known is None or grad is None:
            return None
        found = self.cleaned(known, grad) if self.is_made and not is_finite(grad) else None
        if not torch.is_grad_enabled():
            return found
        watched = self.again(known, grad if found is None else found)
        return found if watched is None else watched

    def cleaned(self, known: Known, grad: Tensor) -> Tensor | None:
        masks = self.place.masks(known)
        mask: Mask = all_of(masks) if masks else None
        dim = self.layer_dim
        if is_nothing(mask):
            return torch.zeros_like(grad)
        if mask is None or dim == WHOLE or mask.all():
            return None
        mask = folded(mask, self.fold)
        if len(mask) != grad.shape[dim]:
            return None
        rows = on_device(mask, grad.device)
        sizes = [1] * grad.dim()
        sizes[dim] = -1
        return torch.where(rows.view(sizes), grad, torch.zeros((), dtype=grad.dtype))

    def again(self, known: Known, grad: Tensor) -> Tensor | None:
        """The gradient with guards of its own, in the graphs that it is differentiated in."""
        if not any(map(self.is_below, differentiated(grad, self.layer_dim))):
            return None
        result = grad.view_as(grad)
        place = Again(self.place, known)
        for layer in filter(self.is_below, differentiated(result, self.layer_dim)):
            guard(self.record, place, layer, fold=self.fold)
        return result

    def is_below(self, layer: Layer) -> bool:
        """A level's own graph ends with its backward."""
        return layer.level < self.level or not self.level


def guard(
    record: Record, place: Place | Again, layer: Layer, is_made: bool = True, fold: Fold = ONE
) -> None:
    hook = Guard(record, place, layer.dim, layer.level, is_made, fold)
    layer.tensor.register_hook(hook)  # type: ignore[no-untyped-call]


def guarded(
    operand: Tensor, dim: int, shape: tuple[int, ...] | None = None, fold: Fold = ONE
) -> Tensor:
    """An operand of what may have an infinite derivative or value.

    ``shape``: what it is broadcast to, where all threads share it and the result has rows;
    ``fold``: how they are folded into that otherwise.
    """
    record = record_at_work()
    return spread(record, operand, dim, shape) if shape else looked_at(record, operand, dim, fold)


def guarded_rows(column: Tensor) -> Tensor:
    """A column whose rows go to what runs thread by thread, and may have any derivative."""
    return looked_at(record_at_work(), column, 0)


def looked_at(record: Record | None, operand: Tensor, dim: int, fold: Fold = ONE) -> Tensor:
    if record is None or not may_be_looked_at(operand):
        return operand
    record.is_used = True
    result = operand.view_as(operand)
    watch(record, result, dim, fold=fold)
    return result


def spread(record: Record | None, operand: Tensor, dim: int, shape: tuple[int, ...]) -> Tensor:
    """The same of what all threads share; it is broadcast where it runs once more, too."""
    if not decided(lambda: record is not None and may_be_looked_at(operand)):
        return operand
    result = operand.expand(shape)
    if record is not None:
        record.is_used = True
        watch(record, result, dim)
    return result


def may_be_looked_at(operand: Tensor) -> bool:
    return torch.is_grad_enabled() and has_views(operand) and is_in_a_graph(operand)


def watch(
    record: Record, tensor: Tensor, dim: int, is_made: bool = True, fold: Fold = ONE
) -> Place:
    place = Place()
    if not within_level() and not within_duals():
        if tensor.requires_grad and tensor.grad_fn is not None:
            notes_of(tensor.grad_fn).setdefault(PLACE, place)
            hook = Guard(record, place, dim, 0, is_made, fold)
            tensor.register_hook(hook)  # type: ignore[no-untyped-call]
        return place
    for layer in differentiated(tensor, dim):
        if (node := layer.tensor.grad_fn) is not None:
            notes_of(node).setdefault(PLACE, place)
        guard(record, place, layer, is_made, fold)
    return place


def bounded(result: Tensor, dim: int) -> Tensor:
    """A result of what has guarded operands: what it makes of gradients' gradients ends here."""
    record = record_at_work()
    if record is not None and record.is_used and torch.is_grad_enabled():
        watch(record, result, dim, False)
    return result


def bounded_if_shared_wild(result: Tensor, dim: int) -> Tensor:
    """The same where what all threads share is what they are guarded for."""
    record = record_at_work()
    return bounded(result, dim) if record is not None and record.is_shared_wild else result


def all_bounded(results: tuple[Tensor, ...], dims: tuple[int | None, ...]) -> tuple[Tensor, ...]:
    for result, dim in zip(results, dims, strict=True):
        if dim is not None:
            bounded(result, dim)
    return results


def guarded_if_wild(
    operand: Tensor, dim: int, shape: tuple[int, ...] | None = None, fold: Fold = ONE
) -> Tensor:
    """An operand of what has an infinite derivative only where the other one is infinite."""
    record = record_at_work()
    if record is not None and not (is_in_a_graph(operand) and record.has_wild()):
        record = None
    return spread(record, operand, dim, shape) if shape else looked_at(record, operand, dim, fold)


def guarded_if_shared_wild(operand: Tensor, dim: int, fold: Fold = ONE) -> Tensor:
    """The same where all threads share the other one."""
    record = record_at_work()
    if record is not None and not (is_in_a_graph(operand) and record.has_wild_shared()):
        record = None
    return looked_at(record, operand, dim, fold)


def is_watchful() -> bool:
    """Whether what runs has to look at gradients which only infinite operands spoil."""
    return decided(may_spoil)


def derived(gradient: Tensor, backwards: Sequence[Known], first: int) -> Tensor:
    """A gradient ``[k, ...]`` that backwards have made, row for row of what they began at.

    ``first``: the number of the first node of what they differentiate.
    """
    if not backwards or not has_views(gradient):
        return gradient
    if not is_in_a_graph(gradient):
        return gradient
    for known in backwards:
        known.is_marked = True
    by_order = first if gradient.device.type == "cpu" else None  # else other threads make nodes
    return noted(gradient.view_as(gradient), Derived(tuple(backwards), by_order))
