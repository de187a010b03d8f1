"""What a run knows of its gradients, and whether anything in it may be infinite.

In: what a run gets and meets: arguments, what its objects hold, what all threads share; and that an
operation may give what is not finite. Out: whether rows are to be watched (``guards``,
``products``), and, while a backward runs, which results it has come by. What is given is looked at
only once somebody asks, and once in a run.

Invariant: a ``Record`` holds nodes only while a backward runs, for they hold it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autobatch.compat import (
    after_backward,
    backward_at_work,
    next_node,
    node_at_work,
    outside_everything,
    within_duals,
    within_level,
)
from autobatch.presence.known import Known
from autobatch.presence.layers import Layer, bare, layers
from autobatch.presence.nodes import is_made_since, node_of_rows
from autobatch.saving.savers import version

SUMMED = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}
)
"""The dtypes of what may be infinite; torch adds none of the narrower ones."""
MOST_WAITING = 256
"""Tensors that a stream's record holds."""


@dataclass(slots=True, eq=False, repr=False)
class Record:
    """What a run knows of its gradients, backward by backward.

    ``is_wild``: whether it has run an operation that may give what is not finite, or got such a
    thing: ``unseen`` is what has yet to be looked at for that. ``shared`` is the same of what all
    threads share, of which it has ``met`` some, by identity, as they were then (``version``);
    ``is_shared_wild``, if one of these is not finite. ``is_used``: whether it has guards.
    ``first`` is the number of the first node of autograd's that it may make. ``begun`` are the
    backwards since somebody began to listen.
    """

    unseen: list[Tensor] = field(default_factory=list)
    is_wild: bool = False
    shared: list[Tensor] = field(default_factory=list)
    met: dict[int, tuple[Tensor, int]] = field(default_factory=dict)
    is_shared_wild: bool = False
    is_used: bool = False
    first: int = field(default_factory=next_node)
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
            elif isinstance(each, Tensor):
                known = self.met.get(id(each))
                if known is None or known[1] != version(each):
                    self.met[id(each)] = each, version(each)
                    self.shared += self.those_smooth([each])

    def get(self, tensors: Iterable[Tensor]) -> None:
        """Threads have these from elsewhere: arguments, what objects hold."""
        self.unseen += self.those_smooth(tensors)

    @staticmethod
    def those_smooth(tensors: Iterable[Tensor]) -> list[Tensor]:
        return [each for each in tensors if may_be_infinite(each)]

    def pause(self) -> None:
        """It goes on later, and holds no more than so much of what has not been asked for."""
        if len(self.unseen) + len(self.met) > MOST_WAITING:
            self.has_wild_shared()
            self.has_wild()
            self.end()

    def end(self) -> None:
        """Nothing runs any more; the graph of what has may be kept."""
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

    def arrived(self, nr: int, grad: Tensor) -> None:
        """A backward has come to a result, which is one of so many of its node's."""
        self.at_work().roots.append((node_at_work(), nr))

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
            self.listen(layer)
        return result

    def hold(self, tensors: Iterable[Tensor], since: int) -> None:
        """Tensors leave as they are: objects hold them, or each thread has its own.

        Of rows that have been taken apart from the node of number ``since`` on, for that alone,
        one hook tells all.
        """
        listening: set[Any] = set()
        for tensor in tensors:
            for layer in layers(tensor):
                if not is_made_since(layer.tensor, self.first):
                    continue
                apart = node_of_rows(layer.tensor, since)
                if apart is None:
                    self.listen(layer)
                elif apart not in listening:
                    listening.add(apart)
                    apart.register_prehook(self.arrived_apart)

    def arrived_apart(self, grads: Sequence[Tensor | None]) -> None:
        """A backward has come to some of the rows that a node has taken apart."""
        roots, node = self.at_work().roots, node_at_work()
        roots += [(node, nr) for nr, grad in enumerate(grads) if grad is not None]

    def listen(self, layer: Layer) -> None:
        if layer.tensor.requires_grad:
            arrived = partial(self.arrived, layer.tensor.output_nr)
            layer.tensor.register_hook(arrived)  # type: ignore[no-untyped-call]


def has_views(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided


def may_be_infinite(tensor: Tensor) -> bool:
    """Whether it can be looked at for that, too; of others torch computes what is made of them."""
    return tensor.dtype in SUMMED and has_views(tensor) and not tensor.is_meta


def is_finite(grad: Tensor) -> bool:
    """Whether a gradient, with its tangents, is sure to be finite."""
    if not within_level() and not within_duals():
        return has_sum(grad)
    parts = list(bare(grad))
    with outside_everything():
        return all(map(has_sum, parts))


def has_sum(tensor: Tensor) -> bool:
    """Whether a tensor of no transform's is sure to be finite, in the least time."""
    return math.isfinite(abs(tensor.detach().sum().item()))


_AT_WORK: ContextVar[Record | None] = ContextVar("autobatch.presence", default=None)


def record_at_work() -> Record | None:
    return _AT_WORK.get()


def may_spoil() -> bool:
    """Whether a gradient may be wanted here of what has operands that may be infinite."""
    record = _AT_WORK.get()
    return record is not None and torch.is_grad_enabled() and record.has_wild()


@contextmanager
def presence(given: Sequence[Tensor] = (), record: Record | None = None) -> Iterator[Record]:
    """The record of a run on ``given``, at work inside where gradients may be wanted.

    ``record``: one that goes on.
    """
    goes_on = record is not None
    record = record or Record()
    record.get(given)
    if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        yield record
        return
    token = _AT_WORK.set(record)
    try:
        yield record
    finally:
        _AT_WORK.reset(token)
        if goes_on:
            record.pause()
        else:
            record.end()


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
