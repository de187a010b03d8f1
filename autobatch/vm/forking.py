"""Fork-join calls: threads note their calls, and where they join, all of them run as one.

In: groups that have come to a join, with the calls that they forked. Out: the groups with the
results in place. A forked call is a container of its parameters' cells, so it moves with its
threads; until the join, it stands where its result is to be. A frame runs the calls of one
function for all threads: its rows map to threads many to one.

Only pure calls are forked; under a seed they may draw, by keys of their own, made where they are
forked, so that it does not matter when they run. What is found out only when it runs is undone:
before its first visible effect a forked call raises ``NotPure``, and the calls run again, one by
one. Where a thread fails, its calls run again for it alone, in program order, to find its
exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from autobatch import errors
from autobatch.batching import calls, operations, packed
from autobatch.batching.compat import on_host
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.effects import effect_of
from autobatch.batching.operations import CAPTURED, Scope
from autobatch.batching.starring import Differing
from autobatch.ir.ops import INPLACE
from autobatch.ir.program import Branch, Call, Op
from autobatch.random.paths import Ledger, Paths
from autobatch.source import Span
from autobatch.vm import heap
from autobatch.vm.blocks import Parts
from autobatch.vm.calling import Returned, carry, reach, relinked
from autobatch.vm.entering import Entry, Forking, entered
from autobatch.vm.failing import Errors, Failures
from autobatch.vm.groups import CARRIED, FORKED, Group, restricted
from autobatch.vm.library import Code
from autobatch.vm.own_code import OwnCode
from autobatch.vm.purity import may_change
from autobatch.vm.state import Frame, Gone, RunState
from autobatch.vm.values import (
    BOX,
    CLOSURE,
    DEFERRAL,
    FORK,
    PENDING,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
)
from autobatch.vm.within import Within

Run = Callable[[Entry, Sequence[Group], np.ndarray], list[Returned]]
"""The engine's: a frame that begins with several groups, over rows of the given threads."""


KEYS = "%keys"
"""Holds the keys by which a forked call draws, among its parameters."""


class NotPure(BaseException):
    """A forked call is about to have an effect that others can see; ``writes``: on arguments."""

    def __init__(self, writes: bool) -> None:
        super().__init__()
        self.writes = writes


@dataclass(slots=True, eq=False)
class ForkedCall:
    """A forked call at its join, of the group ``group``.

    Row ``i`` has its result in row ``rows[i]`` of ``returned[pieces[i]]``; -1 if it was dropped.
    """

    group: int
    known: Container
    pieces: np.ndarray
    rows: np.ndarray
    returned: list[Returned] = field(default_factory=list)

    @classmethod
    def of(cls, group: int, known: Container, k: int) -> ForkedCall:
        return cls(group, known, np.full(k, -1), np.full(k, -1))

    @property
    def callee(self) -> tuple[int, int]:
        code, key, _ = self.known.static
        return id(code), id(key)

    def result(self, rows: np.ndarray) -> Cell:
        """The results of some rows, which one returned group has."""
        value = self.returned[int(self.pieces[rows[0]])].value
        (cell,) = heap.select([value], self.rows[rows])
        return cell


