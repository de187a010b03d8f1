"""The stackless engine: a program counter, thread groups, a queue of waiting blocks per frame.

In: a lowered function and the cells of its arguments. Out: the returned groups of threads. A
frame runs the block with the smallest program counter for the threads that wait there, all at
once; a branch splits a group, groups that wait at one block coalesce, a call runs a frame of its
own (on Python's stack). After TensorFlow Probability's ``stackless.execute`` and Bradbury & Fu
2018, with groups that hold the rows of their own threads only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from autobatch.batching.calling import resolving
from autobatch.batching.context import Context, RowsFail, Services
from autobatch.batching.foreign import Foreign
from autobatch.batching.host.rower import Rower
from autobatch.batching.operations import HANDLED
from autobatch.ir.program import Call
from autobatch.random.alike import Alike
from autobatch.random.paths import Paths
from autobatch.values.cells import Cell, Container
from autobatch.vm import aliasing, invariants, outright
from autobatch.vm.aliasing import Blindness
from autobatch.vm.asking import Seeing
from autobatch.vm.blocks import Blocks, objectify
from autobatch.vm.calling import KEPT, Returned, after_call, carry, settled
from autobatch.vm.constructing import constructed
from autobatch.vm.entering import Entry, Forking, entered
from autobatch.vm.failing import Failures, no_data
from autobatch.vm.forks import Forks
from autobatch.vm.groups import CARRIED, Group, Parts, restricted
from autobatch.vm.handing import Handing
from autobatch.vm.queue import Waiting
from autobatch.vm.room import ROOM, STRIDE, in_one_piece
from autobatch.vm.schedule import Choice
from autobatch.vm.stages import Way
from autobatch.vm.state import Frame, Late, Leaving
from autobatch.vm.stepping import Stepping
from autobatch.vm.steps import too_deep
from autobatch.vm.ways import is_tail
from autobatch.vm.within import Within

NO_EXITS: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False, repr=False)
class Machine(Stepping):
    """The engine at work for one run, which is ``lent`` what block executions get from it."""

    def __post_init__(self) -> None:
        self.failures = Failures(self.state.settings.isolate)
        if self.state.policy is not None:
            self.state.policy.calls = self.failures.calls
        self.within = Within(self.state, self.failures, self.call)
        self.forks = Forks(self.state, self.failures, self.within, self.frame)
        self.blocks = Blocks(self.state, self.failures, self.forks, self.is_next)

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
            self.state.shows,
            self.state.moving,
            self.state.contributions,
            self.state.tensor_written,
            self.failures.operated,
            self.state.is_blind,
            Handing(self.state.library, foreign, settings.randomness),
            Alike.on(settings.device) if settings.randomness == "same" else None,
            self.state.lent,
            self.state.generators,
        )
        self.state.names_may_change()

    def run(
        self,
        target: resolving.Target,
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
        self.state.generators.check()
        return returned

    # Calls

    def call(
        self,
        context: Context,
        target: resolving.Target,
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
        forking = self.forking(context, paths)
        entry = entered(state.library, context, target, forking, state.judgements)
        entry.paths = paths
        self.forks.watch(context, entry)
        carried = carry(entry.env.values(), kept, state.lent, state.is_blind)
        if carried:
            entry.env[CARRIED] = Cell(Container(tuple, carried))
        handled = self.handled(context)
        if handled is not None:
            entry.env[HANDLED] = handled
        groups = [Group(np.arange(context.k), entry.env)]
        depth = len(self.failures.frames)
        if depth == 0 or depth % STRIDE:
            pieces = self.frame(entry, groups, context.threads)
        else:
            pieces = in_one_piece(self.frame, entry, groups, context.threads)
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

    def forking(self, context: Context, paths: Paths | None) -> Forking:
        """Which calls a function may fork that draws by these paths.

        None where each thread's failure is for a handler, with all as it was then. None of no
        threads: a group that is empty after the calls that it waits for goes no further.
        """
        frames = self.failures.frames
        if not context.k or not self.state.settings.fork or (paths is not None and paths.flat):
            return "none"
        if frames and frames[-1].catches:
            return "none"
        return "silent" if paths is None else "drawing"

    def construct(
        self, context: Context, target: resolving.Target, kept: Sequence[Cell], paths: Paths | None
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

    def program_call(
        self,
        frame: Frame,
        terminator: Call,
        group: Group,
        context: Context,
        target: resolving.Target,
    ) -> Parts:
        """A call of a program function: it runs to its end in a frame of its own."""
        live = self.kept(frame, terminator, group)
        result = self.outright(frame, terminator, group, context, target)
        if result is not None:
            return [(terminator.target, after_call(group, live, terminator, result))]
        kept = list(live.values())
        paths = None if context.paths is None else context.paths.opened()
        frame.hands_on = frame.answers and is_tail(frame.code.function, terminator)
        if frame.catches:
            frame.handled = frame.code.handled_in(self.state.tally.block[1], group.env)
        try:
            pieces = self.call(context, target, kept, paths)
        finally:
            frame.hands_on, frame.handled = False, None
        return self.resumed(frame, terminator, group, pieces)

    def outright(
        self, frame: Frame, call: Call, group: Group, context: Context, target: resolving.Target
    ) -> Cell | None:
        """What a call returns that needs no frame."""
        state, limit = self.state, self.state.settings.max_depth
        if limit is not None and len(self.failures.frames) >= limit:
            return None
        if self.forks.active or not outright.may_run(state, frame, call, group):
            return None
        if not outright.is_straight(state, target):
            return None
        entry = entered(state.library, context, target, judgements=state.judgements)
        return outright.run(state, entry, group)

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
                found = Rower(self.state.context(frame, part)).rows(piece.value)
                items = [self.failures.became(error, (terminator.span,)) for error in found]
                frame.leaving.append(Leaving(part, items, frame.handler))
                continue
            part.env[terminator.out] = piece.value
            part.ways = piece.ways
            parts.append((terminator.target, part))
        return parts

    # Frames

    def frame(self, entry: Entry, groups: list[Group], threads: np.ndarray) -> list[Returned]:
        """Run a function to its end for groups of rows that have the given threads.

        Nobody keeps them: a generator that a thread has left is to end then, as in the loop.
        """
        frames = self.failures.frames
        function, mark = entry.code.function, self.state.ways.mark
        calling = self.state.tally.block
        frame = self.opened(entry, threads)
        if frame is None:
            return []
        waiting: Waiting[int] = frame.waiting
        late = frame.late
        watch = invariants.watch(frame)
        frames.append(frame)
        if not len(frames) % STRIDE:
            ROOM.at(len(frames))
        try:
            parts = [(0, group) for group in groups]
            groups.clear()
            at = waiting.next(mark(function, 0, parts) if frame.answers else parts)
            exits = entry.code.exits if frame.answers else NO_EXITS
            while at is not None:
                if watch is not None:
                    watch.ahead(*at)
                pc, group = at
                parts = self.execute(frame, pc, group)  # no *at: that nests on the C stack
                if late is not None and not late.is_due:
                    parts = late.put_aside(frame, parts)
                if pc in exits:
                    parts = mark(function, pc, parts)
                if waiting or len(parts) > 1:
                    with self.state.moving():
                        at = waiting.next(parts)
                else:  # no rows move
                    at = waiting.next(parts)
                if at is None and late is not None:
                    with self.state.moving():
                        at = waiting.next(self.taken_up(frame, late))
            if watch is not None:
                watch.end()
        finally:
            if not len(frames) % STRIDE:
                ROOM.at(len(frames) - STRIDE)
            frames.pop()
        self.state.tally.block = calling
        returned = frame.returned if late is None else late.handed_back(frame.returned)
        return [piece for piece in returned if len(piece.rows) or waiting.empty]

    def opened(self, entry: Entry, threads: np.ndarray) -> Frame | None:
        """A frame for a function and rows of the given threads; no group is in it yet.

        None if no thread may call that deep.
        """
        frames, settings = self.failures.frames, self.state.settings
        depth, limit = len(frames), settings.max_depth
        if limit is not None and depth >= limit:
            self.failures.bound(threads, lambda _: too_deep(limit, frames[-1].span))
            return None

        function, empty = entry.code.function, not len(threads)
        schedule, last = settings.schedule, len(function.blocks) - 1
        choose = None if schedule is None else Choice(schedule, lambda pc: (function, pc), last)
        as_objects = partial(objectify, self.state, threads)
        waiting: Waiting[int] = Waiting(entry.code.live, settings.device, as_objects, empty, choose)
        waiting.blind = self.sight(entry)
        if self.state.observer is not None:
            waiting.apart = lambda pc, *groups: self.state.kept_apart(function, pc, *groups)
        frame = Frame(entry.code, entry.scope, threads, waiting, depth)
        frame.late = entry.late
        frame.answers = not frames or frames[-1].hands_on
        frame.gone = self.failures.left_before()
        frame.paths = entry.paths
        frame.caught = bool(frames) and frames[-1].catches
        return frame

    def taken_up(self, frame: Frame, late: Late) -> Parts:
        """The groups that have waited until nothing else is left to run."""
        parts = late.taken_up(frame)
        frame.waiting.objectify = partial(objectify, self.state, frame.threads)  # which are more
        return parts

    def sight(self, entry: Entry) -> Callable[[], bool]:
        """Whether the run is blind to which names mean one tensor; its first call decides."""
        state = self.state
        if state.blind is None:
            assert entry.names is not None
            given = aliasing.objects_in(cell.value for cell in entry.env.values())
            told = partial(state.library.told, entry.code)
            state.blind = Blindness(told, entry.names, given)
            asks = partial(state.library.asks, entry.code)
            state.seeing = Seeing(asks, entry.names, given, state.blind)
        return state.blind

    def free(self, frame: Frame, rows: np.ndarray) -> None:
        """Threads have left the run by failing; others are to have their rows."""

    def first(self, frame: Frame) -> Any:
        """Where groups wait that enter a frame."""
        return 0

    def is_next(self, frame: Frame, target: int) -> bool:
        """Whether a group that jumps to a block would run there at once, and alone."""
        return frame.waiting.is_next(target)

    def has_recursed(self, frame: Frame) -> bool:
        """Whether a function has come to call itself whose calls wait in the frame's queue."""
        return False

    def way_to(self, frame: Frame, at: Any, inside: bool) -> Way | None:
        """Where threads are that wait there, None at the end; ``inside`` calls too, if they wait
        in the queue themselves.
        """
        return [(frame.code.blocks, at)]
