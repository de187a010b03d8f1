"""Bottom up: a recursion over objects of which each depth is known before anything is computed.

Where all on the way to its calls only looks at objects (``descending``), and its calls get nothing
but objects and what is the same for all threads, no result decides where threads go. So one pass on
the host goes down through all depths; then each depth runs what is behind its join, the deepest
first. What forks nothing runs as one for all depths, before the first that waits for it. All of it
is one frame, which has the rows of every depth.

In: the frame of forked calls whose rows are all at its beginning. Out: what is to run whenever
nothing else is left to (``Late``); nothing, with nothing changed, where anything is not so plain.
``Apart`` where that shows only later: results of one depth that are not alike, threads that fail.
What has run until then is pure, so the calls begin again, depth by depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from types import NotImplementedType
from typing import Any

import numpy as np
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.host.from_rows import SHARABLE, from_rows
from autobatch.batching.stretches.outline import is_structural
from autobatch.ir.program import Var
from autobatch.passes.descents import Way
from autobatch.passes.outcomes import SAME, Forked, Outcome
from autobatch.values.cells import NUMBER_TAGS, Cell, Objects, Uniform, is_mutable
from autobatch.values.heap import selecting
from autobatch.vm.blocks import Forks
from autobatch.vm.calling import Returned
from autobatch.vm.descending import (
    LONGEST,
    Descending,
    Known,
    Unfit,
    count,
    known_from,
    may_descend,
)
from autobatch.vm.forks.together import gathered
from autobatch.vm.groups import Group, Parts
from autobatch.vm.late import Apart, parted
from autobatch.vm.state import Frame, RunState

VALUES = frozenset([*NUMBER_TAGS, str, bytes, tuple, type(Ellipsis), NotImplementedType])
SHARED = (Tensor, *SHARABLE)
"""What threads may have that is no object of each one's own, by its class or a base of that."""
Lists = Sequence[list[Any]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Gone:
    """A way as the threads of a run go it: the variables that hold the ``same`` for all of them at
    its end; for each call, which of the lists found on the way hold the objects that it gets.
    """

    way: Way
    outcome: Outcome
    same: dict[Var, Cell]
    calls: Sequence[Sequence[int]]

    def env(
        self, context: Context, lists: Lists, results: Sequence[Sequence[Cell]] = ()
    ) -> dict[Var, Cell]:
        """What variables hold at its end, for threads that have found some objects; ``results`` are
        what each call gave, and then the parts of that.
        """
        env = dict(self.same)
        cells: dict[int, Cell] = {}
        for name, (kind, number, part) in self.outcome.live:
            if kind == "result":
                env[name] = results[number][part]
            elif kind == "object":
                if number not in cells:
                    items = lists[self.way.found.index(number)]
                    begins = number in self.outcome.begins
                    own = Cell(Objects(items)) if begins else from_rows(context, items, fresh=False)
                    cells[number] = own
                env[name] = cells[number]
        return env


Taken = tuple[Gone, np.ndarray, Lists]
"""A way, the rows that go it, and what they have found."""


@dataclass(slots=True, eq=False, repr=False)
class Depth:
    """The rows of a frame from ``first`` on: ways whose rows run at their depth, and ``quiet``
    ones, whose rows need not. ``done`` are those that have returned, the quiet ones if ``has_run``.
    """

    first: int
    threads: np.ndarray
    own: list[Taken] = field(default_factory=list)
    quiet: list[Taken] = field(default_factory=list)
    has_run: bool = False
    done: list[Returned] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.threads)


def goes_bottom_up(state: RunState, forks: Forks, frame: Frame, group: Group) -> bool:
    """Whether a group at the beginning of its frame goes so; the frame knows what to run then."""
    late = frame.late
    if late is None or late.is_due or late.apart or state.guard is None or not group.k:
        return False
    if group.k < len(frame.threads) or frame.waiting or frame.returned or late.parts:
        return False
    known = known_from(frame, 0, group, True)
    if known is None or not may_descend(state, frame, 0, group) or not known.deep.tries(LONGEST):
        return False
    try:
        depths = Looking(state, forks, frame, group, known).depths()
    except Exception:  # depth by depth it is found out whose it is
        return False
    late.stages = BottomUp(state, frame, group.env[known.descent.objects[0]], known, depths)
    late.is_due = True
    return True


