"""Noting a call once more, as it was noted before: most of what that finds out is the same.

A recursion comes by the same ``fork`` at each level, with the same callee and operands of the same
kinds. What the call enters, and that it may run out of turn, then need not be found out again.

In: a ``fork`` or ``defer`` operation and a group. Out: whether it has been noted; where not,
nothing has changed, and ``noting`` does it. Invariant: what is known was found out in the same run,
and no code has run since that could change what names mean (see ``judgements``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from autobatch.batching.stretches.outline import is_structural
from autobatch.ir.program import Op
from autobatch.values.cells import DEFERRAL, FORK, PENDING, Cell, Container
from autobatch.vm.forks.noting import Noting
from autobatch.vm.forks.pending import is_pending, remember, snapshot
from autobatch.vm.groups import FORKED, Group
from autobatch.vm.state import Frame, RunState


@dataclass(slots=True, eq=False, repr=False)
class Again:
    """The operations of a run that fork or defer, when it comes by them again."""

    state: RunState
    noting: Noting
    deferred: dict[int, tuple[Op, Op]] = field(default_factory=dict)

    def noted(self, frame: Frame, op: Op, group: Group) -> bool:
        """Whether an operation has been noted in the short way."""
        cells = [group.env[name] for name in op.args if name in group.env]
        if len(cells) < len(op.args) or not group.k:
            return False
        frame.span = op.span
        if op.name == "fork":
            return self.forked(frame, op, group, cells)
        return self.put_off(op, group, cells)

    def forked(self, frame: Frame, op: Op, group: Group, cells: Sequence[Cell]) -> bool:
        """The same of a call, by what is known of it."""
        known, judgements = self.noting.known.get(id(op)), self.state.judgements
        if known is None or judgements is None or known.times != judgements.times:
            return False
        args = None if frame.paths is not None else known.arguments(cells[0], cells[1:])
        if args is None:
            return False
        params = dict(zip(known.names, snapshot(args), strict=True))
        cell = group.env[op.outs[0]] = Cell(Container(FORK, params, known.static))
        remember(group, cell)
        return True

    def put_off(self, op: Op, group: Group, cells: Sequence[Cell]) -> bool:
        """The same of what waits for a call's result; if there is none, it only takes apart."""
        name, attr = op.attr
        if name == "fork":
            return False
        _, plain = self.deferred.get(id(op)) or (op, None)
        if plain is None:
            plain = Op(name, op.outs, op.args, attr, op.span)
            self.deferred[id(op)] = (op, plain)
        if all(map(is_awaited, cells)):
            outs = [Cell(Container(PENDING, [])) for _ in op.outs]
            remember(group, Cell(Container(DEFERRAL, [*cells, *outs], plain)))
        elif name == "unpack" and FORKED not in group.env and is_structural(plain, list(cells)):
            if is_pending(cells[0]):
                return False
            outs = list(cells[0].value.children())  # type: ignore[union-attr]
        else:
            return False
        group.env.update(zip(op.outs, outs, strict=True))
        return True


def is_awaited(cell: Cell) -> bool:
    """Whether it is a result yet to come."""
    value = cell.value
    return type(value) is Container and value.type in (FORK, PENDING)
