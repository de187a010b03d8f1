"""The layout of a column's rows: what a program asks of one example's tensor (``x.stride()``).

A row is dense, its dimensions in memory in an order of their own. Kernels that move rows would
make them contiguous; these keep the order. In: tensors ``[k, *E]``. An order is ``()`` where the
dimensions lie as they are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from autobatch.compat import within_duals, within_level
from autobatch.presence import moves, wide_rows
from autobatch.saving.savers import is_saving, saved
from autobatch.values.repeated import is_shared

Order = tuple[int, ...]


def row_order(data: Tensor) -> Order:
    """The dimensions of a tensor, batch first, then those of the rows from the outermost in."""
    if data.dim() < 3 or data.is_contiguous():
        return ()
    strides, shape = data.stride(), data.shape
    if any(strides[dim] == 0 and shape[dim] > 1 for dim in range(1, data.dim())):
        return ()  # expanded rows are no dense ones
    inner = sorted(range(1, data.dim()), key=lambda dim: -strides[dim])
    order = (0, *inner)
    return () if order == tuple(range(data.dim())) else order


def in_order(data: Tensor, order: Order, kernel: Callable[[Tensor], Tensor]) -> Tensor:
    """``kernel(data)``, whose result is contiguous, with the rows laid out in ``order``."""
    if not order:
        return kernel(data)
    back = sorted(range(len(order)), key=order.__getitem__)
    return kernel(data.permute(order)).permute(back)


def dense(data: Tensor) -> tuple[Tensor, Order]:
    """The same rows, the batch outermost and each row dense; and their order.

    A column that repeats a differentiated tensor stays as it is.
    """
    if is_shared(data):
        return data, ()
    order = row_order(data)
    return in_order(data, order, Tensor.contiguous), order


def taken(data: Tensor, index: Tensor) -> Tensor:
    """The rows at ``index``."""
    if data.is_inference():  # and so is what is made of it
        with torch.inference_mode():
            return rows_at(data, index)
    plain = not (data.requires_grad or is_saving() or within_level() or within_duals())
    if plain and data.is_contiguous():  # there is nothing to note
        return wide_rows.rows_at(data, index)
    found: Tensor = saved(rows_at, data, index)
    return found


def rows_at(data: Tensor, index: Tensor) -> Tensor:
    if data.is_contiguous():
        return moves.taken(data, index)
    return in_order(data, row_order(data), lambda part: moves.taken(part, index))


def cut(data: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """The rows in parts of these sizes, which share its memory."""
    if data.is_inference():
        with torch.inference_mode():
            return moves.cut(data, sizes)
    found: tuple[Tensor, ...] = saved(moves.cut, data, tuple(sizes))
    return found


def joined(parts: Sequence[Tensor]) -> Tensor:
    """The rows of all parts; they keep their order if it is one for all."""
    if parts[0].is_inference() and all(part.is_inference() for part in parts):
        with torch.inference_mode():
            return end_to_end(*parts)
    found: Tensor = saved(end_to_end, *parts)
    return found


def end_to_end(*parts: Tensor) -> Tensor:
    order = row_order(parts[0])
    if not order or any(row_order(part) != order for part in parts):
        return moves.joined(parts)
    rest = [part.permute(order) for part in parts]
    return in_order(parts[0], order, lambda _: moves.joined(rest))
