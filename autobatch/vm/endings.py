"""How a block ends: a jump, a branch, a call, a join, a return or a raise.

In: a group whose operations have run. Out: the groups that go on, and where. Rows that fail at the
end of a block leave the group; the others come to the end once more. What a call of a program
function does is the engine's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from autobatch.batching import calls, operations
from autobatch.batching.calling import resolving
from autobatch.batching.containers.starring import Differing
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.escapes import Snapshot
from autobatch.batching.late_reads import refuse_call
from autobatch.ir.program import Branch, Call, Join, Jump, Raise, Return, Terminator
from autobatch.values.cells import Cell
from autobatch.vm.blocks import Blocks
from autobatch.vm.calling import Returned
from autobatch.vm.driven import plain_end
from autobatch.vm.failing import Failures
from autobatch.vm.forks import Forks
from autobatch.vm.groups import CARRIED, Group, Parts, restricted
from autobatch.vm.laying_open import laid_open, name_of, uses_up
from autobatch.vm.modes import by_modes
from autobatch.vm.state import Frame, RunState
from autobatch.vm.within import FRAMED, Within

CALLEE = "%callee"


@dataclass(slots=True, eq=False, repr=False)
class Endings(ABC):
    """What an engine has at hand for one run, and the ends of its blocks."""

    state: RunState
    failures: Failures = field(init=False)
    blocks: Blocks = field(init=False)
    within: Within = field(init=False)
    forks: Forks = field(init=False)
    modes: dict[Hashable, Any] = field(default_factory=dict)

    @abstractmethod
    def program_call(
        self,
        frame: Frame,
        terminator: Call,
        group: Group,
        context: Context,
        target: resolving.Target,
    ) -> Parts:
        """A call of a program function, or one that builds an instance of the user's class."""

    @abstractmethod
    def is_next(self, frame: Frame, target: int) -> bool:
        """Whether a group that jumps to a block would run there at once, and alone."""

    def ended(
        self,
        frame: Frame,
        terminator: Terminator,
        group: Group,
        context: Context | None = None,
    ) -> Parts:
        """The terminator, once drivers have run the operations, in a context if they needed one."""
        plain = plain_end(self.state, frame, terminator, group, context)
        if plain is not None:
            return plain
        context = context or self.state.context(frame, group)
        frame.span = context.span = terminator.span
        return self.finished(frame, terminator, group, context)

    def finished(
        self, frame: Frame, terminator: Terminator, group: Group, context: Context
    ) -> Parts:
        """The terminator, for the rows that failures in it leave."""
        while True:
            undrawn = frame.drawn()
            if frame.exact:
                frame.snapshot = Snapshot(group.env)
            try:
                return self.finish(frame, terminator, group, context)
            except RowsFail as failed:
                failure = failed  # what is raised from now on has no context
            if isinstance(terminator, Call):
                cells = [group.env[name] for name in terminator.args if name in group.env]
                context.tell(failure.error, cells, failure.row)
            frame.redraw(undrawn, failure)
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
        if not terminator.shape.is_plain and uses_up(terminator.shape, cells):
            opened = laid_open(context, terminator, terminator.shape, callee, group.env)
            return self.finished(frame, opened, group, context)
        differing: Differing | None = None
        try:
            args, kwargs = operations.arguments(context, terminator.shape, callee, cells)
        except Differing as found:
            differing = found
        context.leave()
        if differing is not None:
            return self.parted_call(frame, terminator, group, differing)
        target = resolving.resolve(callee, args, kwargs)
        if self.forks.is_call_due(group, target):
            group, context = self.blocks.drained(frame, group, context)
            return self.finish_call(frame, terminator, group, context) if group.k else []
        if target.effect == "objects":
            return self.scattered_call(frame, terminator, group, callee)
        if target.effect not in FRAMED:
            refuse_call(context, target, callee)
            target = target.called_by(terminator.shape)
            return self.opaque_call(frame, terminator, group, context, target)
        context.flush()
        group.checks = []
        if self.state.plainly is not None:
            parts = self.state.plainly.call(self, frame, terminator, group)
            if parts is not None:
                return parts
        return self.program_call(frame, terminator, group, context, target)

    def kept(self, frame: Frame, terminator: Call, group: Group) -> dict[str, Cell]:
        """The variables that a group needs after a call, wherever it goes on."""
        names = frame.code.kept(terminator, frame.handler)
        return {name: cell for name, cell in group.env.items() if name in names}

    def returned(self, frame: Frame, group: Group, value: Cell) -> Parts:
        """A group that has come to the end of its function."""
        frame.returned.append(Returned(group.rows, value, carried_by(group), ways=group.ways))
        return []

    def opaque_call(
        self,
        frame: Frame,
        terminator: Call,
        group: Group,
        context: Context,
        target: resolving.Target,
    ) -> Parts:
        """A call that ends its block, of what turns out to be no program function."""
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
        return [(terminator.target, group)] if group.k or frame.waiting.empty else []

    def scattered_call(self, frame: Frame, terminator: Call, group: Group, callee: Cell) -> Parts:
        """A call whose callee differs by thread: each callee for its own threads."""
        parts: Parts = []
        called = resolving.called_by_partials(callee)
        if called is not callee:
            group.env[CALLEE] = callee  # what it hands on is to be one with what variables name
        for rows, part in resolving.partition(called):
            own = restricted(group, np.array(rows, dtype=np.int64), list(group.env))
            if called is not callee:
                part = resolving.calling(own.env[CALLEE], part)
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
        names = tuple(name_of(place) for place in range(len(differing.cells)))
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
