"""A part of each row of a large table, looked up together with the row.

In: a table ``[n, *E]``, which of its rows the threads have, and an index into each. Out: what
``table[rows][:, index]`` is, without the rows ever being copied; None of other indices.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autobatch.batching.applying.indexing import in_any
from autobatch.batching.levels import Batched
from autobatch.presence import kinds, moves


def folded(table: Tensor, rows: Tensor, index: Any) -> tuple[Tensor, Tensor | None] | None:
    """``table[rows][:, index]`` for an int, basic slices or a thread's own int; else None.

    The second result says in which rows the index was out of range.
    """
    size = table.shape[1]
    if type(index) is int:
        if not -size <= index < size:
            return None
        return moves.taken(table.select(1, index), rows), None
    if type(index) is slice and all(type(p) in (int, type(None)) for p in ends(index)):
        return moves.taken(table[:, index], rows), None
    if type(index) is Batched and 0 < index.data.dim() < 3 and is_integer(index.data):
        where = index.data.long()
        failed = in_any((where < -size) | (where >= size))
        where = torch.where(where < 0, where + size, where).clamp(0, max(size - 1, 0))
        found = table[rows.reshape(-1, *(1,) * (where.dim() - 1)), where]
        return moves.noted(found, kinds.Taken(rows, len(table))), failed
    return None


def ends(part: slice) -> tuple[Any, Any, Any]:
    return (part.start, part.stop, part.step)


def is_integer(data: Tensor) -> bool:
    return not (data.dtype.is_floating_point or data.dtype.is_complex or data.dtype is torch.bool)
