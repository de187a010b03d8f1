"""Rows of 8 or 16 bytes, each taken as one number: they move at once, not element by element.

torch's kernels go along the last dimension first, and start anew for each row. Where a row is two
floats, that is most of what they do: to take 15,000 rows ``[2]`` costs 43 microseconds, and as one
number each 14; to choose among them by a condition for each row 67, and 13.

In: dense tables ``[k, n]`` of which no gradient is wanted. Out: the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autobatch.compat import within_duals, within_level, within_modes

FEWEST, FEWEST_MOVED = 1024, 4096
"""Rows from which that pays, to choose and to move: the views cost some microseconds."""
WIDE = {8: torch.int64, 16: torch.complex128}

SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Dtypes whose rows torch does not take, and those that it takes instead."""


def wide_dtype(size: int, dtype: torch.dtype) -> torch.dtype | None:
    """The number that is as long as ``size`` elements; None if they are no such row."""
    return WIDE.get(size * dtype.itemsize) if size > 1 and not dtype.is_complex else None


def rows_at(data: Tensor, index: Tensor) -> Tensor:
    """``data.index_select(0, index)``."""
    if index.shape[0] >= FEWEST_MOVED and data.dim() == 2 and is_bare(data):
        wide = wide_dtype(data.shape[1], data.dtype)
        if wide is not None and is_aligned(data):
            rows = data.view(wide).view(-1).index_select(0, index)
            return rows.view(data.dtype).view(-1, data.shape[1])
    signed = SIGNED.get(data.dtype)
    if signed is not None:
        return data.view(signed).index_select(0, index).view(data.dtype)
    return data.index_select(0, index)


def where(condition: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """``torch.where`` of a condition ``[k, 1]`` and two tables ``[k, n]`` of one dtype."""
    if len(one) >= FEWEST and is_aligned(one) and is_aligned(other) and not within_duals():
        wide = wide_dtype(one.shape[1], one.dtype)
        if wide is not None:
            return torch.where(condition, one.view(wide), other.view(wide)).view(one.dtype)
    return torch.where(condition, one, other)


def is_aligned(data: Tensor) -> bool:
    """Whether rows are dense, hold what they mean, and begin where numbers as long would."""
    dense = data.is_contiguous() and not data.is_neg()
    return dense and data.storage_offset() % data.shape[1] == 0


def is_bare(data: Tensor) -> bool:
    """Whether all that there is of a tensor is its elements: nobody derives or looks on."""
    plain = type(data) is Tensor and data.is_cpu and not data.requires_grad
    return plain and not (within_level() or within_duals() or within_modes())
