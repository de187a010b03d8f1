"""Descending: threads go from a branch on their objects to the calls that they fork, in one step.

A level of a recursion over objects would be a block execution, a host read and a split for each
branch on the way to its forks. Where all of that only looks at objects, each thread goes its way as
plain Python, and those that go the same way are one group at its end (``passes.descents``).

In: a group at the end of a block that ends in a branch on objects. Out: the groups that go on, and
where, as of any block execution; None, with nothing changed, where anything is not plain. It is one
block execution, with one host read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import numpy as np
from torch import Tensor

from autobatch.batching import operations
from autobatch.batching.arithmetic import loose_columns
from autobatch.batching.context import Context
from autobatch.batching.fallbacks import ATTRIBUTE
from autobatch.batching.host.from_rows import from_rows
from autobatch.batching.host.own_methods import getter
from autobatch.batching.host.rows import note_fallback
from autobatch.batching.kinds import found_in_class
from autobatch.batching.objects.attributes import bound, is_stored
from autobatch.batching.truths import says_itself
from autobatch.ir.program import Branch, Op
from autobatch.passes.descents import Descent, Kind, Way, descent_from
from autobatch.passes.outcomes import Outcome, outcome_of
from autobatch.structure import own_attributes
from autobatch.values.cells import Cell, Container, Objects, Uniform, is_mutable
from autobatch.vm.blocks import Forks
from autobatch.vm.code import Code, Luck
from autobatch.vm.groups import Group, Parts, restricted
from autobatch.vm.state import Frame, RunState

LONGEST = 255
"""So often at most a descent is not tried once it has failed."""
Found = tuple[list[int], tuple[list[Any], ...]]


class Unfit(Exception):
    """To look at an object runs code of its own, or may."""


@dataclass(slots=True, eq=False, repr=False)
class Known:
    """A descent, the function that goes it, and how that has fared (``Luck``), by one depth or
    through all of them (``bottom_up``); what its ways come to, by their places.
    """

    descent: Descent
    part: Callable[..., Sequence[Found]]
    luck: Luck = field(default_factory=Luck)
    deep: Luck = field(default_factory=Luck)
    outcomes: dict[int, Outcome | None] = field(default_factory=dict)

    def sets(self) -> tuple[set[type], ...]:
        """What ``part`` notes classes in."""
        return tuple([set() for _ in range(self.descent.sets)])

    def outcome(self, place: int, code: Code) -> Outcome | None:
        """What one of the ways comes to."""
        if place not in self.outcomes:
            way, live = self.descent.ways[place], code.function.live_in
            self.outcomes[place] = outcome_of(way, code.blocks, live, code.quiet_blocks)
        return self.outcomes[place]


def descended(
    state: RunState, forks: Forks, frame: Frame, pc: int, group: Group, whole: bool
) -> Parts | None:
    """Where the threads are, when they have forked calls, that have come to a block, or its end."""
    known = known_from(frame, pc, group, whole)
    if known is None or not may_descend(state, frame, pc, group):
        return None
    if not known.luck.tries(LONGEST):
        return None
    columns = [group.env[name].value.items for name in known.descent.objects]  # type: ignore[union-attr]
    descent = Descending(state, forks, frame, group, state.context(frame, group))
    parts: Parts = []
    taken: list[Way] = []
    try:
        found = known.part(group.k, known.sets(), *columns)
        for way, (rows, values) in zip(known.descent.ways, found, strict=True):
            if rows:
                taken.append(way)
                parts.append((way.end, descent.gone(way, rows, values)))
    except Exception:  # the general way finds out whose it is
        return None
    known.luck.worked()
    count(state, descent.context, taken, group.k, group.env[known.descent.objects[0]])
    if frame.answers:
        for way, part in zip(taken, parts, strict=True):
            state.ways.mark(frame.code.function, way.last, [part])
    return parts


def may_descend(state: RunState, frame: Frame, pc: int, group: Group) -> bool:
    """Whether nobody wants to know of each block by itself, and no thread is to be told apart."""
    return (
        state.work is not None
        and state.steps.max_steps is None
        and frame.waiting.choose is None
        and frame.paths is None
        and frame.gone is None
        and not frame.exact
        and not frame.catches
        and not group.checks
        and not (frame.answers and pc in frame.code.exits)
        and not loose_columns(group.env)
    )


def known_from(frame: Frame, pc: int, group: Group, whole: bool) -> Known | None:
    """The descent from a block, or its end, for what a group's variables hold."""
    code = frame.code
    kinds = {name: kind_of(cell) for name, cell in group.env.items()}
    key = (pc, whole, *kinds.items())
    if key not in code.descents:
        descent = None
        if "objects" in kinds.values():
            descent = descent_from(code.blocks, code.function.live_in, pc, whole, kinds)
        code.descents[key] = None if descent is None else Known(descent, made(descent))
    known: Known | None = code.descents[key]
    return known


def kind_of(cell: Cell) -> Kind:
    value = cell.value
    kind = type(value)
    if kind is Objects:
        return "objects" if value.lists is None else "other"  # type: ignore[union-attr]
    return "none" if kind is Uniform and value.obj is None else "other"  # type: ignore[union-attr]


