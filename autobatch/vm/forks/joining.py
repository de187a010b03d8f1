"""Fork-join calls: threads note their calls, and where they join, all of them run as one.

In: groups that have come to a join, with the calls that they forked. Out: the groups with the
results in place. What is found out only when calls run is undone: before its first visible effect
a forked call raises ``NotPure``, and the calls run again, one by one. Where a thread fails, its
calls run again for it alone, in program order, to find its exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field

import numpy as np

from autobatch import errors
from autobatch.batching.calling.resolving import Target
from autobatch.batching.context import Context
from autobatch.ir.program import Branch, Call, Op
from autobatch.values.cells import FORK, Cell
from autobatch.vm.calling import Returned
from autobatch.vm.entering import Entry
from autobatch.vm.failing import Failed, Failures
from autobatch.vm.forks.again import Again
from autobatch.vm.forks.effects import Guard, NotPure
from autobatch.vm.forks.noting import Known, Noting
from autobatch.vm.forks.pending import entries, with_entries
from autobatch.vm.forks.resolving import Resolving
from autobatch.vm.forks.together import ForkedCall, Run, Together, classes
from autobatch.vm.groups import FORKED, Group, Parts, restricted
from autobatch.vm.state import Frame, RunState
from autobatch.vm.within import Within


@dataclass(slots=True, eq=False, repr=False)
class Forks:
    """The forked calls of a run: the operations that note them, and the joins."""

    state: RunState
    failures: Failures
    within: Within
    run: InitVar[Run]
    guard: Guard = field(init=False)
    noting: Noting = field(init=False)
    again: Again = field(init=False)
    together: Together = field(init=False)
    resolving: Resolving = field(init=False)

    def __post_init__(self, run: Run) -> None:
        self.guard = Guard(self.state, self.failures, self.within)
        self.noting = Noting(self.state, self.within, self.guard.disturbing)
        self.again = Again(self.state, self.noting)
        self.together = Together(self.state, self.failures, run, self.noting.scopes)
        self.resolving = Resolving(self.state, self.failures, self.noting, self.together)

    @property
    def active(self) -> bool:
        """Whether a join is at work."""
        return self.together.active > 0

    def note(self, frame: Frame, op: Op, group: Group, context: Context) -> None:
        self.noting.note(frame, op, group, context)

    def noted(self, frame: Frame, op: Op, group: Group) -> bool:
        """Run such an operation in the short way, if it is as plain as when it last ran."""
        return self.again.noted(frame, op, group)

    def learned(self, frame: Frame, op: Op, group: Group, context: Context) -> bool:
        """Whether it is known what a fork is to call, or is now, so that it may be noted so."""
        return self.noting.learned(op, group, context)

    def called(self, op: Op, group: Group, context: Context) -> tuple[Known, list[Cell]] | None:
        """What a fork is to call, and with which arguments, if it may be noted so."""
        return self.noting.called(op, group, context)

    def is_due(self, frame: Frame, op: Op | Branch, group: Group) -> bool:
        """Whether a group's forked calls come first, since what comes next may have effects."""
        active = self.together.active > 0
        asks = active and self.together.asks
        return (active or FORKED in group.env) and self.guard.is_due(frame, op, group, active, asks)

    def is_call_due(self, group: Group, target: Target) -> bool:
        """Whether they come first, since a call may change what they were noted with."""
        return FORKED in group.env and self.guard.disturbing.is_call(group, target)

    def watch(self, context: Context, entry: Entry) -> None:
        if self.active:
            self.guard.watch(context, entry)

    def watch_opaque(self, frame: Frame, call: Call, target: Target) -> None:
        if self.active:
            self.guard.watch_opaque(frame, call, target)

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
                group = self.resolving.run_first(frame, group)
        self.guard.disturbing.forget()
        frame.span, self.state.tally.block = span, at
        return group

    def call_within(self, frame: Frame, group: Group) -> Group:
        """Run the first forked call of a group, to one result for the threads that it leaves."""
        call = ForkedCall(0, entries(group)[0][1])
        self.run_alone(frame, group, call)
        kept = call.spared()
        if not len(kept):
            return restricted(group, kept, [])
        if len(kept) < group.k:
            group = restricted(group, kept, list(group.env))
            call.keep(kept)
        pieces = [Returned(rows, call.result(rows)) for rows in classes([call])]
        result = self.within.joined(self.state.context(frame, group), pieces)
        (first, _), *rest = entries(group)
        return with_entries(group, {id(first): result}, [cell for cell, _ in rest])

    def run_alone(self, frame: Frame, group: Group, call: ForkedCall) -> None:
        """Run one forked call of a group; again where it has effects, or fails, to tell what of."""
        if self.active:
            self.together.run_together(frame, [group], [call])
            return
        before = Failed.of(self.failures)
        try:
            with self.together.guarded():
                self.together.run_together(frame, [group], [call])
            if self.failures.errors is before.errors:
                return
            before.restore(self.failures)
        except NotPure as found:
            before.restore(self.failures)
            self.guard.give_up([group], found)
        self.together.run_together(frame, [group], [call])

    def join(self, frame: Frame, target: int, groups: Sequence[Group]) -> Parts:
        """Run the forked calls of groups that have come to a join; they go on at ``target``."""
        parts: Parts = [(target, group) for group in groups if FORKED not in group.env]
        waiting = [group for group in groups if FORKED in group.env]
        if not waiting:
            return parts
        self.guard.disturbing.forget()
        before = Failed.of(self.failures)
        try:
            forked = self.together.run_calls(frame, waiting)
        except NotPure as found:
            if self.active:
                raise
            before.restore(self.failures)
            self.guard.give_up(waiting, found)
            for group in waiting:
                parts += self.resolving.in_order(frame, target, group)
            return parts
        if self.failures.errors is not before.errors and not self.active:
            self.find_exceptions(frame, waiting, before)
        for index, group in enumerate(waiting):
            own = [call for call in forked if call.group == index]
            parts += self.resolving.resolved(frame, target, group, own)
        again = [group for _, group in parts if FORKED in group.env]
        if again:  # calls of what these have given
            parts = [part for part in parts if FORKED not in part[1].env]
            parts += self.join(frame, target, again)
        return parts

    def first_fail(self, frame: Frame, group: Group, rows: np.ndarray) -> None:
        """Rows are to fail: what they forked before may fail first, in program order."""
        if FORKED not in group.env or self.active:
            return
        found = Failed.of(self.failures)
        has_failed = self.failures.forgive(frame.threads[group.rows[rows]])
        before = Failed.of(self.failures)
        alone = restricted(group, rows, list(group.env))
        alone.checks = []  # to be seen are those since the last fork
        self.resolving.in_order(frame, 0, alone)
        if has_failed:
            self.put_first(before, found)

    def find_exceptions(self, frame: Frame, groups: Sequence[Group], before: Failed) -> None:
        """Run failing threads again, by themselves and in program order; keep what they raise."""
        found = Failed.of(self.failures)
        new = self.failures.since(before.errors)
        threads = [t for t, error in new.items() if not isinstance(error, errors.StepLimitError)]
        before.restore(self.failures)
        self.together.alone = True
        try:
            for group in groups:
                rows = np.flatnonzero(np.isin(frame.threads[group.rows], threads))
                if len(rows):
                    self.resolving.in_order(frame, 0, restricted(group, rows, list(group.env)))
        finally:
            self.together.alone = False
        self.put_first(before, found)

    def put_first(self, before: Failed, found: Failed) -> None:
        """Of what threads had raised, and do in program order, the latter, where they do."""
        if self.failures.isolate:
            again = self.failures.since(before.errors)
            kept = {t: e for t, e in again.items() if not isinstance(e, errors.StepLimitError)}
            self.failures.put({**before.errors, **found.errors, **kept})
        elif self.failures.errors is before.errors:
            found.restore(self.failures)
