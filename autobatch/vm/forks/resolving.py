"""Results in their places: what a group has waited for, at once or, if need be, one by one.

In: a group and the results of its forked calls. Out: the group, in parts if these are not alike,
with the results instead of the calls, and its deferred operations run. Where one fails, or calls
have effects, a group's entries run one after the other, in program order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autobatch.batching import operations
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.escapes import Escaped
from autobatch.batching.stretches.outline import is_structural
from autobatch.ir.program import Op
from autobatch.values.cells import DEFERRAL, FORK, Cell, Container
from autobatch.values.heap import copying
from autobatch.vm.calling import reach, relinked
from autobatch.vm.failing import Failures
from autobatch.vm.forks.noting import Noting
from autobatch.vm.forks.pending import (
    entries,
    is_branch,
    is_forked,
    is_pending,
    operands_of,
    with_entries,
    without_entries,
)
from autobatch.vm.forks.targets import written
from autobatch.vm.forks.together import ForkedCall, Together, classes, results
from autobatch.vm.groups import FORKED, Group, Parts, restricted
from autobatch.vm.state import Frame, RunState


@dataclass(slots=True, eq=False, repr=False)
class Resolving:
    """Puts results in their places, for a run."""

    state: RunState
    failures: Failures
    noting: Noting
    together: Together

    def resolved(self, frame: Frame, target: int, group: Group, own: Sequence[ForkedCall]) -> Parts:
        """The group with its calls' results in place, in parts if they are not alike."""
        parts: Parts = []
        for rows in classes(own):
            if frame.gone is not None:  # another part has failed
                rows = rows[frame.gone.spares(frame.threads[group.rows[rows]])]
                if not len(rows):
                    continue
            part = group
            if len(rows) < group.k:
                part = restricted(group, rows, list(group.env))
            parts += self.taken_in(frame, target, part, own, rows)
        return parts

    def taken_in(
        self, frame: Frame, target: int, group: Group, own: Sequence[ForkedCall], rows: np.ndarray
    ) -> Parts:
        """A group with the results of some rows of its calls in place, in parts if one fails.

        If a number has left its dtype, all is done again with each result looked at: no block is
        at work that could be gone back to.
        """
        undrawn = frame.drawn()
        for careful in (False, True):
            before = as_it_was(group)
            try:
                return [(target, self.filled(frame, group, results(own, rows), careful))]
            except Escaped:
                frame.redraw(undrawn)
                if before is not group:  # what they write may be the results themselves
                    break
            except Exception:  # of a deferred operation; which comes first, the order tells
                frame.redraw(undrawn)
                break
        return self.in_order(frame, target, before)

    def filled(self, frame: Frame, group: Group, results: Sequence[Cell], careful: bool) -> Group:
        """The group with results in place of its forked calls, deferred operations run.

        What is left to run then are the calls that were deferred, and what waits for them.
        """
        context = self.state.context(frame, group)
        context.careful = careful
        known: dict[int, Cell] = {}
        waiting = iter(results)
        rest: list[Cell] = []
        for cell, entry in entries(group):
            if entry.type is FORK:
                known[id(cell)] = next(waiting)
            elif rest and any(map(is_pending, operands_of(entry, known))):
                rest.append(cell)
            else:
                rest += self.run_deferred(frame, group, context, entry, known)
        context.flush()
        context.leave()
        return with_entries(group, known, rest) if rest else without_entries(group, known)

    def run_deferred(
        self,
        frame: Frame,
        group: Group,
        context: Context,
        entry: Container,
        known: dict[int, Cell],
    ) -> list[Cell]:
        """Run a deferred operation; ``known`` learns what stands for its outs.

        A call is forked; it is among what is left to run.
        """
        op: Op = entry.static
        operands = operands_of(entry, known)
        if op.name == "fork":
            context.span = op.span
            others = [other for _, other in entries(group) if other is not entry]
            kept = kept_beside(group, others, known)
            outs = [self.noting.forked(frame, op, context, operands, kept)]
        elif is_branch(op, operands):
            shared = bool(reach(operands)) and not self.state.is_blind()
            found = [each for _, each in entries(group)] if shared else []
            later = found[found.index(entry) + 1 :] if shared else []
            kept = kept_beside(group, later, known) if shared else []
            outs = [self.noting.branched(context, op, operands, kept)]
        else:
            outs = self.run_one(frame, context, op, operands)
        cells = list(entry.children())
        for out, cell in zip(outs, cells[len(op.args) :], strict=True):
            known[id(cell)] = out
        return [out for out in outs if op.name == "fork" and is_forked(out)]

    def run_one(self, frame: Frame, context: Context, op: Op, operands: list[Cell]) -> list[Cell]:
        """What a deferred operation that is no call gives."""
        if op.name == "unpack" and is_structural(op, operands):
            return list(operands[0].value.children())  # type: ignore[union-attr]
        env = dict(zip(op.args, operands, strict=True))
        operations.execute(context, frame.scope, op, env)
        return [env[out] for out in op.outs]

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
        call = ForkedCall(0, entries(group)[0][1])
        self.together.run_together(frame, [group], [call])
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
            context.careful = True
            frame.span = first[1].static.span
            known: dict[int, Cell] = {}
            try:
                calls_ = self.run_deferred(frame, group, context, first[1], known)
                context.flush()
                context.leave()
            except Exception as error:
                failure = error if isinstance(error, RowsFail) else self.blamed(frame, group, error)
                group = self.failures.dropped(frame, group, context, failure)
            else:
                return with_entries(group, known, [*calls_, *(cell for cell, _ in rest)])
        return group

    def blamed(self, frame: Frame, group: Group, error: Exception) -> RowsFail:
        """The lowest thread for which a deferred operation fails when it runs alone."""
        threads = frame.threads[group.rows]
        for row in np.argsort(threads, kind="stable"):
            part = restricted(group, np.array([row]), list(group.env))
            context = self.state.context(frame, part)
            context.careful = True
            try:
                self.run_deferred(frame, part, context, entries(part)[0][1], {})
                context.flush()
                context.leave()
            except RowsFail as failure:
                return RowsFail(int(row), failure.error, span=failure.span)
            except Exception as alone:
                return RowsFail(int(row), alone)
        return RowsFail(int(np.argmin(threads)), error)


def kept_beside(group: Group, others: Iterable[Container], known: dict[int, Cell]) -> list[Cell]:
    """What the variables and some entries of a group hold, with what is known of it."""
    kept = [cell for name, cell in group.env.items() if name != FORKED]
    kept += [cell for other in others for cell in other.children()]
    return [relinked(cell, known, {}) for cell in kept]


def as_it_was(group: Group) -> Group:
    """The group, or a copy if what it is to run writes what it may have to run again with."""
    noted = (entry for _, entry in entries(group) if entry.type is DEFERRAL)
    if all(written(entry.static, list(entry.children())) is None for entry in noted):
        return group
    env = dict(zip(group.env, copying.duplicated(list(group.env.values())), strict=True))
    return Group(group.rows, env, group.checks, group.ways, group.pending)