@dataclass(slots=True, eq=False, repr=False)
class Looking:
    """The pass down through all depths; nothing changes. ``Unfit`` where anything is not plain."""

    state: RunState
    forks: Forks
    frame: Frame
    group: Group
    known: Known
    descending: Descending = field(init=False)
    others: dict[Var, Cell] = field(init=False)
    ways: dict[int, Gone] = field(default_factory=dict)
    plain: set[type] = field(default_factory=set)

    def __post_init__(self) -> None:
        context = self.state.context(self.frame, self.group)
        self.descending = Descending(self.state, self.forks, self.frame, self.group, context)
        env, objects = self.group.env, self.known.descent.objects
        self.others = {name: cell for name, cell in env.items() if name not in objects}

    def depths(self) -> list[Depth]:
        for cell in self.others.values():
            if type(cell.value) is not Uniform or is_mutable(cell.value):
                raise Unfit
        descent, part = self.known.descent, self.known.part
        env, settings = self.group.env, self.state.settings
        columns: Lists = [env[name].value.items for name in descent.objects]  # type: ignore[union-attr]
        threads, first = self.frame.threads[self.group.rows], 0
        asked = self.known.sets()
        found: list[Depth] = []
        while True:
            depth = Depth(first, threads)
            found.append(depth)
            above: list[int] = []
            below: Lists = [[] for _ in columns]
            for place, (rows, lists) in enumerate(part(len(threads), asked, *columns)):
                if not rows:
                    continue
                gone = self.ways.get(place) or self.gone(place, lists)
                ways = depth.quiet if gone.outcome.is_quiet else depth.own
                ways.append((gone, np.array(rows, dtype=np.int64) + first, lists))
                for call in gone.calls:
                    above += rows
                    for column, at in zip(below, call, strict=True):
                        column += lists[at]
            if not above:
                return found
            if settings.max_width is not None and len(above) > settings.max_width:
                raise Unfit
            if (
                settings.max_depth is not None
                and self.frame.depth + len(found) >= settings.max_depth
            ):
                raise Unfit
            for column in below:
                self.look(column)
            first, threads, columns = depth.end, threads[above], below

    def look(self, column: list[Any]) -> None:
        """Calls get objects of each thread's own, or None."""
        for kind in set(map(type, column)) - self.plain:
            if kind in VALUES or issubclass(kind, SHARED) or hasattr(kind, "__next__"):
                raise Unfit
            self.plain.add(kind)

    def gone(self, place: int, lists: Lists) -> Gone:
        """A way that threads of the run have come to first."""
        outcome = self.known.outcome(place, self.frame.code)
        if outcome is None:
            raise Unfit
        way = self.known.descent.ways[place]
        part = Group(self.group.rows, dict(self.others))
        calls: list[Sequence[int]] = []
        for op in outcome.ops:
            if op.name == "fork":
                calls.append(self.call(outcome.calls[len(calls)], way, lists, part))
            else:
                self.descending.run(op, part)
        env = part.env
        same = {name: env[name] for name, source in outcome.live if source is SAME and name in env}
        self.ways[place] = Gone(way, outcome, same, calls)
        return self.ways[place]

    def call(self, call: Forked, way: Way, lists: Lists, part: Group) -> Sequence[int]:
        """Of a call of the frame's own function, the lists that hold the objects that it gets."""
        given: dict[str, int] = {}
        for name, (kind, number, _) in zip(call.op.args, call.operands, strict=True):
            if kind == "object":
                given[name] = way.found.index(number)
                part.env[name] = Cell(Objects(lists[given[name]]))
        found = self.forks.called(call.op, part, self.descending.context)
        if found is None:
            raise Unfit
        known, args = found
        code, key, _ = known.static
        if code is not self.frame.code or self.frame.late.callee != (id(code), id(key)):  # type: ignore[union-attr]
            raise Unfit
        _, *operands = call.op.args
        names = [""] * (len(args) - len(operands)) + operands
        places: dict[str, int] = {}
        for param, arg, name in zip(known.names, args, names, strict=True):
            if name in given:
                places[param] = given[name]
            elif not self.is_same(param, arg):
                raise Unfit
        return [places[param] for param in self.known.descent.objects]

    def is_same(self, param: Var, arg: Cell) -> bool:
        """Whether a call gets for a parameter what the frame's own have been given."""
        mine, value = self.others.get(param), arg.value
        return mine is not None and type(value) is Uniform and value.obj is mine.value.obj  # type: ignore[union-attr]


