"""Parts of programs with tensors that plain Python runs, one thread after another.

In: a block that a group has come to. Out: where its threads go on, once each has run by itself to
the end of the part that begins there; None where there is none, and then nothing has changed. Its
effects are on what the threads have of their own; the exceptions are the loop's: of the threads
that fail the lowest one's, with those below it done.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import CellType
from typing import Any, Protocol

import numpy as np

from autobatch.alone.held import Looking, differ, has_objects, may_be_data
from autobatch.alone.parts import CALL, Candidate, Finder, Part
from autobatch.alone.written import END, Makers, written_function
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.host.from_rows import from_rows
from autobatch.batching.host.rower import Rower
from autobatch.ir.program import Call, Label, Var
from autobatch.values.cells import BOX, CLOSURE, Cell, Container, Mark, Uniform
from autobatch.vm.blocks import Blocks
from autobatch.vm.groups import FORKED, Group, Parts, restricted
from autobatch.vm.library import Library
from autobatch.vm.purity import content
from autobatch.vm.state import Frame, RunState

FEW = 128
"""Threads for which a kernel on a number of each takes longer than plain Python does for all."""
MOST_FINDERS = 8
"""Of one function, with different captured variables."""
MOST_WAYS = 4
"""Kinds of results by which threads that leave a part are told apart, at most."""
LASTING = (type, bool, int, float, str, type(None))
"""What a captured variable may hold of which nobody minds that it is kept."""
TOLD_APART = (bool, int, float, str, type(None))
NO_OTHERS: frozenset[Var] = frozenset()


class Engine(Protocol):
    """What it asks of an engine."""

    state: RunState
    blocks: Blocks


@dataclass(slots=True, eq=False, repr=False)
class Within:
    """The parts of a run's programs.

    What is found of a function is kept with its code; of one that captures variables it is kept
    for this run alone (``finders``), lest it keep alive what they hold: but for classes, as of what
    calls ``super()``, numbers and texts.
    """

    library: Library
    finders: dict[tuple[int, ...], Finder] = field(default_factory=dict)

    def run(self, engine: Engine, frame: Frame, pc: Label, group: Group) -> Parts | None:
        """Run the part that begins at a block, for a group that has come there."""
        finder = self.finder(frame)
        candidate = finder.candidate(pc, NO_OTHERS)
        if candidate is None or not self.may_run(engine.state, frame, group):
            return None
        if candidate.left:
            candidate.left -= 1
            return None
        others = frozenset(name for name in candidate.uses if not may_be_data(group.env.get(name)))
        fewer = finder.candidate(pc, others) if others else candidate
        if fewer is None:
            candidate.refuse()
            return None
        if not is_worth_a_part([group.env[name] for name in fewer.uses]):
            return None
        context = engine.state.context(frame, group)
        part = self.part(finder, pc, fewer, context, group)
        if part is None:
            candidate.refuse()
            return None
        candidate.waited = 0
        return Running(engine, frame, pc, group, context, part).run()

    def call(self, engine: Engine, frame: Frame, call: Call, group: Group) -> Parts | None:
        """Run a call of a program's function, for a group whose block it ends."""
        if not self.may_run(engine.state, frame, group):
            return None
        finder = self.finder(frame)
        candidate = finder.call(call)
        if candidate.left:
            candidate.left -= 1
            return None
        if not all(may_be_data(group.env.get(name)) for name in candidate.uses):
            return None
        given = [group.env[name] for name in call.args]
        if not has_objects(given, lists=group.k <= FEW):
            return None
        if not differ(group.env[name] for name in candidate.uses):
            return None
        context = engine.state.context(frame, group)
        context.span = call.span
        looking = self.looking(finder, context)
        held, others = looking.held({name: group.env[name] for name in candidate.uses})
        part = None if others else finder.part(CALL, candidate, held)
        if part is None:
            candidate.refuse()
            return None
        candidate.waited = 0
        return Running(engine, frame, engine.state.tally.block[1], group, context, part).run()

    def looking(self, finder: Finder, context: Context) -> Looking:
        return Looking(context.foreign, lambda name, obj: finder.known.looked_up(name) is obj)

    def finder(self, frame: Frame) -> Finder:
        code, scope = frame.code, frame.scope
        if code.parts is None:
            code.parts = {}
        boxes: list[CellType] = []
        if scope.free:
            boxes = [box for box in scope.free.values() if isinstance(box, CellType)]
        lasts = all(isinstance(content(box), LASTING) for box in boxes)
        kept: dict[tuple[int, ...], Finder] = code.parts if lasts else self.finders
        key = (id(code), id(scope.namespace), *map(id, boxes))
        found = kept.get(key)
        if found is None:
            if len(code.parts) >= MOST_FINDERS:
                code.parts.clear()
            found = kept[key] = Finder.of(code, scope, self.library)
        return found

    def may_run(self, state: RunState, frame: Frame, group: Group) -> bool:
        """Whether nobody looks at single steps here, and no thread's failure is caught."""
        return (
            group.k > 0
            and not frame.exact
            and not frame.catches
            and not frame.aside
            and frame.paths is None
            and group.pending is None
            and not group.checks
            and FORKED not in group.env
            and state.guard is None
            and state.observer is None
            and not state.steps.listeners
        )

    def part(
        self, finder: Finder, pc: Label, candidate: Candidate, context: Context, group: Group
    ) -> Part | None:
        """The part for what the variables hold; without those that turn out to hold no data."""
        found: Candidate | None = candidate
        others: set[Var] = set()
        while found is not None:
            looking = self.looking(finder, context)
            cells = {name: group.env[name] for name in found.uses}
            held, more = looking.held(cells)
            if not more:
                is_worth_it = found is candidate or is_worth_a_part(cells.values())
                return finder.part(pc, found, held) if is_worth_it else None
            others |= more_than(finder, pc, group) | set(more)
            found = finder.candidate(pc, frozenset(others))
        return None


