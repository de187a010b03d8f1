"""One block for one group: its straight-line operations, and what its branch or raise makes of it.

In: a group, and the context of the block execution. Out: the group after the operations, without
the rows that have failed; of a branch, the parts and where each goes on (see ``branching``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from autobatch import errors
from autobatch.batching import operations
from autobatch.batching.arithmetic import loose_columns
from autobatch.batching.context import Context, Due, RowsFail, operands_of
from autobatch.batching.escapes import Escaped, Pending, Snapshot
from autobatch.batching.host import catching
from autobatch.batching.host.rower import Rower
from autobatch.batching.late_reads import written_in
from autobatch.batching.levels import DrawError
from autobatch.batching.stretches.outline import is_uniform
from autobatch.batching.truths import truth
from autobatch.batching.unseen import refuse_late
from autobatch.ir.dataflow import terminator_reads
from autobatch.ir.program import Branch, Jump, Op, Raise
from autobatch.values.cells import Cell, Column, Objects, Uniform, read
from autobatch.vm.ahead import Ahead
from autobatch.vm.branching import parted, see
from autobatch.vm.failing import Failures, no_data, separate
from autobatch.vm.groups import Group, Parts, restricted
from autobatch.vm.laying_open import forget, laid_open, standing, uses_up
from autobatch.vm.state import Frame, Leaving, RunState


class Forks(Protocol):
    """What operations need of fork-join calls; see ``forks``."""

    def note(self, frame: Frame, op: Op, group: Group, context: Context) -> None: ...
    def noted(self, frame: Frame, op: Op, group: Group) -> bool: ...
    def learned(self, frame: Frame, op: Op, group: Group, context: Context) -> bool: ...
    def called(
        self, op: Op, group: Group, context: Context
    ) -> tuple[Any, Sequence[Cell]] | None: ...
    def first_fail(self, frame: Frame, group: Group, rows: np.ndarray) -> None: ...
    def is_due(self, frame: Frame, op: Op | Branch, group: Group) -> bool: ...
    def drained(self, frame: Frame, group: Group, context: Context) -> Group: ...


@dataclass(slots=True, eq=False, repr=False)
class Blocks:
    """Runs operations, branches and raises of a run."""

    run: RunState
    failures: Failures
    forks: Forks
    is_next: Callable[[Frame, int], bool]

    def operations(
        self, frame: Frame, ops: Sequence[Op], group: Group, context: Context, position: int = 0
    ) -> tuple[Group, Context]:
        """Run straight-line operations, dropping rows that fail."""
        if frame.exact and not position and not context.checks:
            position = Ahead(self.run).position(frame, ops, group)
        work, pc = None if context.eager else self.run.work, self.run.tally.block[1]
        alone = len(ops) if context.careful else 0
        while position < len(ops):
            op = laid = ops[position]
            undrawn = frame.drawn()
            failed: Exception | None = None
            try:
                if work is not None and position >= alone:
                    ahead = frame.code.site(pc, position, work.executor).advance(
                        work, context, frame.scope, group.env
                    )
                    if ahead > position:
                        position = ahead
                        continue
                    alone = ~ahead
                frame.span = op.span
                if frame.exact:
                    frame.snapshot = Snapshot(group.env)
                if self.forks.is_due(frame, op, group):
                    group, context = self.drained(frame, group, context)
                    if not group.k:
                        break
                if op.name == "call" and not op.attr.is_plain:
                    laid = standing(op, group.env)
                    if laid is op and self.opens(op, group, context):
                        continue
                self.perform(frame, laid, group, context, op)
                if context.lost:
                    context.settle()
            except errors.AutobatchError:
                raise
            except Due:
                group, context = self.drained(frame, group, context)
                if not group.k:
                    break
                continue
            except Escaped as escaped:
                group, context, position = self.taken_back(frame, ops, group, context, escaped)
                alone = len(ops)
                if not group.k:
                    break
                continue
            except Exception as error:
                failed = error
            if failed is not None:  # outside of `except`: what is raised now has no context
                if frame.catches:
                    self.refuse_draw(failed, context)
                frame.redraw(undrawn, failed)
                failure = self.blamed(frame, laid, group, context, failed)
                group, context = self.left(frame, group, context, failure)
                if not group.k:
                    break
                if failure.partial is None:
                    continue
                if failure.parts is not None:
                    group.env.update(zip(op.outs, failure.parts, strict=True))
                elif op.outs:
                    group.env[op.outs[0]] = failure.partial
            if context.lost:
                group, context = self.left(frame, group, context)
                if not group.k:
                    break
            if laid is not op:
                forget(group.env)
            if self.run.observer is not None:
                self.run.observer.operation(frame.code.function, op, group.env)
            position += 1
        context.at = None
        if context.checkpoint is not None:
            return self.seen_to_end(frame, ops, group, context)
        return group, context

    def drained(self, frame: Frame, group: Group, context: Context) -> tuple[Group, Context]:
        """The group once its forked calls have run, since what comes next may have effects."""
        group = self.forks.drained(frame, group, context)
        eager, context = context.eager, self.run.context(frame, group)
        context.eager = eager
        return group, context

    def opens(self, op: Op, group: Group, context: Context) -> bool:
        """Whether a call lays ``*x`` of iterators open, which takes all of them: done then."""
        context.span = op.span
        callee, *cells = operations.operands(context, op.args, group.env)
        if not uses_up(op.attr, cells):
            return False
        context.settle()
        context.begin(op, group.env)
        laid_open(context, op, op.attr, callee, group.env)
        return True

    def perform(
        self, frame: Frame, op: Op, group: Group, context: Context, stands: Op | None = None
    ) -> None:
        """Run one operation by itself."""
        if op.name in ("fork", "defer"):
            context.settle()
            self.forks.note(frame, op, group, context)
        else:
            operations.execute(context, frame.scope, op, group.env, stands)

    def left(
        self, frame: Frame, group: Group, context: Context, failure: RowsFail | None = None
    ) -> tuple[Group, Context]:
        """The group without the threads that leave, since they or some below have failed."""
        self.failures.gather(context, failure)
        if frame.catches:
            return self.parted_off(frame, group, context, again=failure is not None)
        if context.lost is not None:
            lost = [thread in context.lost for thread in context.threads.tolist()]
            self.forks.first_fail(frame, group, np.flatnonzero(lost))
        elif failure is not None:
            self.forks.first_fail(frame, group, np.array([failure.row]))
        group = self.failures.dropped(frame, group, context, failure)
        new = self.run.context(frame, group)
        new.eager, new.span = context.eager, context.span
        return group, new

    def parted_off(
        self, frame: Frame, group: Group, context: Context, again: bool
    ) -> tuple[Group, Context]:
        """The group without the threads that leave for a handler, with all as it was for them.

        As it was for the others too, if the operation is to run ``again``. Where what it has done
        ``stays``, they leave with that.
        """
        lost = context.lost
        assert lost is not None
        leave = np.array([key in lost for key in context.keys.tolist()], dtype=bool)
        here = np.ones(group.k, dtype=bool)
        if frame.gone is not None:
            here = frame.gone.spares(frame.threads[group.rows])
        snapshot = frame.snapshot

        def parted(rows: np.ndarray, is_as_before: bool) -> Group:
            if is_as_before and snapshot is not None:
                snapshot.restore(group.env)
            return restricted(group, np.flatnonzero(here & rows), list(group.env))

        if context.stays:
            leaving, rest = parted(leave, False), parted(~leave, again)
        else:
            rest, leaving = parted(~leave, again), parted(leave, True)
        leaving.checks, leaving.ways, rest.checks = [], None, []
        forget(leaving.env)
        found = [lost[row] for row in leaving.rows.tolist()]
        failures, place = self.failures, context.span
        errors_ = [
            failures.caught(failures.became(error, (span, place)), span or place)
            for error, span in found
        ]
        frame.leaving.append(Leaving(leaving, errors_, frame.handler))
        new = self.run.context(frame, rest)
        new.span = context.span
        return rest, new

    def seen_to_end(
        self, frame: Frame, ops: Sequence[Op], group: Group, context: Context
    ) -> tuple[Group, Context]:
        """See what may not fit before the block is left, unless its branch is about to read."""
        if type(frame.code.blocks[self.run.tally.block[1]].terminator) is Branch:
            return group, context
        if self.take_along(frame, ops, group, context):
            return group, context
        try:
            context.settle()
        except Escaped as escaped:
            found = escaped
        else:
            return group, context
        group, context, position = self.taken_back(frame, ops, group, context, found)
        return self.operations(frame, ops, group, context, position)

    def take_along(self, frame: Frame, ops: Sequence[Op], group: Group, context: Context) -> bool:
        """Whether the group goes straight on, so that the next block sees what may not fit."""
        block = frame.code.blocks[self.run.tally.block[1]]
        if type(block.terminator) is not Jump or block.modes or frame.gone is not None:
            return False
        target = block.terminator.target
        after = frame.code.blocks[target]
        plain = not after.modes and after.handler is None and not frame.catches
        plain = plain and not self.run.settings.isolate
        if not (plain and self.is_next(frame, target)):
            return False
        checkpoint = context.checkpoint
        assert checkpoint is not None
        checkpoint.blocks.append(ops)
        group.pending = Pending(context.escapes, checkpoint)
        context.escapes, context.checkpoint = [], None
        return True

    def taken_back(
        self,
        frame: Frame,
        ops: Sequence[Op],
        group: Group,
        context: Context,
        escaped: Escaped,
    ) -> tuple[Group, Context, int]:
        """The group as it was before a result that does not fit, and where to go on in its block.

        Blocks that it has come through since are run again, each result looked at.
        """
        passed = escaped.checkpoint.blocks
        position = escaped.checkpoint.restore(passed[0] if passed else ops, group.env)
        for earlier in passed:
            context.careful = True
            group, context = self.operations(frame, earlier, group, context, position)
            position = 0
        context.careful = True
        return group, context, position

    def refuse_draw(self, failed: Exception, context: Context) -> None:
        """A draw that is refused is none of the program's failures: no handler gets it."""
        refused = failed.error if isinstance(failed, RowsFail) else failed
        if isinstance(refused, DrawError):
            self.failures.note(refused, context.threads.tolist(), context.span)
            raise refused

    def blamed(
        self, frame: Frame, op: Op, group: Group, context: Context, error: Exception
    ) -> RowsFail:
        """The lowest row that fails: at the operation, or at one before, not yet seen.

        Where threads leave one by one, all that fail at the operation are lost.
        """
        if not context.k:
            raise no_data(op.span) from error
        order = context.order()
        if context.lost is not None:
            if not context.lost:
                earlier = unseen(context)
                if earlier is not None:
                    return earlier
                self.lose(frame, op, group, context, np.array(order, dtype=np.int64))
            if context.lost:
                return RowsFail(order[0], error)
        failure = (
            error if isinstance(error, RowsFail) else self.lowest(frame, op, group, order, error)
        )
        earlier = unseen(context)
        if earlier is not None:  # a part that some row has not, say, is not to be read
            return min(earlier, failure, key=lambda each: int(context.threads[each.row]))
        if failure.span is None or failure.span is op.span:
            context.tell(failure.error, operands_of(op, group.env), failure.row)
        return failure

    def lowest(
        self, frame: Frame, op: Op, group: Group, order: list[int], error: Exception
    ) -> RowsFail:
        """The lowest row for which an operation fails, by bisection."""
        names = list(group.env)
        low, high = 0, len(order)  # the first ``high`` rows fail, the first ``low`` do not
        found: BaseException = error
        while high - low > 1:
            middle = (low + high) // 2
            raised = self.tried(frame, op, group, np.array(order[:middle], dtype=np.int64), names)
            if raised is None:
                low = middle
            else:
                high, found = middle, raised
        alone = self.tried(frame, op, group, np.array(order[high - 1 : high]), names)
        return RowsFail(order[high - 1], alone if alone is not None else found)

    def lose(
        self, frame: Frame, op: Op, group: Group, context: Context, positions: np.ndarray
    ) -> None:
        """Note which of some rows an operation fails for: by halves, down to single rows."""
        error = self.tried(frame, op, group, positions, list(group.env))
        if error is None:
            return
        if len(positions) > 1 and not is_alike(op, group.env):
            for half in np.array_split(positions, 2):
                self.lose(frame, op, group, context, half)
            return
        for place, row in enumerate(positions.tolist()):
            own = separate(error) if place else error
            context.tell(own, operands_of(op, group.env), row)
            context.lose(row, own, op.span)

    def tried(
        self, frame: Frame, op: Op, group: Group, positions: np.ndarray, names: list[str]
    ) -> BaseException | None:
        part = restricted(group, positions, names)
        part.checks = []
        context = self.run.context(frame, part)
        context.careful = True
        undrawn = frame.drawn()
        try:
            with self.run.contributions.tried():
                self.perform(frame, op, part, context)
        except RowsFail as failure:
            return noted(context) or failure.error
        except errors.AutobatchError:
            raise
        except Exception as error:
            return noted(context) or error
        finally:
            frame.redraw(undrawn)
        return next((error for error, _ in context.lost.values()), None) if context.lost else None

    def raise_(self, context: Context, terminator: Raise, group: Group) -> None:
        """All rows of the group raise; the lowest one's exception counts, unless all are lost."""
        if not group.k:
            raise no_data(terminator.span)
        context.span = terminator.span
        for row, error in catching.raised(
            context, operations.operands(context, terminator_reads(terminator), group.env)
        ):
            context.lose(row, error, self.failures.origin(error))
        context.leave()

    def decided(
        self, frame: Frame, terminator: Branch, group: Group, context: Context
    ) -> np.ndarray | bool:
        """The rows whose condition is true; one bool where it is the same for all."""
        (cell,) = operations.operands(context, (terminator.condition,), group.env)
        late = written_in(context, [cell])
        if late:
            context.span = terminator.span
            raise refuse_late(context, late)
        value = read(truth(context, cell))
        context.leave()
        if type(value) is Uniform:
            context.settle()
            return bool(value.obj)
        if not group.k:
            raise no_data(terminator.span)
        assert type(value) is Column
        loose = loose_columns(group.env)
        if loose:
            live = frame.code.live
            names = (*live[terminator.then], *live[terminator.otherwise])
            loose = {name: loose[name] for name in names if name in loose}
        return see(context, value.data, list(loose.values()))

    def branch(self, frame: Frame, terminator: Branch, group: Group, context: Context) -> Parts:
        """The rows whose condition is true go one way, the others the other way."""
        try:
            try:
                if self.forks.is_due(frame, terminator, group):
                    group, context = self.drained(frame, group, context)
                    if not group.k:
                        return []
                taken = self.decided(frame, terminator, group, context)
            except RowsFail:
                context.settle()  # it may have failed on rows that are not what they should be
                raise
        except Escaped as escaped:
            found = escaped
        else:
            if type(taken) is bool:
                group.checks = context.checks
                return [(terminator.then if taken else terminator.otherwise, group)]
            return parted(self.run, frame, terminator, group, taken)
        ops = frame.code.blocks[self.run.tally.block[1]].ops
        group, context, position = self.taken_back(frame, ops, group, context, found)
        group, context = self.operations(frame, ops, group, context, position)
        return self.branch(frame, terminator, group, context) if group.k else []


def noted(context: Context) -> BaseException | None:
    """What an operation has noted of its rows before it failed."""
    failure = unseen(context)
    return None if failure is None else failure.error


def unseen(context: Context) -> RowsFail | None:
    """The failure of the lowest row that a check has noted, and nobody has looked at yet."""
    try:
        context.flush()
    except RowsFail as failure:
        return failure
    return None


def is_alike(op: Op, env: dict[str, Cell]) -> bool:
    """Whether an operation does the same for all threads, since it gets the same from them."""
    cells = [env[name] for name in op.args if name in env]
    return operations.may_repeat(op, env) and all(map(is_uniform, cells))


def objectify(state: RunState, threads: np.ndarray, group: Group, names: Sequence[str]) -> None:
    """Turn variables of a group into objects; ``threads`` has the thread of each of its rows."""
    rower = Rower(state.context_of(threads, group), keep=True)
    for name in names:
        group.env[name] = Cell(Objects(rower.rows(group.env[name])))
