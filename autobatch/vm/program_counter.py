"""The program-counter engine: the stack is data, and threads at different depths run together.

As the stackless engine, but for calls: a call does not run to its end in a frame of its own.
It saves what lives across it (``Stack``), and the group goes on at the callee's first block, in
the same queue as all other groups of the run; a return takes up what was saved, for each thread
that of its own call. So threads that wait at one block run together however deep in calls each
of them is, and memory alone bounds the depth. After Radul et al., "Automatically batching
control-intensive programs for modern accelerators" (MLSys 2020), and TensorFlow Probability's
``virtual_machine.execute``, with groups that hold the rows of their own threads only.

A call within a block (of a key function, say) cannot leave it: it runs a level of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from autobatch.batching.ambient import ambient
from autobatch.batching.calling import resolving
from autobatch.batching.context import Context
from autobatch.batching.host.rower import Rower
from autobatch.batching.operations import HANDLED
from autobatch.compat import on_host
from autobatch.ir.program import Call, Function, Label
from autobatch.source import Span
from autobatch.values.cells import Cell, Column, Container, Objects
from autobatch.vm import invariants, outright
from autobatch.vm.blocks import objectify
from autobatch.vm.calling import KEPT, Returned, after_call, carry
from autobatch.vm.constructing import constructed
from autobatch.vm.endings import carried_by
from autobatch.vm.entering import Entry, entered
from autobatch.vm.groups import CARRIED, Group, Parts, restricted
from autobatch.vm.modes import modes_of
from autobatch.vm.places import RESULT, End, Live, Place, Routines
from autobatch.vm.queue import Waiting
from autobatch.vm.schedule import Choice
from autobatch.vm.stack import NONE, Resumed, Saved, Stack, some
from autobatch.vm.stackless import Machine
from autobatch.vm.stages import Way
from autobatch.vm.state import Frame
from autobatch.vm.steps import too_deep
from autobatch.vm.ways import is_tail

NESTED = 10_000
"""How deep calls within blocks may nest: those do take a part of Python's stack."""
OPERATIONS = "calls that operations make nest no deeper; end the recursion earlier."
DRAWN = "%drawn"
"""Holds where the caller's threads draw, their keys and numbers, while a call is at work."""
INSTANCE = "%instance"
"""Holds what a call builds, while its ``__init__`` is at work."""
Moves = list[tuple[Place, Group]]
LIVE = Live()


@dataclass(slots=True, eq=False, repr=False)
class Level(Frame):
    """What runs in one queue: a whole run, or a call within a block and all that it calls.

    The fields of a frame are those of the block at work, ``place``; ``moves`` are the groups that
    have gone from it to another function, ``base`` the depth of the level's outermost call.
    """

    stack: Stack = field(kw_only=True)
    place: Place = field(kw_only=True)
    routines: Routines = field(kw_only=True)
    base: int = 0
    end: End = field(default_factory=End)
    moves: Moves = field(default_factory=list)
    modes: dict[Hashable, tuple[Any, ...]] = field(default_factory=dict)

    def enter(self, place: Place) -> None:
        self.place, self.code, self.scope = place, place.routine.code, place.routine.scope
        self.caught = place.routine.caught

    def calls(self, thread: int) -> list[Span]:
        """The calls that a thread is in, then what runs now."""
        (row,) = np.flatnonzero(self.threads == thread)[:1]
        spans = [call.span for call in self.stack.calls(int(row))]
        return spans if self.span is None else [*spans, self.span]

    def faults(self) -> Iterator[str]:
        return self.stack.faults()