def is_worth_a_part(cells: Collection[Cell]) -> bool:
    """Whether there are objects among what variables hold, and not all threads have the same."""
    return has_objects(cells) and differ(cells)


def more_than(finder: Finder, pc: Label, group: Group) -> set[Var]:
    first = finder.candidate(pc, NO_OTHERS)
    assert first is not None
    return {name for name in first.uses if not may_be_data(group.env.get(name))}


class PlainRower(Rower):
    """Real values for plain Python: functions that the program has made are Python's.

    These, and the boxes that hold them and nothing else ever, stay what they are for the others.
    """

    def __init__(self, context: Context, makers: Makers) -> None:
        super().__init__(context, keep=True)
        self.makers = makers

    def container(self, cell: Cell, value: Container) -> list[Any]:
        rows = super().container(cell, value)
        if value.type is CLOSURE or (value.type is BOX and holds(value.cells[0], CLOSURE)):
            cell.value = value
        return rows

    def immutable(self, value: Container) -> list[Any]:
        if value.type is not CLOSURE:
            return super().immutable(value)
        lowered, namespace, _ = value.static
        key = (id(lowered), id(namespace))
        if key not in self.makers:
            self.makers[key] = (lowered, namespace, written_function(lowered, namespace))
        make = self.makers[key][-1]
        columns = [self.rows(child) for child in value.children()]
        return (
            [make(*part) for part in zip(*columns, strict=True)]
            if columns
            else [make() for _ in range(self.k)]
        )


def holds(cell: Cell, kind: Mark) -> bool:
    value = cell.value
    return type(value) is Container and value.type is kind


