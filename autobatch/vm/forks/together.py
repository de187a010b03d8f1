"""Running forked calls: those of one function in one frame, over the rows of all their threads.

In: groups with forked calls. Out: for each call the returned groups, and where in them each row's
result is. A frame's rows map to threads many to one; as many rows run at once as ``max_width``
allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from autobatch.batching.operations import Scope
from autobatch.errors import AutobatchError
from autobatch.random.paths import Ledger, Paths
from autobatch.values.cells import FORK, Cell, Container, Objects, Uniform
from autobatch.values.heap import likeness, merging, selecting, walks
from autobatch.vm.calling import Returned
from autobatch.vm.code import Code
from autobatch.vm.entering import Entry
from autobatch.vm.failing import Failed, Failures
from autobatch.vm.forks.effects import not_pure
from autobatch.vm.forks.noting import KEYS, keys_of
from autobatch.vm.forks.pending import entries
from autobatch.vm.groups import Group, restricted
from autobatch.vm.late import MOST, Apart, Late
from autobatch.vm.state import Frame, RunState

Run = Callable[[Entry, list[Group], np.ndarray], list[Returned]]
"""The engine's: a frame that begins with several groups, over rows of the given threads."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Places:
    """For each row of a frame, the returned group that it is in and its row there; else -1.

    ``pieces`` is None where all rows are in one, as at most joins: then nothing has to be told
    apart, and a TreeLSTM on 16 trees takes 0.93 of the time.
    """

    returned: Sequence[Returned]
    pieces: np.ndarray | None
    rows: np.ndarray

    @classmethod
    def of(cls, returned: Sequence[Returned], size: int) -> Places:
        if len(returned) == 1 and len(returned[0].rows) == size:
            (piece,) = returned
            rows = np.empty(size, dtype=np.int64)
            rows[piece.rows] = np.arange(size) if piece.at is None else piece.at
            return cls(returned, None, rows)
        pieces, rows = np.full(size, -1), np.full(size, -1)
        for index, piece in enumerate(returned):
            pieces[piece.rows] = index
            rows[piece.rows] = np.arange(len(piece.rows)) if piece.at is None else piece.at
        return cls(returned, pieces, rows)


