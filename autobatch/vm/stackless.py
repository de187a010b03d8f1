"""The stackless engine: a program counter, thread groups, a queue of waiting blocks per frame.

In: a lowered function and the cells of its arguments. Out: the returned groups of threads. A
frame runs the block with the smallest program counter for the threads that wait there, all at
once; a branch splits a group, groups that wait at one block coalesce, a call runs a frame of its
own (on Python's stack). After TensorFlow Probability's ``stackless.execute`` and Bradbury & Fu
2018, with groups that hold the rows of their own threads only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from autobatch.batching import calls, operations
from autobatch.batching.context import Context, RowsFail, Services
from autobatch.batching.escapes import Snapshot
from autobatch.batching.foreign import Foreign
from autobatch.batching.operations import HANDLED
from autobatch.batching.rows import Rower
from autobatch.batching.starring import Differing
from autobatch.ir.program import (
    Branch,
    Call,
    Converted,
    Join,
    Jump,
    Raise,
    Return,
    Terminator,
)
from autobatch.random.paths import Paths
from autobatch.vm import aliasing, invariants
from autobatch.vm.aliasing import Blindness
from autobatch.vm.blocks import Blocks, Parts, drawn, objectify, redraw
from autobatch.vm.calling import KEPT, Returned, carry, settled
from autobatch.vm.constructing import constructed
from autobatch.vm.driven import converted, driven, is_plain, plain_end
from autobatch.vm.entering import Entry, Forking, entered
from autobatch.vm.failing import Failures, no_data
from autobatch.vm.forking import Forks
from autobatch.vm.groups import CARRIED, Group, restricted
from autobatch.vm.modes import by_modes, entered_modes
from autobatch.vm.queue import Waiting
from autobatch.vm.schedule import Choice
from autobatch.vm.spinning import spun
from autobatch.vm.state import Frame, Leaving, RunState
from autobatch.vm.steps import too_deep
from autobatch.vm.values import Cell, Container, Objects
from autobatch.vm.ways import is_tail
from autobatch.vm.within import FRAMED, Within

NO_MODES = nullcontext()
NO_EXITS: frozenset[int] = frozenset()
CALLEE = "%callee"
ARGUMENT = "%argument {}"


@dataclass(slots=True, eq=False)
class Machine:
    """The engine at work for one run."""

    state: RunState
    failures: Failures = field(init=False)
    blocks: Blocks = field(init=False)
    within: Within = field(init=False)
    forks: Forks = field(init=False)
    modes: dict[Hashable, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.failures = Failures(self.state.settings.isolate)
        self.within = Within(self.state, self.failures, self.call)
        self.forks = Forks(self.state, self.failures, self.within, self.frame)
        self.blocks = Blocks(self.state, self.failures, self.forks, self.is_next)
        self.lend(Foreign())

    def lend(self, foreign: Foreign) -> None:
        """Set what block executions get from the run."""
        settings, within = self.state.settings, self.within
        self.state.services = Services(
            settings.device,
            self.state.tally,
            settings.randomness,
            within.invoke,
            within.closure,
            within.inline,
            within.is_pure,
            self.state.library.has_effects,
            foreign,
            settings.isolate,
            settings.thread_offset,
            self.state.names_may_change,
            self.state.moving,
            self.state.contributions,
            self.state.tensor_written,
            self.failures.operated,
            self.state.is_blind,
        )
        self.state.names_may_change()

    def run(
        self,
        target: calls.Target,
        threads: np.ndarray,
    ) -> list[Returned]:
        """The call ``target`` for the threads with the given indices; raises what the loop raises.

        Isolated threads that fail are not among those that return, but in ``failures``.
        """
        self.lend(Foreign.of([*target.args, *target.kwargs.values()]))
        paths = self.state.settings.paths(len(threads))
        context = Context(self.state.services, threads, policy=self.state.policy, paths=paths)
        grad = torch.is_grad_enabled()
        try:
            returned = self.call(context, target, [])
        except RowsFail as failure:
            if not len(threads):
                raise no_data(failure.span) from failure.error
            self.failures.never_begin(threads, failure)
            returned = []
        finally:
            torch.set_grad_enabled(grad)  # a block that ends by an error may have left another
        if self.state.work is not None:
            self.state.work.forget()
        if self.failures.failure is not None and not self.failures.isolate:
            self.state.contributions.fail(next(iter(self.failures.errors)))
            raise self.failures.failure
        return returned

    # Calls

    def call(
        self,
        context: Context,
        target: calls.Target,
        kept: Sequence[Cell],
        paths: Paths | None = None,
    ) -> list[Returned]:
        """Run a program function or build an instance; ``kept`` is what the caller needs later.

        ``paths`` are where it draws, by default where its caller does.
        """
        paths = context.paths if paths is None else paths
        if target.effect == "construct":
            return self.construct(context, target, kept, paths)
        state = self.state
        entry = entered(state.library, context, target, self.forking(paths), state.judgements)
        entry.paths = paths
        if self.forks.active:
            self.forks.watch(context, entry)
        carried = carry(entry.env.values(), kept)
        if carried:
            entry.env[CARRIED] = Cell(Container(tuple, carried))
        handled = self.handled(context)
        if handled is not None:
            entry.env[HANDLED] = handled
        group = Group(np.arange(context.k), entry.env)
        pieces = self.frame(entry, [group], context.threads)
        with self.state.moving():
            return settled(pieces, carried, context.k)

    def handled(self, context: Context) -> Cell | None:
        """The exceptions that are being handled where a function is called."""
        if not self.failures.frames:
            return None
        frame = self.failures.frames[-1]
        if context.at is None or not frame.catches:
            return frame.handled
        return frame.code.handled_in(self.state.tally.block[1], context.at[1])

    def forking(self, paths: Paths | None) -> Forking:
        """Which calls a function may fork that draws by these paths.

        None where each thread's failure is for a handler, with all as it was then.
        """
        frames = self.failures.frames
        if not self.state.settings.fork or (paths is not None and paths.flat):
            return "none"
        if frames and frames[-1].catches:
            return "none"
        return "silent" if paths is None else "drawing"

    def construct(
        self, context: Context, target: calls.Target, kept: Sequence[Cell], paths: Paths | None
    ) -> list[Returned]:
        """An instance of a user's class: a container of its attributes, filled by ``__init__``."""
        instance, made = constructed(context, target)
        self.failures.take(context)
        if made is None:
            return [Returned(np.arange(context.k), instance)]
        pieces = self.call(context, made, [*kept, instance], paths)
        for piece in pieces:
            if not piece.raised:
                piece.value, piece.ways = piece.kept_cell(instance), None
        return pieces

    # Frames

    def frame(self, entry: Entry, groups: Sequence[Group], threads: np.ndarray) -> list[Returned]:
        """Run a function to its end for groups of rows that have the given threads."""
        frames, batch = self.failures.frames, self.state.settings.batch
        function, mark = entry.code.function, self.state.ways.mark
        frame = self.opened(entry, threads)
        if frame is None:
            return []
        waiting: Waiting[int] = frame.waiting
        watch = invariants.watch(frame)
        frames.append(frame)
        try:
            parts = [(0, group) for group in groups]
            at = waiting.next(mark(function, 0, parts) if frame.answers else parts)
            exits = entry.code.exits if frame.answers else NO_EXITS
            while at is not None:
                if watch is not None:
                    watch.ahead(*at)
                pc, group = at
                parts = self.execute(frame, pc, group)  # no *at: that nests on the C stack
                with self.state.moving():
                    at = waiting.next(mark(function, pc, parts) if pc in exits else parts)
            if watch is not None:
                watch.end()
        finally:
            frames.pop()
        return [piece for piece in frame.returned if len(piece.rows) or not batch]

    def opened(self, entry: Entry, threads: np.ndarray) -> Frame | None:
        """A frame for a function and rows of the given threads; no group is in it yet.

        None if no thread may call that deep.
        """
        frames, settings = self.failures.frames, self.state.settings
        depth, limit = len(frames), settings.max_depth
        if limit is not None and depth >= limit:
            error = partial(too_deep, limit, frames[-1].span)
            self.failures.stop(threads, lambda _: error())
            return None

        function, empty = entry.code.function, not settings.batch
        schedule, last = settings.schedule, len(function.blocks) - 1
        choose = None if schedule is None else Choice(schedule, lambda pc: (function, pc), last)
        as_objects = partial(objectify, self.state, threads)
        waiting: Waiting[int] = Waiting(entry.code.live, settings.device, as_objects, empty, choose)
        waiting.blind = self.sight(entry)
        if self.state.observer is not None:
            waiting.apart = lambda pc, *groups: self.state.kept_apart(function, pc, *groups)
        frame = Frame(entry.code, entry.scope, threads, waiting, depth)
        frame.answers = not frames or frames[-1].hands_on
        frame.gone = self.failures.left_before()
        frame.paths = entry.paths
        frame.caught = bool(frames) and frames[-1].catches
        return frame

    def sight(self, entry: Entry) -> Callable[[], bool]:
        """Whether the run is blind to which names mean one tensor; its first call decides."""
        state = self.state
        if state.blind is None:
            assert entry.names is not None
            given = aliasing.objects_in(cell.value for cell in entry.env.values())
            told = partial(state.library.told, entry.code)
            state.blind = Blindness(told, entry.names, given)
        return state.blind

    def free(self, frame: Frame, rows: np.ndarray) -> None:
        """Threads have left the run by failing; others are to have their rows."""

    def first(self, frame: Frame) -> Any:
        """Where groups wait that enter a frame."""
        return 0

    def is_next(self, frame: Frame, target: int) -> bool:
        """Whether a group that jumps to a block would run there at once, and alone."""
        return frame.waiting.is_next(target)

    def outer_block(self, at: Any) -> float:
        """The block of the outermost function that threads which wait there are in."""
        return at  # type: ignore[no-any-return]

    def execute(self, frame: Frame, pc: Any, group: Group) -> list[tuple[Any, Group]]:
        """Execute one block for a group; where it ends in a join, all that wait there join in."""
        parts = self.step(frame, pc, group)
        if type(frame.code.blocks[pc].terminator) is Join:
            return self.joined(frame, pc)
        return parts

    def joined(self, frame: Frame, pc: int) -> Parts:
        """Let all groups that wait at a join come to it, and run what they have forked as one."""
        for group in frame.waiting.others(pc):
            self.step(frame, pc, group)
        join = frame.code.blocks[pc].terminator
        assert isinstance(join, Join)
        frame.span = join.span
        groups, frame.joining = frame.joining, []
        groups = [self.failures.remaining(frame, group) for group in groups]
        return self.forks.join(frame, join.target, [group for group in groups if group.k])

    def step(self, frame: Frame, pc: int, group: Group) -> Parts:
        """Execute one block for a group; the groups that go on, and where."""
        handler = frame.code.blocks[pc].handler
        frame.handler, frame.exact, frame.snapshot = None, False, None
        if handler is not None and group.checks:
            group = self.seen(frame, pc, group)
        frame.handler = handler
        frame.exact = handler is not None or (frame.caught and CARRIED in group.env)
        parts = self.run_block(frame, pc, group)
        frame.snapshot = None
        return [*parts, *self.handed_on(frame)] if frame.leaving else parts

    def seen(self, frame: Frame, pc: int, group: Group) -> Group:
        """The group without threads that have failed before a block: its handler is not theirs."""
        context = self.state.context(frame, group)
        block = frame.code.blocks[pc]
        frame.span = context.span = (block.ops or (block.terminator,))[0].span
        try:
            context.flush()
        except RowsFail as failure:
            group, context = self.blocks.left(frame, group, context, failure)
        group.checks = []
        return group

    def handed_on(self, frame: Frame) -> Parts:
        """The threads that have failed in a block go to its handler, or to one of a caller's."""
        leaving, frame.leaving = frame.leaving, []
        parts: Parts = []
        for each in leaving:
            group, errors = each.group, Cell(Objects(list(each.errors)))
            if not group.k:
                continue
            if each.handler is None:
                self.handed_down(frame, group, errors)
            else:
                group.env[each.handler.out] = errors
                parts.append((each.handler.target, group))
        return parts

    def handed_down(self, frame: Frame, group: Group, errors: Cell) -> None:
        """Threads leave a function with their exceptions, for a handler of a caller's."""
        frame.returned.append(Returned(group.rows, errors, carried_by(group), raised=True))

    def run_block(self, frame: Frame, pc: int, group: Group) -> Parts:
        """Execute one block for a group; the groups that go on, and where."""
        state, batch = self.state, self.state.settings.batch
        group = self.failures.remaining(frame, group)
        if not group.k and batch:
            return []
        listening = bool(state.steps.listeners)
        started = time.perf_counter() if listening else 0.0
        block = frame.code.blocks[pc]
        if state.steps.spent:
            frame.span = block.terminator.span
            error_of = partial(state.steps.too_many, frame.span)
            self.failures.stop(frame.threads[group.rows], error_of)
            return []
        state.begin(frame, pc, group)
        plain = is_plain(state, block, group)
        if plain:
            rounds = spun(state, self, frame, pc, group)
            if rounds is not None:
                return rounds
        made = None
        if block.converted is not None and not frame.exact:
            made = converted(state, frame, pc, group)
        if made is not None:
            threads = frame.threads[group.rows]
            parts = self.ended_converted(frame, made, group)
            if listening:
                seconds = time.perf_counter() - started
                state.steps.end(frame.code.function, pc, threads, frame.depth, seconds)
            return parts
        if plain and driven(state, frame, pc, group):
            return self.ended(frame, block.terminator, group)
        if block.modes:  # groups that were too unlike may have met
            group, *others = by_modes(block, group, self.modes)
            if others:
                return [(pc, part) for part in (group, *others)]
        context = state.context(frame, group)
        grad = torch.is_grad_enabled()
        inner = 0.0
        with entered_modes(block, group.env) if block.modes else NO_MODES:
            group, context = self.blocks.operations(frame, block.ops, group, context)
            if not group.k and batch:
                return []
            frame.span = context.span = block.terminator.span
            before = time.perf_counter() if listening else 0.0
            parts = self.finished(frame, block.terminator, group, context)
            if listening and isinstance(block.terminator, Call):
                inner = time.perf_counter() - before
        if torch.is_grad_enabled() is not grad:
            torch.set_grad_enabled(grad)
        if state.observer is not None and type(block.terminator) is Call:
            for _, part in parts:
                state.observer.operation(frame.code.function, block.terminator, part.env)
        if listening:
            seconds = time.perf_counter() - started - inner
            state.steps.end(frame.code.function, pc, context.threads, frame.depth, seconds)
        return parts

    def ended_converted(self, frame: Frame, made: Converted, group: Group) -> Parts:
        """The terminator of a converted block: results come by way of the block that it is of."""
        parts = self.ended(frame, made.terminator, group)
        if frame.answers and made.ends in frame.code.exits:
            self.state.ways.mark(frame.code.function, made.ends, parts)
        return parts

    # Terminators

    def ended(self, frame: Frame, terminator: Terminator, group: Group) -> Parts:
        """The terminator, once a driver has run the operations."""
        plain = plain_end(self.state, frame, terminator, group)
        if plain is not None:
            return plain
        frame.span = terminator.span
        context = self.state.context(frame, group)
        context.span = frame.span
        return self.finished(frame, terminator, group, context)

    def finished(
        self, frame: Frame, terminator: Terminator, group: Group, context: Context
    ) -> Parts:
        """The terminator, for the rows that failures in it leave."""
        while True:
            undrawn = drawn(frame)
            if frame.exact:
                frame.snapshot = Snapshot(group.env)
            try:
                return self.finish(frame, terminator, group, context)
            except RowsFail as failed:
                failure = failed  # what is raised from now on has no context
            if isinstance(terminator, Call):
                cells = [group.env[name] for name in terminator.args if name in group.env]
                context.tell(failure.error, cells, failure.row)
            redraw(frame, undrawn, failure)
            if context.lost is not None and not context.lost and group.k > 1:
                return self.halves(frame, terminator, group, context)
            group, context = self.blocks.left(frame, group, context, failure)
            if not group.k:
                return []

    def halves(self, frame: Frame, terminator: Terminator, group: Group, context: Context) -> Parts:
        """The terminator for either half of a group, some of whose threads are to leave."""
        parts: Parts = []
        group.checks = context.checks
        for rows in np.array_split(np.array(context.order(), dtype=np.int64), 2):
            half = self.failures.remaining(frame, restricted(group, rows, list(group.env)))
            if half.k:
                own = self.state.context(frame, half)
                own.eager, own.span = context.eager, terminator.span
                parts += self.finished(frame, terminator, half, own)
        return parts

    def finish(self, frame: Frame, terminator: Terminator, group: Group, context: Context) -> Parts:
        match terminator:
            case Jump(target=target):
                group.checks = context.checks
                inside = frame.code.blocks[target]
                if not inside.modes:
                    return [(target, group)]
                return [(target, part) for part in by_modes(inside, group, self.modes)]
            case Branch():
                return self.blocks.branch(frame, terminator, group, context)
            case Call():
                return self.finish_call(frame, terminator, group, context)
            case Join():
                context.flush()
                group.checks = []
                frame.joining.append(group)
                return []
            case Return(value=value):
                context.flush()
                return self.returned(frame, group, group.env[value])
            case Raise():
                context.flush()
                self.blocks.raise_(context, terminator, group)
        raise AssertionError(terminator)

    def finish_call(self, frame: Frame, terminator: Call, group: Group, context: Context) -> Parts:
        cells = operations.operands(context, terminator.args, group.env)
        (callee,) = operations.operands(context, (terminator.callee,), group.env)
        differing: Differing | None = None
        try:
            args, kwargs = operations.arguments(context, terminator.shape, callee, cells)
        except Differing as found:
            differing = found
        context.leave()
        if differing is not None:
            return self.parted_call(frame, terminator, group, differing)
        target = calls.resolve(callee, args, kwargs)
        if target.effect == "objects":
            return self.scattered_call(frame, terminator, group, callee)
        if target.effect not in FRAMED:
            return self.opaque_call(frame, terminator, group, context, target)
        context.flush()
        group.checks = []
        return self.program_call(frame, terminator, group, context, target)

    def program_call(
        self, frame: Frame, terminator: Call, group: Group, context: Context, target: calls.Target
    ) -> Parts:
        """A call of a program function: it runs to its end in a frame of its own."""
        kept = list(self.kept(frame, terminator, group).values())
        paths = None if context.paths is None else context.paths.opened()
        frame.hands_on = frame.answers and is_tail(frame.code.function, terminator)
        if frame.catches:
            frame.handled = frame.code.handled_in(self.state.tally.block[1], group.env)
        try:
            pieces = self.call(context, target, kept, paths)
        finally:
            frame.hands_on, frame.handled = False, None
        return self.resumed(frame, terminator, group, pieces)

    def kept(self, frame: Frame, terminator: Call, group: Group) -> dict[str, Cell]:
        """The variables that a group needs after a call, wherever it goes on."""
        names = set(frame.code.live[terminator.target]) - {terminator.out}
        if frame.handler is not None:
            names |= set(frame.code.live[frame.handler.target]) - {frame.handler.out}
        return {name: cell for name, cell in group.env.items() if name in names}

    def returned(self, frame: Frame, group: Group, value: Cell) -> Parts:
        """A group that has come to the end of its function."""
        frame.returned.append(Returned(group.rows, value, carried_by(group), ways=group.ways))
        return []

    def opaque_call(
        self, frame: Frame, terminator: Call, group: Group, context: Context, target: calls.Target
    ) -> Parts:
        """A call that ends its block, of what turns out to be no program function."""
        if self.forks.active:
            self.forks.watch_opaque(frame, terminator, target)
        try:
            result = calls.run(context, target)
        except RowsFail as failure:
            if failure.partial is None:
                raise
            group = self.failures.dropped(frame, group, context, failure)
            result = failure.partial
            context = self.state.context(frame, group)
        group.env[terminator.out] = result
        if context.lost:
            group, context = self.blocks.left(frame, group, context)
        group.checks = context.checks
        return [(terminator.target, group)] if group.k or not self.state.settings.batch else []

    def resumed(
        self, frame: Frame, terminator: Call, group: Group, pieces: list[Returned]
    ) -> Parts:
        """The caller's threads go on after a call, in as many groups as it returned unlike ones."""
        names = list(self.kept(frame, terminator, group))
        parts: Parts = []
        for piece in pieces:
            part = group
            if len(pieces) > 1 or len(piece.rows) < group.k:
                group.env[KEPT] = Cell(Container(tuple, list(piece.originals)))
                with self.state.moving():
                    part = restricted(group, piece.rows, [*names, KEPT])
                piece.settle(list(part.env.pop(KEPT).value.children()))  # type: ignore[union-attr]
            if piece.raised:
                items = Rower(self.state.context(frame, part)).rows(piece.value)
                frame.leaving.append(Leaving(part, items, frame.handler))
                continue
            part.env[terminator.out] = piece.value
            part.ways = piece.ways
            parts.append((terminator.target, part))
        return parts

    def scattered_call(self, frame: Frame, terminator: Call, group: Group, callee: Cell) -> Parts:
        """A call whose callee differs by thread: each callee for its own threads."""
        parts: Parts = []
        for rows, part in calls.partition(callee):
            own = restricted(group, np.array(rows, dtype=np.int64), list(group.env))
            own.env[CALLEE] = part  # not under the variable's own name: it may be read again
            own = self.failures.remaining(frame, own)
            if own.k:
                context = self.state.context(frame, own)
                context.span = terminator.span
                alone = replace(terminator, callee=CALLEE)
                parts += self.finished(frame, alone, own, context)
        return parts

    def parted_call(
        self, frame: Frame, terminator: Call, group: Group, differing: Differing
    ) -> Parts:
        """A call whose arguments differ by thread in number or name: each kind for its threads."""
        names = tuple(ARGUMENT.format(place) for place in range(len(differing.cells)))
        group.env.update(zip(names, differing.cells, strict=True))
        alone = replace(terminator, args=names)
        parts: Parts = []
        for rows in differing.parts:
            own = restricted(group, np.array(rows, dtype=np.int64), list(group.env))
            own = self.failures.remaining(frame, own)
            if own.k:
                context = self.state.context(frame, own)
                context.span = terminator.span
                parts += self.finished(frame, alone, own, context)
        return parts


def carried_by(group: Group) -> list[Cell]:
    """The caller's cells that have moved with the group."""
    cell = group.env.get(CARRIED)
    return [] if cell is None else list(cell.value.children())  # type: ignore[union-attr]