@dataclass(slots=True, eq=False, repr=False)
class Running:
    """One run of a part, for a group."""

    engine: Engine
    frame: Frame
    pc: Label
    group: Group
    context: Context
    part: Part

    def run(self) -> Parts:
        state, group, context = self.engine.state, self.group, self.context
        block = self.frame.code.blocks[self.pc]
        if context.span is None:
            self.frame.span = context.span = (*block.ops, block.terminator)[0].span
        state.tally.part(group.k)
        for each in self.part.outer:
            context.foreign.note(each.value)
        rower = PlainRower(context, self.part.makers)
        columns = [rower.rows(group.env[name]) for name in self.part.variables]
        found: list[Any] = [None] * group.k
        run = self.part.written.run
        rows = list(zip(*columns, strict=True)) if columns else [()] * group.k
        failure: RowsFail | None = None
        for row in context.order():
            try:
                found[row] = run(*rows[row])
            except KeyboardInterrupt:  # the user's, not the program's
                raise
            except BaseException as error:
                span = self.part.written.span_of(error)
                if context.lost is None:
                    failure = RowsFail(row, error, span=span)
                    break
                context.lost[int(context.keys[row])] = (error, span or context.span)
        if failure is None and not context.lost:
            return self.parts(group, found)
        return self.left(found, failure)

    def left(self, found: list[Any], failure: RowsFail | None) -> Parts:
        """The threads that have not failed, nor are above one that has."""
        before = self.group.rows
        group, _ = self.engine.blocks.left(self.frame, self.group, self.context, failure)
        stay = np.flatnonzero(np.isin(before, group.rows))
        return self.parts(group, [found[row] for row in stay]) if group.k else []

    def parts(self, group: Group, found: list[Any]) -> Parts:
        """Where the threads go on: those together that go one way, with values of one kind."""
        keys = [self.key(each) for each in found]
        if len(set(keys)) > MOST_WAYS:
            keys = [key[:3] for key in keys]
        ways: dict[Any, list[int]] = {}
        for row, key in enumerate(keys):
            ways.setdefault(key, []).append(row)
        made: Parts = []
        for (source, target, bound, *_), rows in ways.items():
            live = self.frame.code.live[target]
            part = group
            if len(rows) < group.k:
                with self.engine.state.moving():
                    part = restricted(group, np.array(rows, dtype=np.int64), live)
            self.assign(part, bound, [found[row][2] for row in rows])
            part.env = {name: part.env[name] for name in live if name in part.env}
            end = [(target, part)]
            if self.frame.answers and source in self.frame.code.exits:
                self.engine.state.ways.mark(self.frame.code.function, source, end)
            made += end
        return made

    def key(self, found: tuple[Label, Label, dict[str, Any]]) -> tuple[Any, ...]:
        """What threads that go on together have in common."""
        source, target, values = found
        names, kinds = [], []
        for name in self.frame.code.live[target]:
            own = self.part.names.get(name)
            if name in self.part.assigned and own is not None and own in values:
                names.append(name)
                kind = type(values[own])
                kinds.append(kind if kind in TOLD_APART else None)
        return source, target, tuple(names), tuple(kinds)

    def assign(self, group: Group, names: Sequence[Var], found: list[dict[str, Any]]) -> None:
        """Give a group the values that its threads have come out with."""
        context = self.engine.state.context(self.frame, group)
        known: dict[tuple[int, ...], Cell] = {}
        for name in names:
            own = self.part.names[name]
            items = [None if values[own] is END else values[own] for values in found]
            before = group.env.get(name)
            if before is not None and is_same_number(before, items):
                group.env[name] = Cell(Uniform(items[0]))
            else:
                group.env[name] = from_rows(context, items, fresh=False, known=known)


def is_same_number(before: Cell, items: Sequence[Any]) -> bool:
    """Whether what was one integer for all threads is one for all again."""
    value = before.value
    if type(value) is not Uniform or type(value.obj) not in (int, bool):
        return False
    first = items[0]
    return type(first) in (int, bool) and all(
        type(item) is type(first) and item == first for item in items
    )