class ProgramCounterMachine(Machine):
    """The engine at work for one run."""

    __slots__ = ()

    def frame(self, entry: Entry, groups: list[Group], threads: np.ndarray) -> list[Returned]:
        """Run a function, and all that it calls, to its end for groups of the given threads."""
        level = self.opened(entry, threads)
        if level is None:
            return []
        waiting: Waiting[Place] = level.waiting
        watch = invariants.watch(level)
        self.failures.frames.append(level)
        try:
            at = waiting.next([(level.place, self.entering(level, entry, g)) for g in groups])
            while at is not None:
                if watch is not None:
                    watch.ahead(*at)
                place, group = at
                at = waiting.next(self.execute(level, place, group))
            if watch is not None:
                watch.end()
        finally:
            self.failures.frames.pop()
        return [piece for piece in level.returned if len(piece.rows) or waiting.empty]

    def free(self, frame: Frame, rows: np.ndarray) -> None:
        """Threads have left the run by failing, whatever calls they were in."""
        assert isinstance(frame, Level)
        frame.stack.drop(rows)

    def first(self, frame: Frame) -> Place:
        assert isinstance(frame, Level)
        return frame.place.routine.places[0]

    def is_next(self, frame: Frame, target: int) -> bool:
        assert isinstance(frame, Level)
        return frame.waiting.is_next(frame.place.routine.places[target])

    def has_recursed(self, frame: Frame) -> bool:
        assert isinstance(frame, Level)
        return frame.routines.recursive

    def way_to(self, frame: Frame, at: Place, inside: bool) -> Way | None:
        if type(at) is End:
            return None
        way = [(at.routine.code.blocks, at.pc)]
        while at.routine.caller is not None:
            at = at.routine.caller
            way.insert(0, (at.routine.code.blocks, at.pc))
        return way if inside else way[:1]

    def opened(self, entry: Entry, threads: np.ndarray) -> Level | None:
        """What runs in a queue of its own; None if no thread may go that deep."""
        device, frames = self.state.settings.device, self.failures.frames
        base = 0
        caught = bool(frames) and frames[-1].catches
        if frames:
            base = self.deeper(threads)
            if base < 0:
                return None

        empty = not len(threads)
        schedule, end = self.state.settings.schedule, End()
        last: Place = end
        choose = None if schedule is None else Choice(schedule, block_of, last)
        as_objects = partial(objectify, self.state, threads)
        waiting: Waiting[Place] = Waiting(LIVE, device, as_objects, empty, choose)
        waiting.blind = self.sight(entry)
        if self.state.observer is not None:
            waiting.apart = lambda at, *groups: (
                None if at == last else self.state.kept_apart(*block_of(at), *groups)
            )
        routines = Routines()
        level = Level(
            entry.code,
            entry.scope,
            threads,
            waiting,
            base,
            base=base,
            end=end,
            stack=Stack.of(len(threads), device),
            routines=routines,
            place=routines.entry(entry.code, entry.scope, None, (), ambient(), caught),
            caught=caught,
        )
        level.answers = not frames
        level.paths = entry.paths
        level.gone = self.failures.left_before()
        return level

    def deeper(self, threads: np.ndarray) -> int:
        """How deep a call within a block is, of the threads that may go that deep; -1 for none."""
        outer = self.failures.frames[-1]
        assert isinstance(outer, Level)
        rows = np.flatnonzero(np.isin(outer.threads, threads))
        if len(self.failures.frames) >= NESTED:
            self.failures.bound(threads, lambda _: too_deep(NESTED, outer.span, OPERATIONS))
            return -1
        over = self.over(outer, rows)
        if over.any():
            self.stop(outer, rows[over])
            rows = rows[~over]
        return outer.base + outer.stack.depth(rows) + 1 if len(rows) or not len(threads) else -1

    def over(self, level: Level, rows: np.ndarray) -> np.ndarray:
        """Which threads may not call any deeper, as bools."""
        limit = self.state.settings.max_depth
        if limit is None:
            return np.zeros(len(rows), dtype=bool)
        return level.base + level.stack.depths[rows] + 1 >= limit  # type: ignore[no-any-return]

    def stop(self, level: Level, rows: np.ndarray) -> None:
        limit = self.state.settings.max_depth
        assert limit is not None
        hint = "end the recursion earlier, or raise max_depth."
        self.failures.bound(level.threads[rows], lambda _: too_deep(limit, level.span, hint))

    def execute(self, level: Frame, place: Place, group: Group) -> Moves:
        """Execute one block for a group; the groups that go on, and where."""
        assert isinstance(level, Level)
        if place is level.end:
            piece = Returned(group.rows, group.env[RESULT], carried_by(group), ways=group.ways)
            level.returned.append(piece)
            return []
        level.enter(place)
        if self.state.steps.listeners:
            level.depth = level.base + level.stack.depth(group.rows)
        if place.routine.modes:
            with ExitStack() as stack:
                for manager in place.routine.modes:
                    stack.enter_context(manager)
                parts = self.step(level, place.pc, group)
        else:
            parts = self.step(level, place.pc, group)
        if level.answers and place.pc in level.code.exits:
            self.state.ways.mark(level.code.function, place.pc, parts)
        places = place.routine.places
        moves: Moves = [(places[pc], part) for pc, part in parts]
        if level.moves:
            moves += level.moves
            level.moves = []
        return moves

    # Calls and returns

    def program_call(
        self,
        frame: Frame,
        terminator: Call,
        group: Group,
        context: Context,
        target: resolving.Target,
    ) -> Parts:
        """The group saves what lives across the call, and goes on in the callee."""
        assert isinstance(frame, Level)
        if self.state.settings.max_depth is not None:
            over = self.over(frame, group.rows)
            if over.any():
                self.stop(frame, group.rows[over])
                group = self.failures.remaining(frame, group)
                if not group.k:
                    return []
                context = self.state.context(frame, group)
                context.span = terminator.span
                return self.finish_call(frame, terminator, group, context)
        live = self.kept(frame, terminator, group)
        constructs = target.effect == "construct"
        keys = self.opened_keys(frame, group, context, live)
        if constructs:
            instance, made = constructed(context, target)
            self.failures.take(context)
            live[INSTANCE] = instance
            if made is None:
                live[terminator.out] = live.pop(INSTANCE)
                group.env = live
                return [(terminator.target, group)]
            target = made
        entry = entered(self.state.library, context, target, judgements=self.state.judgements)
        callee = frame.routines.entry(
            *(entry.code, entry.scope, frame.place, *self.modes_of(frame, group)),
            caught=frame.catches,
        )
        if not constructs and not callee.routine.modes and self.runs_next(frame, callee):
            result = None
            if outright.may_run(self.state, frame, terminator, group):
                result = outright.run(self.state, entry, group)
            if result is not None:
                return [(terminator.target, after_call(group, live, terminator, result))]
        carried = carry(entry.env.values(), live.values(), self.state.lent, self.state.is_blind)
        if carried:
            live[KEPT] = Cell(Container(tuple, carried))
            entry.env[CARRIED] = Cell(Container(tuple, list(carried)))
        handled = frame.code.handled_in(frame.place.pc, group.env) if frame.catches else None
        if handled is not None:
            entry.env[HANDLED] = handled
        back = frame.place.routine.places[terminator.target]
        saved = Saved(Group(group.rows, live), back, terminator, frame.place.pc, constructs)
        frame.stack.push(group.rows, saved)
        if keys is not None:
            assert frame.paths is not None
            frame.paths.begin(group.rows, keys)
        inside = Group(group.rows, entry.env)
        frame.moves.append((callee, self.entering(frame, entry, inside)))
        return []

    def runs_next(self, level: Level, callee: Place) -> bool:
        """Whether threads that go on there would run at once, and alone."""
        return not level.moves and level.waiting.is_next(callee)

    def opened_keys(
        self, level: Level, group: Group, context: Context, live: dict[str, Cell]
    ) -> np.ndarray | None:
        """The keys of a call's paths; what lives across the call has where its caller draws."""
        if context.paths is None or context.paths.flat:
            return None
        keys, _ = context.paths.opened().here()
        live[DRAWN] = Cell(Column(torch.from_numpy(np.stack(context.paths.here(), 1)), "int"))
        return keys

    def entering(self, level: Level, entry: Entry, group: Group) -> Group:
        """A group at a function's first block, which may be its exit."""
        if level.answers:
            self.state.ways.mark(entry.code.function, 0, [(0, group)])
        return group

    def modes_of(self, level: Level, group: Group) -> tuple[tuple[Any, ...], Hashable]:
        """The modes that a callee runs in, and what they amount to, by which they are one.

        Managers that change nothing are left out, so that a recursion does not pile them up.
        """
        routine, block = level.place.routine, level.code.blocks[level.place.pc]
        managers = modes_of(block, group.env)
        if not managers:
            return routine.modes, routine.ambient
        now = ambient()
        if now == routine.ambient:
            return routine.modes, now
        return level.modes.setdefault(now, (*routine.modes, *managers)), now

    def returned(self, frame: Frame, group: Group, value: Cell) -> Parts:
        """Each thread of the group goes on where its own call was made."""
        assert isinstance(frame, Level)
        done = ended(group, value)
        calling = frame.stack.tops[some(group.rows)] != NONE
        if not calling.any():
            frame.moves.append((frame.end, done))
            return []
        with self.state.moving():
            if not calling.all():
                frame.moves.append((frame.end, part_of(done, np.flatnonzero(~calling))))
                done = part_of(done, np.flatnonzero(calling))
            for resumed in frame.stack.pop(done.rows):
                self.resume(frame, resumed, part_of(done, resumed.positions))
        return []

    def handed_down(self, frame: Frame, group: Group, errors: Cell) -> None:
        """Threads leave their calls, one after the other, until one has a handler for them."""
        assert isinstance(frame, Level)
        leaving = [ended(group, errors)]
        while leaving:
            done = leaving.pop()
            calling = frame.stack.tops[some(done.rows)] != NONE
            here = part_of(done, np.flatnonzero(~calling))
            if here.k:
                piece = Returned(here.rows, here.env[RESULT], carried_by(here), raised=True)
                frame.returned.append(piece)
            done = part_of(done, np.flatnonzero(calling))
            if done.k:
                for resumed in frame.stack.pop(done.rows):
                    leaving += self.caught(frame, resumed, part_of(done, resumed.positions))

    def caught(self, level: Level, resumed: Resumed, done: Group) -> list[Group]:
        """Threads go on in the handler around their call; those without one leave the next."""
        saved = resumed.saved
        draw_on(level, done.rows, resumed.group.env)
        piece, group = settled_call(resumed, done)
        routine = saved.place.routine
        handler = routine.code.blocks[saved.pc].handler
        group.env.pop(INSTANCE, None)
        found = Rower(self.state.context(level, group)).rows(piece.value)
        errors = [self.failures.became(error, (saved.call.span,)) for error in found]
        if handler is None:
            return [ended(group, Cell(Objects(errors)))]
        group.env[handler.out] = Cell(Objects(errors))
        level.moves.append((routine.places[handler.target], group))
        return []

    def resume(self, level: Level, resumed: Resumed, done: Group) -> None:
        """Threads go on after their call, with what it has returned."""
        saved, env = resumed.saved, resumed.group.env
        function = saved.place.routine.code.function
        draw_on(level, done.rows, env)
        piece, group = settled_call(resumed, done)
        if saved.constructs:
            env[saved.call.out] = env.pop(INSTANCE)
        else:
            env[saved.call.out] = piece.value
            group.ways = done.ways if is_tail(function, saved.call) else None
        if level.answers and saved.pc in saved.place.routine.code.exits:
            self.state.ways.mark(function, saved.pc, [(saved.place.pc, group)])
        if self.state.observer is not None:
            self.state.observer.operation(function, saved.call, env)
        level.moves.append((saved.place, group))