@dataclass(slots=True, eq=False, repr=False)
class ForkedCall:
    """A forked call at its join, of the group ``group``.

    Once it has run, row ``i`` has its result in row ``rows[i]`` of ``returned[pieces[i]]``; -1 if
    it was dropped. ``pieces`` is None where none was, and one group has returned.
    """

    group: int
    known: Container
    returned: Sequence[Returned] = ()
    pieces: np.ndarray | None = None
    rows: np.ndarray = field(init=False)

    @property
    def callee(self) -> tuple[int, int]:
        code, key, _ = self.known.static
        return id(code), id(key)

    def place(self, places: Places, first: int, k: int, home: np.ndarray | None) -> None:
        """Learn where the results are, those of the frame's rows from ``first`` on.

        These are of the rows ``home`` out of ``k``; None: of all.
        """
        self.returned = places.returned
        last = first + (k if home is None else len(home))
        pieces, rows = places.pieces, places.rows[first:last]
        if pieces is not None:
            pieces = pieces[first:last]
        if home is not None:
            own = np.zeros_like(rows) if pieces is None else pieces
            pieces, rows = spread(own, home, k), spread(rows, home, k)
        self.pieces, self.rows = pieces, rows

    def spared(self) -> np.ndarray:
        """The rows that were not dropped."""
        if self.pieces is None:
            return np.arange(len(self.rows))
        return np.flatnonzero(self.pieces >= 0)

    def keep(self, rows: np.ndarray) -> None:
        """Leave no other rows."""
        self.rows = self.rows[rows]
        if self.pieces is not None:
            self.pieces = self.pieces[rows]

    def source(self, rows: np.ndarray) -> Cell:
        """What holds the results of some rows, which one returned group has."""
        piece = 0 if self.pieces is None else int(self.pieces[rows[0]])
        return self.returned[piece].value

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Where in that they are; ``rows`` are in ascending order."""
        return self.rows if len(rows) == len(self.rows) else self.rows[rows]

    def result(self, rows: np.ndarray) -> Cell:
        """The results of some rows."""
        (cell,) = selecting.select([self.source(rows)], self.places(rows))
        return cell


class Guarded:
    """What ``Together.guarded`` enters."""

    __slots__ = ("guard", "together")

    def __init__(self, together: Together) -> None:
        self.together = together

    def __enter__(self) -> None:
        state = self.together.state
        self.together.active += 1
        self.guard, state.guard = state.guard, not_pure

    def __exit__(self, *failure: object) -> None:
        self.together.active -= 1
        self.together.state.guard = self.guard


@dataclass(slots=True, eq=False, repr=False)
class Together:
    """The forked calls of a run at work; ``scopes`` are those of their functions.

    ``active`` is how many joins are at work, one within another; ``alone`` says that calls run for
    the exceptions of threads, one by one; ``asks`` that the calls at work may write what they are
    given, where that is no number.
    """

    state: RunState
    failures: Failures
    run: Run
    scopes: Mapping[tuple[int, int], tuple[Scope, Any]]
    active: int = 0
    alone: bool = False
    asks: bool = False

    def run_calls(self, frame: Frame, groups: Sequence[Group]) -> list[ForkedCall]:
        """Run the forked calls of all groups, those of one function together."""
        found = [
            ForkedCall(index, known)
            for index, group in enumerate(groups)
            for _, known in entries(group)
            if known.type is FORK
        ]
        by_callee: dict[tuple[int, int], list[ForkedCall]] = {}
        for call in found:
            by_callee.setdefault(call.callee, []).append(call)
        with self.guarded():
            for same in by_callee.values():
                for together in self.within_width(same, groups):
                    self.run_together(frame, groups, together)
        return found

    def guarded(self) -> Guarded:
        """Forked calls run, which must have no effect that others can see."""
        return Guarded(self)

    def within_width(
        self, same: list[ForkedCall], groups: Sequence[Group]
    ) -> Iterator[list[ForkedCall]]:
        """Calls in order, as many at once as ``max_width`` rows allow."""
        limit = self.state.settings.max_width
        together: list[ForkedCall] = []
        width = 0
        for call in same:
            k = groups[call.group].k
            if together and limit is not None and width + k > limit:
                yield together
                together, width = [], 0
            together.append(call)
            width += k
        yield together

    def run_together(
        self, frame: Frame, groups: Sequence[Group], together: list[ForkedCall]
    ) -> None:
        """One frame for the calls of one function; each learns where its results are."""
        starting: list[Group] = []
        keys: list[np.ndarray] = []
        threads: list[np.ndarray] = []
        homes: list[np.ndarray | None] = []
        start = 0
        for call in together:
            own = frame.threads[groups[call.group].rows]
            home = None
            env: Any = dict(call.known.cells)  # type: ignore[arg-type]
            if frame.gone is not None and not frame.gone.spares(own).all():
                home = np.flatnonzero(frame.gone.spares(own))
                env = restricted(Group(np.arange(len(own)), env), home, list(env)).env
                own = own[home]
            homes.append(home)
            if not len(own):
                continue
            if KEYS in env:
                keys.append(keys_of(env.pop(KEYS)))
            starting.append(Group(np.arange(start, start + len(own)), env))
            threads.append(own)
            start += len(own)
        returned = self.begun(frame, together[0], starting, keys, threads) if starting else []
        places, first = Places.of(returned, start), 0
        for call, home in zip(together, homes, strict=True):
            k = groups[call.group].k
            call.place(places, first, k, home)
            first += k if home is None else len(home)

    def begun(
        self,
        frame: Frame,
        call: ForkedCall,
        starting: Sequence[Group],
        keys: Sequence[np.ndarray],
        threads: Sequence[np.ndarray],
    ) -> list[Returned]:
        """Run the frame of calls of the function that ``call`` calls; what they return."""
        entry = self.entry(frame, call)
        if keys:
            entry.paths = Paths.over(Ledger.of(np.concatenate(keys)))
        else:
            entry.late = self.late(frame, entry.code, call.callee, starting)
        one = at_once(starting)
        groups = [*starting] if one is None else [one]
        asks, self.asks = self.asks, bool(entry.code.purity.writes)
        try:
            returned = self.frame(entry, groups, np.concatenate(threads))
        finally:
            self.asks = asks
        return gathered(returned, self.state.settings.device)

    def frame(self, entry: Entry, groups: list[Group], threads: np.ndarray) -> list[Returned]:
        """Run the frame of calls; depth by depth, if it turns out that it must not go bottom up."""
        late = entry.late
        if late is None or late.apart or len(groups) > 1:
            return self.run(entry, groups, threads)
        before, (group,) = Failed.of(self.failures), groups
        again = Group(group.rows, dict(group.env))
        try:
            return self.run(entry, groups, threads)
        except (Apart, AutobatchError):
            if late.stages is None:
                raise
        finally:
            late.stages = None
        before.restore(self.failures)
        entry.late = Late(late.callee, late.blocks, late.above, late.most, apart=True)
        return self.run(entry, [again], threads)

    def entry(self, frame: Frame, call: ForkedCall) -> Entry:
        """What a forked call runs; its parameters are in the groups that the frame begins with."""
        code, _, frame.span = call.known.static
        scope, _ = self.scopes[call.callee]
        return Entry(code, scope, {})

    def late(
        self, frame: Frame, code: Code, callee: tuple[int, int], starting: Sequence[Group]
    ) -> Late | None:
        """For what may wait for deeper calls; None where all is to run in its turn."""
        settings = self.state.settings
        if settings.schedule is not None or self.alone:
            return None
        if not code.late_blocks and not (code.descending and have_objects(starting)):
            return None
        limit = settings.max_depth
        shallow = limit is None or 2 * frame.depth < limit  # guests are not as deep as it seems
        most = MOST if settings.max_width is None else min(MOST, settings.max_width)
        apart = frame.late is not None and frame.late.apart
        return Late(callee, code.late_blocks, frame if shallow else None, most, apart=apart)


def at_once(groups: Sequence[Group]) -> Group | None:
    """Groups that begin a frame as one, if their variables hold objects, or the same for all."""
    if len(groups) == 1:
        return groups[0]
    env: dict[str, Cell] = {}
    known: dict[tuple[int, ...], Cell] = {}
    names = groups[0].env.keys()
    for group in groups:
        if group.env.keys() != names:
            return None
    for name, cell in groups[0].env.items():
        cells = [group.env[name] for group in groups]
        key = tuple(map(id, cells))
        if key in known:
            env[name] = known[key]
            continue
        first = cell.value
        values: list[Any] = [each.value for each in cells]
        if type(first) is Uniform and first.shared:
            for value in values:
                if type(value) is not Uniform or not value.shared or value.obj is not first.obj:
                    return None
            env[name] = cell
            continue
        items: list[Any] = []
        for value in values:
            if type(value) is not Objects or value.lists is not None or value.ties:
                return None
            items += value.items
        env[name] = known[key] = Cell(Objects(items))
    return Group(np.concatenate([group.rows for group in groups]), env)


def have_objects(groups: Sequence[Group]) -> bool:
    """Whether calls are given objects."""
    return any(type(cell.value) is Objects for group in groups for cell in group.env.values())


def gathered(returned: list[Returned], device: torch.device) -> list[Returned]:
    """The same with those that are alike as one, so that what gets their results is one group."""
    if len(returned) < 2:
        return returned
    first = returned[0].value.value
    if all(selecting.are_plain_rows(first, piece.value.value) for piece in returned[1:]):
        rows = np.concatenate([piece.rows for piece in returned])
        return [Returned(rows, Cell(merging.plain_rows([own_rows(p).value for p in returned])))]
    alike: dict[Any, list[Returned]] = {}
    for piece in returned:
        walks.settle([piece.value])
        alike.setdefault(likeness.alike([piece.value], len(piece.rows)), []).append(piece)
    return [joined(pieces, device) for pieces in alike.values()]


def own_rows(piece: Returned) -> Cell:
    """What the rows of a returned group have, and no others."""
    if piece.at is None:
        return piece.value
    (value,) = selecting.select([piece.value], piece.at)
    return value


def joined(pieces: list[Returned], device: torch.device) -> Returned:
    """Several returned groups, which are alike, as one."""
    if len(pieces) == 1:
        return pieces[0]
    values = [[own_rows(piece)] for piece in pieces]
    (value,) = merging.merge(values, [len(piece.rows) for piece in pieces], device)
    return Returned(np.concatenate([piece.rows for piece in pieces]), value)


def spread(values: np.ndarray, home: np.ndarray, k: int) -> np.ndarray:
    """Values for some of ``k`` rows; -1 for the others."""
    found = np.full(k, -1)
    found[home] = values
    return found


def results(calls: Sequence[ForkedCall], rows: np.ndarray) -> list[Cell]:
    """What the calls of a group have given some of its rows; one returned group has all of it."""
    source = calls[0].source(rows)
    if any(call.source(rows) is not source for call in calls):
        return [call.result(rows) for call in calls]
    return selecting.several(source, [call.places(rows) for call in calls])


def classes(forked: Sequence[ForkedCall]) -> list[np.ndarray]:
    """The rows of a group by where their results are; those that were dropped are in none."""
    if all(call.pieces is None for call in forked):
        return [np.arange(len(forked[0].rows))]
    found = np.stack([np.zeros_like(c.rows) if c.pieces is None else c.pieces for c in forked])
    if len(found[0]) and (found == found[:, :1]).all():
        return [np.arange(found.shape[1])] if found[0, 0] >= 0 and (found >= 0).all() else []
    kept = np.flatnonzero((found >= 0).all(axis=0))
    _, inverse = np.unique(found[:, kept], axis=1, return_inverse=True)
    inverse = inverse.reshape(-1)
    return [kept[inverse == label] for label in range(inverse.max() + 1)] if len(kept) else []