@dataclass(slots=True, eq=False, repr=False)
class BottomUp:
    """A recursion on its way up. ``cell`` has the objects that it has begun with; ``at_work`` are
    the rows, of each depth its own or its quiet ones, that run or have run last.
    """

    state: RunState
    frame: Frame
    cell: Cell
    known: Known
    depths: list[Depth]
    at_work: list[Sequence[Taken]] = field(default_factory=list)
    stages: Iterator[Parts] = field(init=False)

    def __post_init__(self) -> None:
        self.stages = self.run()

    def next(self) -> Parts:
        """What runs next, once nothing else is left to."""
        return next(self.stages, [])

    def elsewhere(self) -> list[np.ndarray]:
        """The rows that are to run, and those whose results have been taken."""
        there = set(map(id, self.at_work))
        ways = [ways for depth in self.depths for ways in (depth.own, depth.quiet)]
        return [rows for each in ways if id(each) not in there for _, rows, _ in each]

    def run(self) -> Iterator[Parts]:
        frame, depths = self.frame, self.depths
        frame.threads = np.concatenate([depth.threads for depth in depths])
        self.count()
        below: Returned | None = None
        for place in reversed(range(len(depths))):
            depth = depths[place]
            if depth.quiet and not depth.has_run:
                together = depths[self.first_with(place) : place + 1]
                yield self.quiet(together)
                self.hand_out(together)
            if depth.own:
                results = self.results(depth, below)
                yield self.own(depth, results)
                depth.done = [*self.returned(), *depth.done]
            self.at_work = []
            if place:
                below = self.together(depth)
        self.at_work = [depths[0].own, depths[0].quiet]
        frame.returned = depths[0].done
        self.known.deep.worked()

    def returned(self) -> list[Returned]:
        """What has returned; ``Apart`` where threads have failed."""
        if self.frame.gone is not None:
            raise Apart
        found, self.frame.returned = self.frame.returned, []
        return found

    def count(self) -> None:
        """Count what has been read of objects at each depth, each in a block execution."""
        state, frame = self.state, self.frame
        context = Context(state.services, frame.threads, policy=state.policy)
        for depth in self.depths:
            if depth.first:
                state.steps.begin(frame.code.function, 0, len(depth.threads))
            context.threads = depth.threads
            ways = [gone.way for gone, _, _ in (*depth.own, *depth.quiet)]
            count(state, context, ways, len(depth.threads), self.cell)

    def first_with(self, place: int) -> int:
        """The least of the depths whose quiet rows run with those of a depth."""
        room = self.frame.late.most  # type: ignore[union-attr]
        for at in reversed(range(place + 1)):
            room -= sum(len(rows) for _, rows, _ in self.depths[at].quiet)
            if room < 0 and at < place:
                return at + 1
        return 0

    def quiet(self, depths: Sequence[Depth]) -> Parts:
        """The quiet rows of some depths."""
        ways: dict[int, list[Taken]] = {}
        for depth in depths:
            depth.has_run = True
            for taken in depth.quiet:
                ways.setdefault(id(taken[0]), []).append(taken)
        self.at_work = [depth.quiet for depth in depths]
        parts: Parts = []
        for same in ways.values():
            gone = same[0][0]
            lists = zip(*[lists for _, _, lists in same], strict=True)
            found = [list(chain(*parts)) for parts in lists]
            group = Group(np.concatenate([rows for _, rows, _ in same]), {})
            group.env = gone.env(self.state.context(self.frame, group), found)
            parts.append((gone.outcome.at, group))
        return parts

    def hand_out(self, depths: Sequence[Depth]) -> None:
        """Each depth gets what its quiet rows have returned."""
        for piece in self.returned():
            order = np.argsort(piece.rows)
            rows = piece.rows[order]
            ends = np.searchsorted(rows, [depth.end for depth in depths]).tolist()
            parts = parted(piece, order, [0, *ends])
            cuts = pairwise([0, *ends])
            for depth, part, (start, stop) in zip(depths, parts, cuts, strict=True):
                if start < stop:
                    depth.done.append(part(rows[start:stop]))

    def together(self, depth: Depth) -> Returned:
        """What a depth has returned, as one."""
        pieces = gathered(depth.done, self.state.settings.device)
        depth.done = []
        if len(pieces) > 1:
            raise Apart
        return pieces[0]

    def results(self, depth: Depth, below: Returned | None) -> list[Sequence[Sequence[Cell]]]:
        """For each way what its calls gave: the rows below, in their order."""
        calls = [(call, len(rows)) for gone, rows, _ in depth.own for call in gone.outcome.calls]
        if not calls:
            return [() for _ in depth.own]
        assert below is not None
        places = np.empty(len(below.rows), dtype=np.int64)
        places[below.rows - depth.end] = np.arange(len(places)) if below.at is None else below.at
        ends = [0, *accumulate(k for _, k in calls)]
        positions = [places[start:stop] for start, stop in pairwise(ends)]
        found = [
            self.apart(call, cell)
            for (call, _), cell in zip(
                calls, selecting.several(below.value, positions), strict=True
            )
        ]
        each = iter(found)
        return [[next(each) for _ in gone.calls] for gone, _, _ in depth.own]

    def apart(self, call: Forked, result: Cell) -> Sequence[Cell]:
        """A result, and the parts that it is taken apart into."""
        if call.unpack is None:
            return [result]
        if not is_structural(call.unpack, [result]):
            raise Apart
        return [result, *result.value.children()]  # type: ignore[union-attr]

    def own(self, depth: Depth, results: Sequence[Sequence[Sequence[Cell]]]) -> Parts:
        """The rows of a depth that run at theirs."""
        self.at_work = [depth.own]
        parts: Parts = []
        for (gone, rows, lists), given in zip(depth.own, results, strict=True):
            group = Group(rows, {})
            group.env = gone.env(self.state.context(self.frame, group), lists, given)
            if gone.calls:  # they have come to a join
                self.state.begin(self.frame, gone.way.end, group)
            parts.append((gone.outcome.at, group))
        return parts
