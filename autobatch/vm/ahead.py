"""Running ahead: a block whose failures are for a handler, fast as long as nothing fails.

A thread that fails is to find all as it was at the operation that fails, so the operations of
such a block run one by one, each seen at once (``exact``). Mostly none fails. So they run as in
any other block first, in stretches and with one look at the end, as far as they can be taken back:
operations that change nothing but what the program has made. If any fails, all is taken back, and
the operations run again, one by one.

In: the operations of a block, and its group. Out: the position up to which they have run, for all
threads; the others are to run one by one. Where running ahead has failed, it is not tried again for
a while, twice as long each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autobatch.batching import operations
from autobatch.batching.context import Context, Irrevocable
from autobatch.batching.escapes import Escaped, Snapshot
from autobatch.batching.stretches.outline import has_objects
from autobatch.errors import AutobatchError
from autobatch.ir.program import Op
from autobatch.vm.code import Luck
from autobatch.vm.groups import Group
from autobatch.vm.state import Frame, RunState

LONGEST = 16
"""Executions of a block for which it is not tried, at most."""


@dataclass(slots=True, eq=False, repr=False)
class Ahead:
    """Runs operations of blocks ahead, for a run."""

    run: RunState

    def position(self, frame: Frame, ops: Sequence[Op], group: Group) -> int:
        """Run operations ahead; the position of the first that has not run."""
        if self.run.observer is not None or not group.k:
            return 0
        luck = frame.code.luck.setdefault(self.run.tally.block[1], Luck())
        if luck.wait:
            luck.wait -= 1
            return 0
        before = Snapshot(group.env)
        context = self.run.context(frame, group)
        undrawn = frame.drawn()
        context.lost, context.checks = None, []
        context.eager, context.ahead = False, True
        try:
            reached = self.reached(frame, ops, group, context)
            context.at, context.ahead = None, False
            context.flush()
        except AutobatchError:
            raise
        except (Exception, Escaped, Irrevocable):
            before.restore(group.env)
            frame.redraw(undrawn)
            luck.last = min(2 * luck.last + 1, LONGEST)
            luck.wait = luck.last
            return 0
        luck.last = 0
        return reached

    def reached(self, frame: Frame, ops: Sequence[Op], group: Group, context: Context) -> int:
        work, pc, env = self.run.work, self.run.tally.block[1], group.env
        position = alone = 0
        while position < len(ops):
            op = ops[position]
            if work is not None and position >= alone:
                site = frame.code.site(pc, position, work.executor)
                ahead = site.advance(work, context, frame.scope, env)
                if ahead > position:
                    position = ahead
                    continue
                alone = ~ahead
            if not can_be_taken_back(op, env):
                return position
            frame.span = op.span
            operations.execute(context, frame.scope, op, env)
            position += 1
        return position


def can_be_taken_back(op: Op, env: operations.Env) -> bool:
    """Whether an operation changes nothing but the program's cells."""
    if any(name in env and has_objects(env[name]) for name in op.args):
        return False
    return operations.may_repeat(op, env)
