"""Block executions: one block for one group, in the short way where it is plain.

In: a group and the block that it runs next. Out: the groups that go on, and where. Threads that
fail go to the block's handler, or leave for one of a caller's.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from autobatch.batching.context import RowsFail
from autobatch.ir.program import Call, Converted, Join, Return
from autobatch.source import Span
from autobatch.values.cells import Cell, Objects
from autobatch.vm.bottom_up import goes_bottom_up
from autobatch.vm.calling import Returned
from autobatch.vm.descending import descended
from autobatch.vm.driven import converted, driven, is_plain
from autobatch.vm.endings import Endings, carried_by
from autobatch.vm.groups import CARRIED, Group, Parts
from autobatch.vm.modes import by_modes, entered_modes
from autobatch.vm.spinning import spun
from autobatch.vm.state import Frame

NO_MODES = nullcontext()


@dataclass(slots=True, eq=False, repr=False)
class Stepping(Endings):
    """The block executions of one run."""

    def execute(self, frame: Frame, pc: Any, group: Group) -> list[tuple[Any, Group]]:
        """Execute one block for a group; where it ends in a join, all that wait there join in."""
        parts = self.step(frame, pc, group)
        if type(frame.code.blocks[pc].terminator) is Join:
            return self.joined(frame, pc, parts)
        return parts

    def joined(self, frame: Frame, pc: int, gone: Parts) -> Parts:
        """Let all groups that wait at a join come to it, and run what they have forked as one.

        Those that plain Python has taken past it, ``gone`` among them, go on where it left them.
        """
        for group in frame.waiting.others(pc):
            gone = [*gone, *self.step(frame, pc, group)]
        if not frame.joining:
            return gone
        join = frame.code.blocks[pc].terminator
        assert isinstance(join, Join)
        frame.span = join.span
        groups, frame.joining = frame.joining, []
        if frame.gone is not None:
            groups = [self.failures.remaining(frame, group) for group in groups]
        groups = [group for group in groups if group.k]
        return [*gone, *self.forks.join(frame, join.target, groups)]

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

    def limited(self, frame: Frame, span: Span, group: Group) -> Group:
        """The group without the threads for which one more block execution is too many."""
        steps = self.state.steps
        frame.span = span
        stopped = steps.stopped(frame.threads[group.rows])
        if not len(stopped) and group.k:
            return group
        meet = self.failures.stop if steps.own is None else self.failures.bound
        meet(stopped, partial(steps.too_many, span))
        return self.failures.remaining(frame, group)

    def run_block(self, frame: Frame, pc: int, group: Group) -> Parts:
        """Execute one block for a group; the groups that go on, and where."""
        state = self.state
        if frame.gone is not None:
            group = self.failures.remaining(frame, group)
        if not group.k and not frame.waiting.empty:
            return []
        listening = bool(state.steps.listeners)
        started = time.perf_counter() if listening else 0.0
        block = frame.code.blocks[pc]
        if state.steps.spent:
            group = self.limited(frame, block.terminator.span, group)
            if not group.k:
                return []
        state.begin(frame, pc, group)
        trial = state.tally.trial
        if trial is not None:
            trial.judge()
        plain, end = is_plain(state, block, group), block.terminator
        if plain and type(end) is Return and not block.ops:  # where other returns lead to
            return self.returned(frame, group, group.env[end.value])
        if state.plainly is not None and state.guard is None:  # else it looks at single steps
            parts = state.plainly.run(self, frame, pc, group)
            if parts is not None:
                return parts
        if plain and frame.code.varying(pc) is not None:
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
        position, known = 0, None
        if plain:
            descends = pc in frame.code.descending
            if descends:
                if not pc and goes_bottom_up(state, self.forks, frame, group):
                    return []
                gone = descended(state, self.forks, frame, pc, group, whole=True)
                if gone is not None:
                    return gone
            position, known = driven(state, self.forks, frame, pc, group)
            if position == len(block.ops):
                if descends:
                    gone = descended(state, self.forks, frame, pc, group, whole=False)
                    if gone is not None:
                        return gone
                return self.ended(frame, block.terminator, group, known)
        if block.modes:  # groups that were too unlike may have met
            group, *others = by_modes(block, group, self.modes)
            if others:
                return [(pc, part) for part in (group, *others)]
        context = known or state.context(frame, group)
        grad = torch.is_grad_enabled()
        inner = 0.0
        with entered_modes(block, group.env) if block.modes else NO_MODES:
            group, context = self.blocks.operations(frame, block.ops, group, context, position)
            if not group.k and not frame.waiting.empty:
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
