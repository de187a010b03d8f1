"""Results that may not fit their column: noted by a kernel, seen with the next read.

An operation on number columns goes on with what its kernel gave where their intervals cannot
exclude that a row leaves its dtype (``n * n`` near 2**63, ``int(x)`` of 1e30). In: an ``Escape``
for each such result, or for all of a stretch. The next host read of the block execution looks at
all of them; if a row has left, ``Escaped`` takes everything back to the ``Checkpoint`` before the
first of them, and the operations run again, each looking at once and recomputing such rows with
Python's numbers.

Where a block ends in a jump and its group goes straight on, they go on with it (``Pending``), to be
seen with the next block's read; then that block is done again from its beginning.

Invariant: an escape is seen before anything that cannot be taken back: data on the host, a visible
effect, a draw, the meeting with another group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from autobatch.compat import on_one_device
from autobatch.ir.program import Op
from autobatch.values.cells import Cell, Column, Container, Objects, Value, View


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Escape:
    """``left`` ``[k]``: the rows that have left; if none has, ``columns`` hold these ints."""

    left: Tensor
    columns: tuple[Column, ...]


def any_left(escapes: Sequence[Escape]) -> Tensor:
    """Whether a row has left by any of them, as an int64 ``[1]``."""
    masks = [escape.left for escape in escapes]
    left = masks[0] if len(masks) == 1 else torch.stack(on_one_device(masks))
    return left.any().to(torch.int64).reshape(1)


def ends_of(columns: Iterable[Column]) -> list[Tensor]:
    """The least and the most of each int column, ``[1]`` each."""
    return [end.reshape(1) for column in columns for end in torch.aminmax(column.data)]


def bind(columns: Iterable[Column], ends: Sequence[int]) -> None:
    """Take in where the ints of the columns lie."""
    for place, column in enumerate(columns):
        column.bounds = (ends[2 * place], ends[2 * place + 1])


@dataclass(slots=True, eq=False, repr=False)
class Snapshot:
    """How a group's variables were, with all that they reach.

    Objects stay what they are: what an operation did to them, it did to each thread's own.
    """

    env: dict[str, Cell]
    values: list[tuple[Cell, Value, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Keep what each cell holds: it may be written later."""
        self.env = dict(self.env)
        seen: set[int] = set()
        waiting: list[Cell] = list(self.env.values())
        while waiting:
            cell = waiting.pop()
            if id(cell) in seen:
                continue
            seen.add(id(cell))
            value = cell.value
            parts: Iterable[Cell] = ()
            if type(value) is Container:
                parts = value.children()
                self.values.append((cell, value, value.cells.copy()))
            else:
                parts = (value.base, *value.args) if type(value) is View else ()
                self.values.append((cell, value, None))
            waiting.extend(parts)

    def restore(self, env: dict[str, Cell]) -> None:
        """Take ``env`` back to how it was."""
        self.put_back()
        env.clear()
        env.update(self.env)

    def put_back(self) -> None:
        """Let all cells hold what they held."""
        for cell, value, parts in self.values:
            if type(cell.value) is Objects:
                continue
            cell.value = value
            if type(value) is Container and isinstance(value.cells, dict):
                value.cells.clear()
                value.cells.update(parts)
            elif type(value) is Container:
                value.cells[:] = parts


@dataclass(slots=True, eq=False, repr=False)
class Checkpoint:
    """How a block's variables were before ``op``; ``checks`` were pending then.

    ``blocks`` are the operations of the blocks that the group has gone through since, its own
    first; none while it is in that one.
    """

    op: Op
    env: dict[str, Cell]
    checks: int
    blocks: list[Sequence[Op]] = field(default_factory=list)
    snapshot: Snapshot = field(init=False)

    def __post_init__(self) -> None:
        self.snapshot = Snapshot(self.env)

    def restore(self, ops: Sequence[Op], env: dict[str, Cell]) -> int:
        """Take ``env`` back to how it was; the position from which the operations run again."""
        self.snapshot.restore(env)
        return next(place for place, op in enumerate(ops) if op is self.op)


@dataclass(slots=True, eq=False, repr=False)
class Pending:
    """Escapes that a group takes along to the next block."""

    escapes: list[Escape]
    checkpoint: Checkpoint


class Escaped(BaseException):
    """Rows have left their dtype: what follows ``checkpoint`` is to be done again.

    No ``Exception``: nothing may take it for the failure of an operation.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__()
        self.checkpoint = checkpoint
