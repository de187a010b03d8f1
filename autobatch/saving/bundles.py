"""Rounds of a loop as one function of autograd's: ``save="recompute"`` where a loop is one replay.

    forward     h = replay(k, x, w)     without a graph: a round may write its results over those
                h = replay(k, h, w)     of the last one
    backward    the same once more from ``x``, with a graph, and the derivative of that

So what a loop of ``T`` rounds runs more than by ``save="keep"`` is its rounds without a graph, and
autograd has a node for each bundle of about ``sqrt(2 T)`` of them. A step of 64 rows of 128 floats
through two layers takes 1.3 of the time of "keep"; written down call by call (``segments``) 1.55.

In: what runs a round with a graph and without, and which results of a round are operands of the
next. Out: what the last round has made, in autograd's graph.

Invariants: a round is pure and needs no guard (``presence``), all its rounds run with the same rows
and operands but for what is written down here; nobody else holds what a round has made before the
last one has run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

import torch
from torch import Tensor

from autobatch.compat import pop_hooks, push_hooks, set_grad
from autobatch.saving.segments import Given, Note, Place, as_before, refuse_changed

Replay = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ways:
    """How a round may run: with a graph (``loud``), without (``quiet``), and over operands that are
    results of the last one (``over``), which are ``carried`` from result to operand, by place.
    """

    loud: Replay
    quiet: Replay
    over: Replay
    carried: Mapping[int, int]


@dataclass(slots=True, eq=False, repr=False)
class Bundle:
    """A replay of rounds to come, which it writes down: of ``k`` rows each, ``runs`` of them.

    ``first`` are the operands of the first one, ``own`` those of them that are not carried, as the
    last one had them, ``others`` these of each later one; ``made`` is what the last one has made.
    """

    ways: Ways
    k: int = 0
    runs: int = 0
    first: Sequence[Any] = ()
    own: Sequence[Any] = ()
    others: list[Sequence[Any]] = field(default_factory=list)
    made: Sequence[Tensor] = ()

    def begin(self) -> None:
        self.runs, self.first, self.own, self.others, self.made = 0, (), (), [], ()

    def __call__(self, k: int, *values: Any) -> Sequence[Tensor]:
        ways, carried, made = self.ways, self.ways.carried, self.made
        own = [value for place, value in enumerate(values) if place not in carried]
        if not self.runs:
            self.k, self.first, self.own, replay = k, values, own, ways.quiet
        else:
            if any(values[place] is not made[slot] for place, slot in carried.items()):
                raise AssertionError("what a round has made is not what the next one gets")
            if not all(map(is_, own, self.own)):
                self.own = own
            self.others.append(self.own)
            replay = ways.over
        self.runs += 1
        set_grad(False)
        try:
            self.made = replay(k, *values)
        finally:
            set_grad(True)
        return self.made

    def attached(self, slots: Sequence[int], note: Note) -> Sequence[Tensor]:
        """Those results of the last round, differentiated; ``note`` hears of rounds run again."""
        tensors: dict[int, Tensor] = {}
        places: dict[int, Place] = {}

        def place(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if id(value) not in places:
                places[id(value)] = Place(len(tensors))
                tensors[len(tensors)] = value
            return places[id(value)]

        first = [place(value) for value in self.first]
        others = [[place(value) for value in own] for own in self.others]
        given = list(tensors.values())
        log = Log(self.ways, self.k, first, others, slots, list(map(Given.of, given)), note)
        results = [self.made[slot] for slot in slots]
        push_hooks(as_it_is, as_it_is)  # whoever has hooks around the run sees no less and no more
        try:
            found: Sequence[Tensor] = Rounds.apply(log, results, *given)  # type: ignore[no-untyped-call]
        finally:
            pop_hooks()
        self.begin()
        return found


def as_it_is(tensor: Tensor) -> Tensor:
    return tensor


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Log:
    """What a bundle has written down; tensors are ``Place``s among the ``given`` ones."""

    ways: Ways
    k: int
    first: Sequence[Any]
    others: Sequence[Sequence[Any]]
    slots: Sequence[int]
    given: Sequence[Given]
    note: Note

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The results, from these tensors in the place of those given, with a graph."""
        ways, values = self.ways, self.operands(self.first, tensors)
        own = [place for place in range(len(values)) if place not in ways.carried]
        made = ways.loud(self.k, *values)
        for operands in self.others:
            for place, value in zip(own, self.operands(operands, tensors), strict=True):
                values[place] = value
            for place, slot in ways.carried.items():
                values[place] = made[slot]
            made = ways.loud(self.k, *values)
        self.note(1 + len(self.others))
        return [made[slot] for slot in self.slots]

    @staticmethod
    def operands(written: Sequence[Any], tensors: Sequence[Tensor]) -> list[Any]:
        return [tensors[value] if type(value) is Place else value for value in written]


class Rounds(torch.autograd.Function):
    """``results`` of rounds that have run, as ``log`` says, on ``given``."""

    @staticmethod
    def forward(ctx: Any, log: Log, results: Sequence[Tensor], *given: Tensor) -> Any:
        ctx.save_for_backward(*given)
        ctx.set_materialize_grads(False)
        ctx.log = log
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        log: Log = ctx.log
        refuse_changed(log.given)
        again = torch.is_grad_enabled()  # a derivative of this one may be wanted
        wanted = ctx.needs_input_grad[2:]
        with as_before():
            given = [
                tensor.view_as(tensor) if again else tensor.detach().requires_grad_(wants)
                for tensor, wants in zip(ctx.saved_tensors, wanted, strict=True)
            ]
            results = log.run(given)
        pairs = [
            (result, grad)
            for result, grad in zip(results, grads, strict=True)
            if grad is not None and result.requires_grad
        ]
        leaves = [tensor for tensor, wants in zip(given, wanted, strict=True) if wants]
        found = iter(
            torch.autograd.grad(
                [result for result, _ in pairs],
                leaves,
                [grad for _, grad in pairs],
                create_graph=again,
                allow_unused=True,
            )
            if pairs
            else [None] * len(leaves)
        )
        return (None, None, *(next(found) if wants else None for wants in wanted))