@dataclass(slots=True, eq=False)
class Forks:
    """The forked calls of a run. ``active`` is how many joins are at work, one within another."""

    state: RunState
    failures: Failures
    within: Within
    run: Run
    active: int = 0
    own_code: OwnCode = field(init=False)
    scopes: dict[tuple[int, int], tuple[Scope, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seeded = self.state.settings.seed is not None
        self.own_code = OwnCode(self.state.library.purity_of, self.within.is_pure, seeded)

    # Forking

    def note(self, frame: Frame, op: Op, group: Group, context: Context) -> None:
        """Run a ``fork`` or ``defer`` operation: the group remembers it until it joins."""
        context.span = op.span
        if op.name == "defer":
            self.defer(frame, op, group, context)
            return
        callee, *cells = operations.operands(context, op.args, group.env)
        later = frame.code.after(self.state.tally.block[1], op)
        kept = [
            cell for name, cell in group.env.items() if name in later or name in (CARRIED, CAPTURED)
        ]
        try:
            args, kwargs = operations.arguments(context, op.attr, callee, cells)
        except Differing as differing:
            at, frame.span = self.state.tally.block, op.span  # for checks that are looked at late
            pieces = self.parted(context, op, callee, differing, kept)
            self.state.tally.block = at
            group.env[op.outs[0]] = self.within.joined(context, pieces)
            return
        context.leave()
        target = calls.resolve(callee, args, kwargs)
        context.flush()
        entry = self.forkable(context, target, kept)
        if entry is None:
            group.env[op.outs[0]] = self.within.invoke(context, callee, args, kwargs, True)
            return
        params = dict(zip(entry.env, snapshot(entry.env.values()), strict=True))
        if context.paths is not None:
            params[KEYS] = keys_cell(context.paths.opened())
        known = Container(FORK, params, self.static(entry, target, op.span))
        group.env[op.outs[0]] = remember(group, known)

    def parted(
        self, context: Context, op: Op, callee: Cell, differing: Differing, kept: Sequence[Cell]
    ) -> list[Returned]:
        """A call whose arguments differ in number or name, at once, for each kind of threads.

        One that does more than return a value is refused: it would have copies.
        """
        context.leave()
        context.flush()
        pieces: list[Returned] = []
        for rows in differing.parts:
            part = context.restricted(rows)
            positions = np.array(rows, dtype=np.int64)
            own, *cells = heap.select([callee, *differing.cells, *kept], positions)
            alive = cells[len(differing.cells) :]
            cells = cells[: len(differing.cells)]
            try:
                args, kwargs = operations.arguments(part, op.attr, own, cells)
            except Differing as again:
                found = self.parted(part, op, own, again, alive)
            else:
                target = calls.resolve(own, args, kwargs)
                if self.forkable(part, target, alive) is None:
                    raise differing
                found = self.within.framed(part, target, opens=True)
            pieces += [replace(piece, rows=positions[piece.rows]) for piece in found]
        return pieces

    def watch(self, context: Context, entry: Entry) -> None:
        """A call within forked ones: it may write what it gets only where that was looked at.

        What it captures it may not write at all: forked calls have copies of that.
        """
        if CAPTURED in entry.env and not entry.purity.is_pure:
            not_pure(writes=True)
        frame = self.failures.frames[-1]
        if entry.purity.writes and context.span not in frame.code.known:
            not_pure(writes=True)

    def watch_opaque(self, frame: Frame, call: Call, target: calls.Target) -> None:
        """The same of what is no program function: nothing was known of it when it was judged."""
        if call.span not in frame.code.known and may_change(target.callee):
            not_pure(writes=True)

    def forkable(
        self, context: Context, target: calls.Target, kept: Sequence[Cell]
    ) -> Entry | None:
        """What a call enters, if it can run out of turn; ``kept`` is what its caller goes on with.

        It cannot if it may hand back what the caller keeps: its result would be a copy. A number
        that is a row of a packed value is handed over by itself.
        """
        if target.effect != "program":
            return None
        seeded = context.paths is not None
        kind: Forking = "drawing" if seeded else "silent"
        entry = entered(self.state.library, context, target, kind, self.state.judgements)
        purity = entry.purity
        written = [entry.env[name] for name in purity.writes]
        if not purity.may_fork(seeded) or reach(written) or holds_objects(written):
            return None
        for name in purity.returns:
            entry.env[name] = packed.by_value(entry.env[name])
        handed_back = [entry.env[name] for name in purity.returns]
        if purity.outer and CAPTURED in entry.env:
            handed_back += captured(entry.env[CAPTURED])
        return None if carry(handed_back, kept) else entry

    def static(self, entry: Entry, target: calls.Target, span: Span) -> tuple[Any, ...]:
        """What forked calls have in common if they are alike: code, closure, place."""
        callee = target.callee
        key = callee.static if isinstance(callee, Container) else callee
        self.scopes[id(entry.code), id(key)] = (entry.scope, key)
        return (entry.code, key, span)

    def defer(self, frame: Frame, op: Op, group: Group, context: Context) -> None:
        """Keep an operation on what a forked call has yet to give; run it at once if it has."""
        name, attr = op.attr
        plain = Op(name, op.outs, op.args, attr, op.span)
        operands = operations.operands(context, op.args, group.env)
        if not any(map(is_pending, operands)):
            operations.execute(context, frame.scope, plain, group.env)
            return
        outs = [Cell(Container(PENDING, [])) for _ in op.outs]
        remember(group, Container(DEFERRAL, [*operands, *outs], plain))
        group.env.update(zip(op.outs, outs, strict=True))

    def is_due(self, op: Op | Branch, group: Group) -> bool:
        """Whether a group's forked calls come first, since what comes next may have effects."""
        pending = FORKED in group.env
        if not pending and not self.active:
            return False
        if isinstance(op, Branch):
            shown = self.own_code.may_ask_truth(group.env[op.condition])
        else:  # a property and a method are entered, and so seen, where no call is pending
            shown = (pending or op.name != "getattr") and self.own_code.may_show(op, group.env)
            shown = shown or (pending and writes_shared(op, group.env))
        if shown and self.active:
            raise NotPure(writes=False)
        return shown

    def drained(self, frame: Frame, group: Group, context: Context) -> Group:
        """The group with its forked calls run, one after the other, within a block."""
        context.flush()
        group.checks = []
        span, at = frame.span, self.state.tally.block
        while group.k and FORKED in group.env:
            remaining = entries(group)
            if not remaining:
                del group.env[FORKED]
            elif remaining[0][1].type is FORK:
                group = self.call_within(frame, group)
            else:
                group = self.run_first(frame, group)
        frame.span, self.state.tally.block = span, at
        return group

    def call_within(self, frame: Frame, group: Group) -> Group:
        """Run the first forked call of a group, to one result for the threads that it leaves."""
        call = ForkedCall.of(0, entries(group)[0][1], group.k)
        self.run_together(frame, [group], [call])
        kept = np.flatnonzero(call.pieces >= 0)
        if not len(kept):
            return restricted(group, kept, [])
        if len(kept) < group.k:
            group = restricted(group, kept, list(group.env))
            call.pieces, call.rows = call.pieces[kept], call.rows[kept]
        pieces = [Returned(rows, call.result(rows)) for rows in classes([call])]
        result = self.within.joined(self.state.context(frame, group), pieces)
        (first, _), *rest = entries(group)
        return with_entries(group, {id(first): result}, [cell for cell, _ in rest])

    # Joining

    def join(self, frame: Frame, target: int, groups: Sequence[Group]) -> Parts:
        """Run the forked calls of groups that have come to a join; they go on at ``target``."""
        parts: Parts = [(target, group) for group in groups if FORKED not in group.env]
        waiting = [group for group in groups if FORKED in group.env]
        if not waiting:
            return parts
        before = Failed.of(self.failures)
        try:
            forked = self.run_calls(frame, waiting)
        except NotPure as found:
            if self.active:
                raise
            before.restore(self.failures)
            self.give_up(waiting, found)
            for group in waiting:
                parts += self.in_order(frame, target, group)
            return parts
        if self.failures.errors is not before.errors and not self.active:
            self.find_exceptions(frame, waiting, before)
        for index, group in enumerate(waiting):
            own = [call for call in forked if call.group == index]
            parts += self.resolved(frame, target, group, own)
        return parts

    def run_calls(self, frame: Frame, groups: Sequence[Group]) -> list[ForkedCall]:
        """Run the forked calls of all groups, those of one function together."""
        found = [
            ForkedCall.of(index, known, group.k)
            for index, group in enumerate(groups)
            for _, known in entries(group)
            if known.type is FORK
        ]
        by_callee: dict[tuple[int, int], list[ForkedCall]] = {}
        for call in found:
            by_callee.setdefault(call.callee, []).append(call)
        guard = self.state.guard
        self.active += 1
        self.state.guard = not_pure
        try:
            for same in by_callee.values():
                for together in self.within_width(same, groups):
                    self.run_together(frame, groups, together)
        finally:
            self.active -= 1
            self.state.guard = guard
        return found

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
        homes: list[np.ndarray] = []
        start = 0
        for call in together:
            own = frame.threads[groups[call.group].rows]
            home = np.arange(len(own))
            env: Any = dict(call.known.cells)  # type: ignore[arg-type]
            if frame.gone is not None and not frame.gone.spares(own).all():
                home = np.flatnonzero(frame.gone.spares(own))
                env = restricted(Group(np.arange(len(own)), env), home, list(env)).env
            if KEYS in env:
                keys.append(keys_of(env.pop(KEYS)))
            starting.append(Group(np.arange(start, start + len(home)), env))
            threads.append(own[home])
            homes.append(home)
            start += len(home)
        entry = self.entry(frame, together[0])
        if keys:
            entry.paths = Paths.over(Ledger.of(np.concatenate(keys)))
        returned = self.run(entry, starting, np.concatenate(threads))
        pieces, rows = places(returned, start)
        for call, home, group in zip(together, homes, starting, strict=True):
            call.returned = returned
            if len(home):
                first, last = group.rows[0], group.rows[-1] + 1
                call.pieces[home], call.rows[home] = pieces[first:last], rows[first:last]

    def entry(self, frame: Frame, call: ForkedCall) -> Entry:
        """What a forked call runs; its parameters are in the groups that the frame begins with."""
        code, _, frame.span = call.known.static
        scope, _ = self.scopes[call.callee]
        return Entry(code, scope, {})

    # Results

    def resolved(self, frame: Frame, target: int, group: Group, own: Sequence[ForkedCall]) -> Parts:
        """The group with its calls' results in place, in parts if they are not alike."""
        parts: Parts = []
        for rows in classes(own):
            part = group
            if len(rows) < group.k:
                part = restricted(group, rows, list(group.env))
            try:
                parts.append((target, self.filled(frame, part, [c.result(rows) for c in own])))
            except Exception:  # of a deferred operation; which comes first, the order tells
                parts += self.in_order(frame, target, part)
        return parts

    def filled(self, frame: Frame, group: Group, results: Sequence[Cell]) -> Group:
        """The group with results in place of its forked calls, deferred operations run."""
        context = self.state.context(frame, group)
        known: dict[int, Cell] = {}
        waiting = iter(results)
        for cell, entry in entries(group):
            if entry.type is FORK:
                known[id(cell)] = next(waiting)
            else:
                self.run_deferred(frame, context, entry, known)
        context.flush()
        context.leave()
        return without_entries(group, known)

    def run_deferred(
        self, frame: Frame, context: Context, entry: Container, known: dict[int, Cell]
    ) -> None:
        """Run a deferred operation; ``known`` learns what stands for its outs."""
        op: Op = entry.static
        cells = list(entry.children())
        operands = [relinked(cell, known, {}) for cell in cells[: len(op.args)]]
        env = dict(zip(op.args, operands, strict=True))
        operations.execute(context, frame.scope, op, env)
        for out, cell in zip(op.outs, cells[len(op.args) :], strict=True):
            known[id(cell)] = env[out]

    # One by one

    def in_order(self, frame: Frame, target: int, group: Group) -> Parts:
        """A group's forked calls and deferred operations, one after the other."""
        parts: Parts = []
        waiting = [group]
        while waiting:
            group = self.failures.remaining(frame, waiting.pop())
            if not group.k:
                continue
            remaining = entries(group)
            if not remaining:
                del group.env[FORKED]
                parts.append((target, group))
            elif remaining[0][1].type is FORK:
                waiting += self.call_first(frame, group)
            else:
                waiting.append(self.run_first(frame, group))
        return parts

    def call_first(self, frame: Frame, group: Group) -> list[Group]:
        """Run the first forked call of a group by itself."""
        call = ForkedCall.of(0, entries(group)[0][1], group.k)
        self.run_together(frame, [group], [call])
        parts: list[Group] = []
        for rows in classes([call]):
            part = group
            if len(rows) < group.k:
                part = restricted(group, rows, list(group.env))
            first, *rest = entries(part)
            known = {id(first[0]): call.result(rows)}
            parts.append(with_entries(part, known, [cell for cell, _ in rest]))
        return parts

    def run_first(self, frame: Frame, group: Group) -> Group:
        """Run the first entry of a group, a deferred operation, for the threads it leaves."""
        while group.k:
            first, *rest = entries(group)
            context = self.state.context(frame, group)
            frame.span = first[1].static.span
            known: dict[int, Cell] = {}
            try:
                self.run_deferred(frame, context, first[1], known)
                context.flush()
                context.leave()
            except Exception as error:
                failure = error if isinstance(error, RowsFail) else self.blamed(frame, group, error)
                group = self.failures.dropped(frame, group, context, failure)
            else:
                return with_entries(group, known, [cell for cell, _ in rest])
        return group

    def blamed(self, frame: Frame, group: Group, error: Exception) -> RowsFail:
        """The lowest thread for which a deferred operation fails when it runs alone."""
        threads = frame.threads[group.rows]
        for row in np.argsort(threads, kind="stable"):
            part = restricted(group, np.array([row]), list(group.env))
            context = self.state.context(frame, part)
            try:
                self.run_deferred(frame, context, entries(part)[0][1], {})
                context.flush()
                context.leave()
            except RowsFail as failure:
                return RowsFail(int(row), failure.error, span=failure.span)
            except Exception as alone:
                return RowsFail(int(row), alone)
        return RowsFail(int(np.argmin(threads)), error)

    # Failures

    def first_fail(self, frame: Frame, group: Group, rows: np.ndarray) -> None:
        """Rows are to fail: what they forked before may fail first, in program order."""
        if FORKED in group.env and not self.active:
            alone = restricted(group, rows, list(group.env))
            self.in_order(frame, 0, alone)

    def find_exceptions(self, frame: Frame, groups: Sequence[Group], before: Failed) -> None:
        """Run failing threads again, by themselves and in program order; keep what they raise."""
        found = Failed.of(self.failures)
        new = self.failures.since(before.errors)
        threads = [t for t, error in new.items() if not isinstance(error, errors.StepLimitError)]
        before.restore(self.failures)
        for group in groups:
            rows = np.flatnonzero(np.isin(frame.threads[group.rows], threads))
            if len(rows):
                alone = restricted(group, rows, list(group.env))
                self.in_order(frame, 0, alone)
        if self.failures.isolate:
            again = self.failures.since(before.errors)
            kept = {t: e for t, e in again.items() if not isinstance(e, errors.StepLimitError)}
            self.failures.put({**before.errors, **new, **kept})
        elif self.failures.errors is before.errors:
            found.restore(self.failures)

    def give_up(self, groups: Sequence[Group], found: NotPure) -> None:
        """Calls turned out to have effects: their functions are not forked again."""
        for group in groups:
            for _, known in entries(group):
                if known.type is not FORK:
                    continue
                code: Code = known.static[0]
                self.state.library.turns_out_impure(code)
                if found.writes and reach(known.children()):
                    raise impure(known.static[2])


@dataclass(frozen=True, slots=True)
class Failed:
    """What had failed at some time, to go back to."""

    errors: Errors
    gone: tuple[tuple[Frame, Gone | None], ...]

    @classmethod
    def of(cls, failures: Failures) -> Failed:
        return cls(failures.errors, tuple((frame, frame.gone) for frame in failures.frames))

    def restore(self, failures: Failures) -> None:
        failures.errors = self.errors
        for frame, gone in self.gone:
            frame.gone = gone


def writes_shared(op: Op, env: dict[str, Cell]) -> bool:
    """Whether an operation is a write to what all threads share, which would be noted."""
    cells = [env[name] for name in op.args]
    if op.name == "call":
        callee, *args = cells
        method = callee.value
        if type(method) is Container:
            args = [*method.children(), *args]
        called = getattr(method, "obj", getattr(method, "static", None))
        if "out" not in op.attr.keywords and effect_of(called) != "write":
            return False
        cells = args
    elif op.name in ("setattr", "setitem", *INPLACE):
        cells = cells[:1]
    else:
        return False
    return any(type(cell.value) is Uniform and cell.value.shared for cell in cells)


def not_pure(writes: bool) -> None:
    """The guard of forked calls."""
    raise NotPure(writes)


def impure(span: Span) -> errors.UnsupportedError:
    return errors.UnsupportedError(
        errors.Diagnostic(
            "This call may change its arguments, which became clear only while it ran.",
            span,
            "it ran together with other calls",
            hints=('call with fork="off", so that calls run one after the other.',),
            code="fork-impure",
        )
    )


def keys_cell(paths: Paths) -> Cell:
    """The keys of forked calls' paths, which move with their threads."""
    keys, _ = paths.here()
    return Cell(Column(torch.from_numpy(keys), "int"))


def keys_of(cell: Cell) -> np.ndarray:
    value = cell.value
    assert type(value) is Column
    return on_host(value.data)


def holds_objects(cells: Iterable[Cell]) -> bool:
    """Whether threads have objects of their own in some cells: a write to them is seen at once."""
    return any(type(cell.value) is Objects for cell in heap.reached(cells))


def snapshot(cells: Any) -> list[Cell]:
    """Cells as they are now, whatever their group changes until the join."""
    return heap.copied(list(cells), lambda value: value)


def captured(boxes: Cell) -> list[Cell]:
    """What captured variables hold that is no function of the program's."""
    found: list[Cell] = []
    seen: set[int] = set()
    waiting = [boxes]
    while waiting:
        cell = waiting.pop()
        value = cell.value
        if id(cell) in seen:
            continue
        seen.add(id(cell))
        if cell is boxes or (type(value) is Container and value.type in (BOX, CLOSURE)):
            waiting += value.children()  # type: ignore[union-attr]
        else:
            found.append(cell)
    return found


def is_pending(cell: Cell) -> bool:
    """Whether it is a result yet to come, or a list or tuple that holds one."""
    value = cell.value
    if type(value) is not Container:
        return False
    if value.type in (list, tuple):
        return any(map(is_pending, value.children()))
    return value.type in (FORK, PENDING)


def remember(group: Group, entry: Container) -> Cell:
    """Add to what a group has to run when it joins."""
    cell = Cell(entry)
    held = group.env.get(FORKED)
    before = [] if held is None else list(held.value.children())  # type: ignore[union-attr]
    group.env[FORKED] = Cell(Container(tuple, [*before, cell]))
    return cell


def entries(group: Group) -> list[tuple[Cell, Container]]:
    """A group's forked calls and deferred operations, in program order."""
    held = group.env[FORKED].value
    assert type(held) is Container
    return [(cell, cell.value) for cell in held.children()]  # type: ignore[misc]


def without_entries(group: Group, known: dict[int, Cell]) -> Group:
    """The group with cells in place of those that stood for them; nothing is left to join."""
    group = with_entries(group, known, [])
    del group.env[FORKED]
    return group


def with_entries(group: Group, known: dict[int, Cell], rest: Sequence[Cell]) -> Group:
    """The same, with what is left to run."""
    memo: dict[int, Cell] = {}
    kept = Cell(Container(tuple, [relinked(cell, known, memo) for cell in rest]))
    env = {name: relinked(cell, known, memo) for name, cell in group.env.items() if name != FORKED}
    return replace(group, env={**env, FORKED: kept})


def places(returned: Sequence[Returned], size: int) -> tuple[np.ndarray, np.ndarray]:
    """For each row of a frame, the returned group that it is in and its row there; else -1."""
    pieces, rows = np.full(size, -1), np.full(size, -1)
    for index, piece in enumerate(returned):
        pieces[piece.rows] = index
        rows[piece.rows] = np.arange(len(piece.rows))
    return pieces, rows


def classes(forked: Sequence[ForkedCall]) -> list[np.ndarray]:
    """The rows of a group by where their results are; those that were dropped are in none."""
    found = np.stack([call.pieces for call in forked])
    if len(found[0]) and (found == found[:, :1]).all():
        return [np.arange(found.shape[1])] if found[0, 0] >= 0 and (found >= 0).all() else []
    kept = np.flatnonzero((found >= 0).all(axis=0))
    _, inverse = np.unique(found[:, kept], axis=1, return_inverse=True)
    inverse = inverse.reshape(-1)
    return [kept[inverse == label] for label in range(inverse.max() + 1)] if len(kept) else []
