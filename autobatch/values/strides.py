"""The layout of a column's rows: what a program asks of one example's tensor (``x.stride()``).

A row is dense, its dimensions in memory in an order of their own, or it has gaps between its
elements, or repeats some. Kernels that move rows would make them contiguous; these keep the order,
and the rest where the program sees it (see ``layouts``). In: tensors ``[k, *E]``. An order is
``()`` where the dimensions lie as they are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from autobatch.compat import may_derive
from autobatch.presence import moves, wide_rows
from autobatch.presence.brought import brought_together
from autobatch.saving.savers import is_saving, saved
from autobatch.values.layouts import (
    are_apart,
    are_seen,
    gaps_of,
    seen_for_all,
    seen_layout,
    with_gaps,
)
from autobatch.values.repeated import is_shared

Order = tuple[int, ...]
Kernel = Callable[[Sequence[Tensor]], Tensor]


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


def in_order(parts: Sequence[Tensor], order: Order, kernel: Kernel) -> Tensor:
    """What a kernel makes of tensors, which is contiguous, with the rows laid out in ``order``."""
    if not order:
        return kernel(parts)
    back = sorted(range(len(order)), key=order.__getitem__)
    return kernel([part.permute(order) for part in parts]).permute(back)


def in_layout(parts: Sequence[Tensor], kernel: Kernel) -> Tensor:
    """The same with the rows laid out as those of the parts, if these are laid out alike."""
    order = row_order(parts[0])
    if order and any(row_order(part) != order for part in parts):
        order = ()
    gaps = gaps_of(parts[0])
    if (gaps is None and not parts[0].is_conj()) or not are_seen():  # to ask that takes long
        return in_order(parts, order, kernel)
    if parts[0].is_conj():
        return in_layout([part.conj() for part in parts], kernel).conj()
    made = in_order(parts, order, kernel)
    known = gaps is not None and all(gaps_of(part) == gaps for part in parts)
    return with_gaps(made, gaps) if known else made  # type: ignore[arg-type]


def dense(data: Tensor) -> tuple[Tensor, Order]:
    """The same rows, the batch outermost and each row dense; and their order.

    Where the program sees layouts, rows with gaps stay so, and all strides are the order. A column
    that repeats a differentiated tensor stays as it is.
    """
    if is_shared(data):
        return data, ()
    if (gaps := gaps_of(data)) is not None and are_seen():
        data = data if are_apart(data) else with_gaps(data, gaps)
        return data, data.stride()
    order = row_order(data)
    return in_order([data], order, as_contiguous), order


def as_contiguous(parts: Sequence[Tensor]) -> Tensor:
    return parts[0].contiguous()


def is_watched() -> bool:
    """Whether somebody may see rows move of which no gradient is wanted."""
    return may_derive() or is_saving()


def is_plain(data: Tensor) -> bool:
    """Whether to move its rows is nothing more, where nobody watches."""
    if data.layout is not torch.strided or data.requires_grad or data.is_inference():
        return False
    return data.is_contiguous() and not data.is_conj()


def taken(data: Tensor, index: Tensor) -> Tensor:
    """The rows at ``index``."""
    if is_plain(data) and not is_watched():  # there is nothing to note
        return wide_rows.rows_at(data, index)
    if data.is_inference():  # and so is what is made of it
        with torch.inference_mode():
            return rows_at(data, index)
    found: Tensor = saved(rows_at, data, index)
    return found


def rows_at(data: Tensor, index: Tensor) -> Tensor:
    if data.is_contiguous() and not data.is_conj():
        return moves.taken(data, index)
    return in_layout([data], lambda parts: moves.taken(parts[0], index))


def relaid(data: Tensor, like: Tensor) -> Tensor:
    """What has been written to ``like``, which lies in memory as it did, if the program sees it."""
    if data.shape != like.shape or seen_layout(data) == seen_layout(like):
        return data
    if like.is_conj():
        return relaid(data.conj().resolve_conj(), like.conj()).conj()
    made = in_order([data], row_order(like), as_contiguous)
    gaps = gaps_of(like)
    return made if gaps is None else with_gaps(made, gaps)


def copies(data: Tensor) -> list[Tensor]:
    """A copy of each row, which lies in memory as that does if the program sees it."""
    if not seen_layout(data):
        return [row.clone() for row in moves.unbound(data)]
    if data.is_conj():
        return [row.conj() for row in copies(data.conj())]
    data, _ = dense(data)
    gaps, rows = gaps_of(data), moves.unbound(data)
    if gaps is None:
        return [row.clone() for row in rows]
    return [with_gaps(row[None], gaps)[0] for row in rows]


def copy_of(tensor: Tensor) -> Tensor:
    """The same of a tensor that all threads share."""
    return copies(tensor[None])[0] if seen_for_all(tensor) else tensor.clone()


def cut(data: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """The rows in parts of these sizes, which share its memory."""
    if is_plain(data) and not is_watched():
        return data.split_with_sizes(list(sizes))
    if data.is_inference():
        with torch.inference_mode():
            return moves.cut(data, sizes)
    found: tuple[Tensor, ...] = saved(moves.cut, data, tuple(sizes))
    return found


def joined(parts: Sequence[Tensor]) -> Tensor:
    """The rows of all parts; they keep their order if it is one for all."""
    if all(map(is_plain, parts)) and not is_watched():
        return torch.cat(list(parts))
    if parts[0].is_inference() and all(part.is_inference() for part in parts):
        with torch.inference_mode():
            return end_to_end(*parts)
    found: Tensor = saved(end_to_end, *parts)
    return found


def end_to_end(*parts: Tensor) -> Tensor:
    return in_layout(parts, moves.joined)


def stacked(rows: Sequence[Tensor]) -> Tensor | None:
    """The tensors that threads have, as rows; None where the program sees that they differ."""
    layouts = {seen_for_all(row) for row in rows}
    if layouts == {()}:
        return brought_together(rows)
    if len(layouts) > 1:
        return None
    return in_layout(
        [row[None] for row in rows], lambda parts: brought_together([part[0] for part in parts])
    )