def draw_on(level: Level, rows: np.ndarray, env: dict[str, Cell]) -> None:
    """Threads draw again where they did before their call."""
    if DRAWN in env:
        assert level.paths is not None
        keys, numbers = on_host(env.pop(DRAWN).value.data).T  # type: ignore[union-attr]
        level.paths.go(rows, keys, numbers)


def settled_call(resumed: Resumed, done: Group) -> tuple[Returned, Group]:
    """What threads bring from their call, and the caller's group, which has taken it over."""
    env = resumed.group.env
    piece = Returned(done.rows, done.env[RESULT], carried_by(done))
    kept = env.pop(KEPT, None)
    if kept is not None:
        piece.settle(list(kept.value.children()))  # type: ignore[union-attr]
    return piece, Group(done.rows, env)


def ended(group: Group, value: Cell) -> Group:
    """A group that has come to the end of a function: its result, and the caller's cells."""
    env = {name: group.env[name] for name in (CARRIED,) if name in group.env}
    return Group(group.rows, {RESULT: value, **env}, ways=group.ways)


def part_of(group: Group, positions: np.ndarray | None) -> Group:
    """Some of a group's threads; None stands for all."""
    return group if positions is None else restricted(group, positions, list(group.env))


def block_of(place: Place) -> tuple[Function, Label]:
    """The block of a place, for a schedule."""
    return place.routine.code.function, place.pc
