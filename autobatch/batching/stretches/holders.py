"""Whether nobody but a variable holds a column's memory, so that it may be written where it is.

Whoever could see the write holds the column, its tensor, a tensor that shares its memory, or is
autograd: CPython counts the references to the first two, torch those to tensors and memory.
"""

from __future__ import annotations

from sys import getrefcount

import torch

from autobatch.compat import holders_of
from autobatch.values.cells import Cell, Column

Pair = tuple[Column, torch.Tensor]
"""A column and its tensor, as the two lines of a driver have them that look them up."""


def counted(pair: Pair) -> tuple[int, ...]:
    """How many references there are to a column, its tensor, and the memory of that."""
    return getrefcount(pair[0]), getrefcount(pair[1]), *holders_of(pair[1])


def _counted_alone() -> tuple[int, ...]:
    """The same in a driver, where a variable's cell holds the column and nothing else does."""
    cell = Cell(Column(torch.zeros(1, device="cpu")))
    column = cell.value
    table = column.table  # type: ignore[union-attr]
    dense = table if table.is_contiguous() else None
    return counted((column, dense))  # type: ignore[arg-type]


ALONE = _counted_alone()


def is_sole(pair: Pair) -> bool:
    """Whether one cell holds the column, that the tensor, and nobody else either's memory."""
    return pair[1] is pair[0].table and counted(pair) == ALONE