def made(descent: Descent) -> Callable[..., Sequence[Found]]:
    """The function whose text a descent has."""
    space: dict[str, Any] = {"attribute": keeps, "truth": is_plainly_true}
    exec(descent.text, space)
    part: Callable[..., Sequence[Found]] = space["part"]
    return part


def keeps(known: set[type], kind: type, name: str) -> None:
    """Note that to read an attribute of a class's instances runs no code; ``Unfit`` if it does."""
    if not is_stored(kind, name):
        raise Unfit
    known.add(kind)


def is_plainly_true(known: set[type], kind: type) -> None:
    """The same of their truth."""
    if says_itself(kind):
        raise Unfit
    known.add(kind)


@dataclass(slots=True, eq=False, repr=False)
class Descending:
    """A group on its descent: nothing of it changes."""

    state: RunState
    forks: Forks
    frame: Frame
    group: Group
    context: Context

    def gone(self, way: Way, rows: list[int], values: Sequence[list[Any]]) -> Group:
        """The threads that go a way, at its end; ``Unfit`` where something on it is not plain."""
        found = dict(zip(way.found, values, strict=True))
        part = self.begun(way, rows, found)
        env = part.env
        for op, number in way.steps:
            if number is None:
                self.run(op, part)
            elif op.name == "copy":
                env[op.outs[0]] = env[op.args[0]]
            else:
                cell = from_rows(self.context, list(found[number]), fresh=False)
                env[op.outs[0]] = cell
        return part

    def begun(self, way: Way, rows: list[int], found: dict[int, list[Any]]) -> Group:
        """The threads that go a way, at its beginning."""
        group, env = self.group, self.group.env
        others = [name for name, cell in env.items() if type(cell.value) is not Objects]
        if len(rows) == group.k:
            part = Group(group.rows, {name: env[name] for name in others})
        else:
            part = self.parted(np.array(rows, dtype=np.int64), others)
        for name, number in way.begins:
            value = env[name].value
            part.env[name] = Cell(Objects(found[number], value.ties))  # type: ignore[union-attr]
        return part

    def parted(self, rows: np.ndarray, names: Sequence[str]) -> Group:
        """Some of the threads, with what variables hold that are no objects."""
        env = self.group.env
        if all(map(is_fixed, (env[name] for name in names))):
            return Group(self.group.rows[rows], {name: env[name] for name in names})
        with self.state.moving():
            return restricted(self.group, rows, names)

    def run(self, op: Op, part: Group) -> None:
        """An operation for all threads of a part, if it is plain."""
        env = part.env
        if op.name in ("fork", "defer"):
            if op.name == "fork" and not self.forks.learned(self.frame, op, part, self.context):
                raise Unfit
            if not self.forks.noted(self.frame, op, part):
                raise Unfit
        elif op.name == "getattr":
            env[op.outs[0]] = self.read(op, env[op.args[0]])
        elif op.name == "copy":
            env[op.outs[0]] = env[op.args[0]]
        elif op.name == "tuple":
            env[op.outs[0]] = Cell(Container(tuple, [env[name] for name in op.args]))
        else:
            self.context.span = op.span
            operations.execute(self.context, self.frame.scope, op, env)

    def read(self, op: Op, cell: Cell) -> Cell:
        """An attribute of what all threads share, once for as long as it must be the same; or a
        method of their objects.
        """
        value, judgements = cell.value, self.state.judgements
        if type(value) is not Uniform or judgements is None or not judgements.keep:
            return read_from(cell, op.attr)
        known = judgements.reads.get((id(op), id(value.obj)))
        if known is None or known[0] is not value.obj:
            found = read_from(cell, op.attr)
            judgements.reads[id(op), id(value.obj)] = (value.obj, found)
            return found
        return known[1]


def count(state: RunState, context: Context, ways: Sequence[Way], k: int, cell: Cell) -> None:
    """Count what ``k`` threads have read on their ways, and what of them has moved."""
    context.counter.host_read("branch")
    if len(ways) > 1:
        state.tally.copies(k)
    if context.policy is None and not context.counter.listens:
        return
    for asked in {id(asked): asked for way in ways for asked in way.asked}.values():
        context.span = asked.span
        if isinstance(asked, Branch):
            note_fallback(context, bool, (cell,), "objects")
        else:
            note_fallback(context, getattr, (cell,), ATTRIBUTE)


def is_fixed(cell: Cell) -> bool:
    """Whether it holds what is the same for all threads, and no thread can change."""
    value = cell.value
    return type(value) is Uniform and (value.shared or not is_mutable(value))


def read_from(cell: Cell, name: str) -> Cell:
    """An attribute of what all threads share, or a method of their objects; ``Unfit`` where code
    runs for it.
    """
    value = cell.value
    if type(value) is Uniform:
        if not value.shared or isinstance(value.obj, Tensor) or getter(value.obj, name) is not None:
            raise Unfit
        return Cell(Uniform(getattr(value.obj, name), shared=True))
    if type(value) is not Objects:
        raise Unfit
    kinds = set(map(type, value.items))
    (kind,) = kinds
    method = found_in_class(kind, name)
    if not isinstance(method, FunctionType):
        raise Unfit
    if any(name in (own_attributes(item) or ()) for item in value.items):
        raise Unfit
    return bound(cell, method)
