"""Outcomes: what a way of a descent has come to at its end, for threads at any depth alike.

In: a way (``descents``), and the blocks it goes through. Out: the calls that it forks, what they
are given, and what each variable holds that lives where the threads go on: an object that has been
found, what is the same for all of them, or what a call is to give. None where a way's end is
nothing so plain: what a call gives is used before the join, but for taking it apart.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Literal

from autobatch.ir.program import Block, Join, Label, Op, Var
from autobatch.passes.descents import Way

Source = tuple[Literal["object", "same", "result"], int, int]
"""An object by its number; what is the same for all; what a call gives, by the call's number: 0 for
the whole of it, and from 1 on for the parts that it is taken apart into."""
SAME: Source = ("same", 0, 0)


@dataclass(frozen=True, slots=True)
class Forked:
    """A call: what its operands are, the callee first, and what takes its result apart."""

    op: Op
    operands: tuple[Source, ...]
    unpack: Op | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """``at`` is the block where threads go on, behind a join if they have forked ``calls``; there,
    ``live`` says what variables hold. ``ops`` are the forks, and the operations that give what is
    the same for all threads, in order; ``begins`` the numbers of objects that variables held at the
    beginning. ``is_quiet``: neither it nor what is behind it calls anything.
    """

    at: Label
    calls: tuple[Forked, ...]
    live: tuple[tuple[Var, Source], ...]
    ops: tuple[Op, ...]
    begins: frozenset[int]
    is_quiet: bool


class NotPlain(Exception):
    """A way ends by something else."""


def outcome_of(
    way: Way, blocks: Sequence[Block], live: Sequence[Set[Var]], quiet: Set[Label]
) -> Outcome | None:
    """The outcome of a way; ``live`` are the variables that live at each block, ``quiet`` the
    blocks from which nothing is called.
    """
    walk = Walk(way)
    try:
        for op, number in way.steps:
            walk.step(op, number)
    except NotPlain:
        return None
    at = way.end
    if walk.calls:
        end = blocks[at]
        if type(end.terminator) is not Join or end.ops or end.modes or end.handler is not None:
            return None
        at = end.terminator.target
    found = tuple((name, walk.values.get(name, SAME)) for name in sorted(live[at]))
    calls = tuple(
        Forked(op, operands, walk.unpacks.get(place))
        for place, (op, operands) in enumerate(walk.calls)
    )
    begins = frozenset(number for _, number in way.begins)
    return Outcome(at, calls, found, tuple(walk.ops), begins, not calls and at in quiet)


class Walk:
    """Goes a way; variables that are not in ``values`` hold what is the same for all threads."""

    def __init__(self, way: Way) -> None:
        self.values: dict[Var, Source] = {name: ("object", at, 0) for name, at in way.begins}
        self.calls: list[tuple[Op, tuple[Source, ...]]] = []
        self.unpacks: dict[int, Op] = {}
        self.ops: list[Op] = []

    def step(self, op: Op, number: int | None) -> None:
        operands = tuple(self.values.get(arg, SAME) for arg in op.args)
        kinds = {kind for kind, _, _ in operands}
        if number is not None:
            self.put(op, ("object", number, 0))
        elif op.name == "fork":
            if "result" in kinds or operands[0] is not SAME:
                raise NotPlain
            self.put(op, ("result", len(self.calls), 0))
            self.calls.append((op, operands))
            self.ops.append(op)
        elif op.name == "copy":
            self.put(op, operands[0])
            if operands[0] is SAME:
                self.ops.append(op)
        elif op.name == "defer" and "result" in kinds:
            self.take_apart(op, operands[0])
        elif kinds <= {"same"}:
            self.ops.append(op)
            for out in op.outs:
                self.values.pop(out, None)
        else:
            raise NotPlain

    def put(self, op: Op, source: Source) -> None:
        if source is SAME:
            self.values.pop(op.outs[0], None)
        else:
            self.values[op.outs[0]] = source

    def take_apart(self, op: Op, result: Source) -> None:
        """What a call gives is taken apart, into as many parts as it has."""
        name, attr = op.attr
        _, call, part = result
        if name != "unpack" or attr.starred or part or call in self.unpacks:
            raise NotPlain
        self.unpacks[call] = Op(name, op.outs, op.args, attr, op.span)
        for place, out in enumerate(op.outs):
            self.values[out] = ("result", call, place + 1)
