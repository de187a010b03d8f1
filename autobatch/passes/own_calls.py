"""Own calls: a call of a function that the caller defines itself, whose captures stay as they are.

Before:                                  After:

    f(x, w):                                 f(x, w):
    b0: w = box w                            b0: w = box w
        step = function[f.step] w                step = function[f.step] w
        jump b1                                  %step.w = load_box w
    b1: call step(h) -> h, then b2               jump b1
    b2: ...                                  b1: %step.b1.h = copy h
                                                 %step.b1.w = copy %step.w
    f.step(h) captures w:                        h = matmul %step.b1.w, %step.b1.h
    b0: %1 = load_free w                         jump b2
        %return = matmul %1, h
        return %return                       b2: ...

Nothing but the caller assigns the variable that names such a function, so what the call runs is
sure, whatever else is called. Only where the function is defined before, on every way, and all that
it captures has one value, assigned before that (``nonlocal`` and a ``del`` give it more).

In: a function. Out: the function, with short functions of its own in the places of their calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from autobatch.ir.dataflow import op_writes
from autobatch.ir.definitions import definitions_of
from autobatch.ir.program import Block, Call, Function, Label, Op, Var
from autobatch.passes.inlining import RECEIVER, Callee, inline_calls, is_shared

Place = tuple[Label, int]
"""A block, and the place of an operation in it."""
HERE = "_own"
"""What tells the variables of such a call from those of others that are inlined."""


def inline_own_calls(function: Function) -> Function:
    made = Definitions(function).found()
    if not made:
        return function
    loaded = replace(function, blocks=with_loads(function, made), live_in=(), types=())
    callees = {own.name: own.callee for own in made}
    inlined = inline_calls(loaded, lambda call: callees.get(call.callee))
    return function if inlined is loaded else inlined


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Own:
    """A function that another one defines at a ``place``: what all calls of a variable run.

    ``captured`` are the boxes that it captures, by the variables that are to have what is in them.
    """

    name: Var
    place: Place
    callee: Callee
    captured: Mapping[Var, Var]


@dataclass(eq=False, repr=False)
class Definitions:
    """What a function assigns, and where."""

    function: Function

    @cached_property
    def ops(self) -> list[tuple[Place, Op]]:
        blocks = enumerate(self.function.blocks)
        return [((label, at), op) for label, block in blocks for at, op in enumerate(block.ops)]

    @cached_property
    def writes(self) -> Counter[Var]:
        """How often each variable is assigned."""
        found = Counter(param.name for param in self.function.params)
        for _, op in self.ops:
            found.update(op_writes(op))
        for block in self.function.blocks:
            found.update([block.terminator.out] if isinstance(block.terminator, Call) else ())
            found.update([block.handler.out] if block.handler is not None else ())
        return found

    @cached_property
    def begins_once(self) -> bool:
        """Whether the entry comes before all else, and never again."""
        return not any(0 in block.successors() for block in self.function.blocks)

    def found(self) -> list[Own]:
        """The functions that are defined here, as they may be taken in."""
        return [
            own for place, op in self.ops if op.name == "function" and (own := self.own(place, op))
        ]

    def own(self, place: Place, op: Op) -> Own | None:
        (name,), inner = op.outs, op.attr
        boxes = dict(zip(inner.free, op.args, strict=False))
        calls = [
            self.precedes(place, (label, len(block.ops)))
            for label, block in enumerate(self.function.blocks)
            if isinstance(block.terminator, Call) and block.terminator.callee == name
        ]
        fixed = all(self.is_fixed(box, place) for box in boxes.values())
        if self.writes[name] != 1 or inner.yields is not None:
            return None
        if not calls or not all(calls) or not fixed:
            return None
        loads = {f"%{name.removeprefix('%')}.{each}": box for each, box in boxes.items()}
        given = {free(each): load for each, load in zip(boxes, loads, strict=True)}
        shared = frozenset(free(each) for each, box in boxes.items() if self.is_shared(box))
        return Own(name, place, Callee(lifted(inner), captured=given, shared=shared), loads)

    def is_fixed(self, box: Var, before: Place) -> bool:
        """Whether a box is filled before a place, and has that in it ever after."""
        stores: list[Place] = []
        for place, op in self.ops:
            if op.name in ("store_box", "clear_box") and op.args[0] == box:
                stores.append(place)
                if op.name == "clear_box":
                    return False
            elif op.name == "box" and op.outs[0] == box and op.args:
                stores.append(place)
        return len(stores) == 1 and self.precedes(stores[0], before)

    def is_shared(self, box: Var) -> bool:
        """Whether what is in a box is as good as sure to be the same for all threads."""
        values = (op.args[1] for _, op in self.ops if op.name == "store_box" and op.args[0] == box)
        return box == RECEIVER or any(is_shared(value, self.known) for value in values)

    @cached_property
    def known(self) -> Mapping[Var, Op | None]:
        return definitions_of(self.function)

    def precedes(self, one: Place, other: Place) -> bool:
        """Whether one place is passed before another, whichever way threads come there."""
        if one[0] == other[0]:
            return one < other
        return one[0] == 0 and self.begins_once


def free(name: str) -> Var:
    """The variable of a lifted function for what it captures."""
    return f"%free.{name}"


def lifted(inner: Function) -> Function:
    """The function with variables for what it captures."""

    def given(op: Op) -> Op:
        if op.name != "load_free":
            return op
        return replace(op, name="copy", args=(free(op.attr),), attr=None)

    blocks = tuple(
        replace(block, ops=tuple(map(given, block.ops)), converted=None) for block in inner.blocks
    )
    return replace(inner, name=f"{inner.name}{HERE}", blocks=blocks, free=(), live_in=(), types=())


def with_loads(function: Function, made: list[Own]) -> tuple[Block, ...]:
    """The blocks, with what functions capture taken out of its boxes where they are defined."""
    blocks = list(function.blocks)
    for own in reversed(made):  # the last first, so that places stay what they are
        (label, at), block = own.place, blocks[own.place[0]]
        span = block.ops[at].span
        loads = [Op("load_box", (to,), (box,), box, span) for to, box in own.captured.items()]
        ops = (*block.ops[: at + 1], *loads, *block.ops[at + 1 :])
        blocks[label] = replace(block, ops=ops, converted=None)
    return tuple(blocks)
