"""Guards: operands and results whose gradient is zero in the rows that nobody needed.

In: an operand, or a result, of an operation that ``risks`` tells of. Out: the same tensor, by
another node for an operand, whose gradient is looked at as it comes to that: where all is finite,
that is all. What a run returns goes through nodes that tell which of its results the backward at
work has come by. Each graph that the tensor is in has such nodes (``layers``).

A gradient that may itself be differentiated is looked at on its way back, too: before and after the
operation, so that what it makes of rows that nobody needed leaves it on no side.

Invariants: a ``Record`` holds nodes only while a backward runs, for they hold it. Where no results
are known the gradient stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.compat import (
    after_backward,
    backward_at_work,
    node_at_work,
    on_device,
    outside_everything,
    within_duals,
    within_level,
)
from autobatch.presence.known import Again, Known, Place
from autobatch.presence.layers import Layer, bare, differentiated, is_in_a_graph, layers
from autobatch.presence.moves import PLACE, Derived, noted, notes_of
from autobatch.presence.walk import Mask, all_of
from autobatch.saving.savers import decided

Fold = tuple[int, int]
"""Rows of a dimension that threads are folded into: ``(a, b)`` of ``[a, k, b]``."""
ONE: Fold = (1, 1)


def folded(mask: np.ndarray, fold: Fold) -> np.ndarray:
    """Of each of such rows what a mask says of its thread."""
    turns, count = fold
    return np.tile(mask.repeat(count), turns)


@dataclass(slots=True, eq=False, repr=False)
class Record:
    """What a run knows of its gradients, backward by backward.

    ``is_wild``: whether it has run an operation that may give what is not finite, or got such a
    thing: ``unseen`` is what has yet to be looked at for that. ``shared`` is the same of what all
    threads share, of which it has ``met`` some, by identity; ``is_shared_wild``, if one of these is
    not finite. ``is_used``: whether it has guards. ``begun`` are the backwards since somebody began
    to listen.
    """

    unseen: list[Tensor] = field(default_factory=list)
    is_wild: bool = False
    shared: list[Tensor] = field(default_factory=list)
    met: dict[int, Tensor] = field(default_factory=dict)
    is_shared_wild: bool = False
    is_used: bool = False
    backwards: dict[int, Known] = field(default_factory=dict)
    begun: list[Known] | None = None

    def has_wild(self) -> bool:
        """Whether an operand may be infinite."""
        if not self.is_wild:
            self.is_wild = self.has_wild_shared()
        while self.unseen and not self.is_wild:
            self.is_wild = not is_finite(self.unseen.pop())
        return self.is_wild

    def has_wild_shared(self) -> bool:
        """Whether an operand that all threads share may be."""
        while self.shared and not self.is_shared_wild:
            self.is_shared_wild = not is_finite(self.shared.pop())
        return self.is_shared_wild

    def meet(self, operands: Iterable[Any]) -> None:
        """Tensors and numbers that all threads share are operands."""
        for each in operands:
            if type(each) is float:
                self.is_shared_wild = self.is_shared_wild or not math.isfinite(each)
            elif isinstance(each, Tensor) and id(each) not in self.met and may_be_infinite(each):
                self.met[id(each)] = each
                self.shared.append(each)

    def rest(self) -> None:
        """What runs next may find other values in the same tensors."""
        self.unseen.clear()
        self.shared.clear()
        self.met.clear()

    def at_work(self) -> Known:
        """What the backward at work has come to."""
        task = backward_at_work()
        known = self.backwards.get(task)
        if known is None:
            known = self.backwards[task] = Known()
            after_backward(partial(self.over, task))
            if self.begun is not None:
                self.begun.append(known)
        return known

    def known(self) -> Known | None:
        """The same, where it has come to anything."""
        return self.backwards.get(backward_at_work())

    def over(self, task: int) -> None:
        known = self.backwards.pop(task, None)
        if known is not None:
            known.arrived.clear()

    def arrived(self, grad: Tensor) -> None:
        """A backward has come to a result."""
        self.at_work().roots.append(node_at_work())

    def left(self, tensor: Tensor) -> Tensor:
        """A result of the run, all of whose rows are needed if it is."""
        return self.leaving(tensor, list(layers(tensor)))

    def given(self, tensor: Tensor) -> Tensor:
        """A result of what the innermost transform differentiates."""
        return self.leaving(tensor, list(layers(tensor))[:1])

    def leaving(self, tensor: Tensor, among: Sequence[Layer]) -> Tensor:
        if not self.is_used or not any(layer.tensor.requires_grad for layer in among):
            return tensor
        if not has_views(tensor):
            return tensor
        result = tensor.view_as(tensor)
        for layer, _ in zip(layers(result), among, strict=False):
            if layer.tensor.requires_grad:
                layer.tensor.register_hook(self.arrived)  # type: ignore[no-untyped-call]
        return result


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
        if mask is None or mask.all():
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


def has_views(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided


def may_be_infinite(tensor: Tensor) -> bool:
    return has_views(tensor) and (tensor.is_floating_point() or tensor.is_complex())


def is_finite(grad: Tensor) -> bool:
    """Whether a gradient, with its tangents, is sure to be finite."""
    if not within_level() and not within_duals():
        return math.isfinite(abs(grad.detach().sum().item()))
    parts = list(bare(grad))
    with outside_everything():
        return all(math.isfinite(abs(part.detach().sum().item())) for part in parts)


_AT_WORK: ContextVar[Record | None] = ContextVar("autobatch.presence", default=None)


def record_at_work() -> Record | None:
    return _AT_WORK.get()


@contextmanager
def presence(given: Sequence[Tensor] = (), record: Record | None = None) -> Iterator[Record]:
    """The record of a run on ``given``, at work inside where gradients may be wanted.

    ``record``: one that goes on.
    """
    if record is None:
        record = Record([tensor for tensor in given if tensor.is_floating_point()])
    if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        yield record
        return
    token = _AT_WORK.set(record)
    try:
        yield record
    finally:
        _AT_WORK.reset(token)
        record.rest()


def guarded(
    operand: Tensor, dim: int, shape: tuple[int, ...] | None = None, fold: Fold = ONE
) -> Tensor:
    """An operand of what may have an infinite derivative or value.

    ``shape``: what it is broadcast to, where all threads share it; ``fold``: how they are
    folded into that otherwise.
    """
    record = _AT_WORK.get()
    return spread(record, operand, dim, shape) if shape else looked_at(record, operand, dim, fold)


def guarded_rows(column: Tensor) -> Tensor:
    """A column whose rows go to what runs thread by thread, and may have any derivative."""
    return looked_at(_AT_WORK.get(), column, 0)


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
    record = _AT_WORK.get()
    if record is not None and record.is_used and torch.is_grad_enabled():
        watch(record, result, dim, False)
    return result


def bounded_if_shared_wild(result: Tensor, dim: int) -> Tensor:
    """The same where what all threads share is what they are guarded for."""
    record = _AT_WORK.get()
    return bounded(result, dim) if record is not None and record.is_shared_wild else result


def all_bounded(results: tuple[Tensor, ...], dims: tuple[int | None, ...]) -> tuple[Tensor, ...]:
    for result, dim in zip(results, dims, strict=True):
        if dim is not None:
            bounded(result, dim)
    return results


def wild() -> None:
    """What runs may give what is not finite."""
    record = _AT_WORK.get()
    if record is not None:
        record.is_wild = True


def met(*operands: Any) -> None:
    """What runs has these operands, which all threads share."""
    record = _AT_WORK.get()
    if record is not None:
        record.meet(operands)


def brought(column: Tensor) -> Tensor:
    """What threads had each for itself: from an object, or a function of the host, perhaps."""
    record = _AT_WORK.get()
    if record is not None and may_be_infinite(column):
        record.unseen.append(column)
    return column


def guarded_if_wild(
    operand: Tensor, dim: int, shape: tuple[int, ...] | None = None, fold: Fold = ONE
) -> Tensor:
    """An operand of what has an infinite derivative only where the other one is infinite."""
    record = _AT_WORK.get()
    if record is not None and not (is_in_a_graph(operand) and record.has_wild()):
        record = None
    return spread(record, operand, dim, shape) if shape else looked_at(record, operand, dim, fold)


def guarded_if_shared_wild(operand: Tensor, dim: int, fold: Fold = ONE) -> Tensor:
    """The same where all threads share the other one."""
    record = _AT_WORK.get()
    if record is not None and not (is_in_a_graph(operand) and record.has_wild_shared()):
        record = None
    return looked_at(record, operand, dim, fold)


@contextmanager
def deriving() -> Iterator[list[Known]]:
    """What is known of the backwards that are made inside."""
    record = _AT_WORK.get()
    if record is None:
        yield []
        return
    outer, record.begun = record.begun, []
    try:
        yield record.begun
    finally:
        record.begun = outer


def derived(gradient: Tensor, backwards: Sequence[Known]) -> Tensor:
    """A gradient ``[k, ...]`` that backwards have made, row for row of what they began at."""
    if not backwards or not has_views(gradient):
        return gradient
    if not is_in_a_graph(gradient):
        return gradient
    for known in backwards:
        known.is_marked = True
    return noted(gradient.view_as(gradient), Derived(tuple(backwards)))
