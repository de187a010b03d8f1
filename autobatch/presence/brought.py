"""Rows that threads have made each by itself, on the host, put together.

Autograd goes back from the column to each row's own graph, which a zero gradient may go through as
NaN (``0 * inf``). In: such rows. Out: the column ``[k, *E]``, whose backward has no gradient for
the rows that nobody needed, as in a loop, where nothing goes back to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.compat import within_duals, within_level
from autobatch.presence import kinds, moves
from autobatch.presence.known import Place
from autobatch.presence.masks import all_of
from autobatch.presence.moves import PLACE, notes_of
from autobatch.presence.record import Record, record_at_work


def brought_together(rows: Sequence[Tensor]) -> Tensor:
    """``torch.stack(rows)`` of what each thread had for itself."""
    return brought(rows, None)


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """``torch.cat(tensors)`` of those, of unlike lengths; what is needed is needed as a whole."""
    return brought(tensors, [len(each) for each in tensors])


def brought(rows: Sequence[Tensor], sizes: Sequence[int] | None) -> Tensor:
    """The rows stacked; with ``sizes``, joined."""
    plainly = moves.stacked if sizes is None else moves.joined
    record = record_at_work()
    if record is None:
        return plainly(rows)
    with moves.keeping():
        result = together(record, rows, sizes) if is_watched(rows) else plainly(rows)
    record.get([result])
    return result


def is_watched(rows: Sequence[Tensor]) -> bool:
    if not torch.is_grad_enabled() or not any(row.requires_grad for row in rows):
        return False
    return not within_level() and not within_duals()


def together(record: Record, rows: Sequence[Tensor], sizes: Sequence[int] | None) -> Tensor:
    """The same, by a node that sends back only what is needed."""
    record.is_used = True
    place = Place()
    made: Tensor = Together.apply(record, place, sizes, *rows)  # type: ignore[no-untyped-call]
    notes_of(made.grad_fn)[PLACE] = place
    return moves.noted(made, kinds.STACKED if sizes is None else kinds.Joined(tuple(sizes)))


class Together(torch.autograd.Function):
    """``torch.stack``, or ``torch.cat``, and back only to the rows that somebody needed."""

    @staticmethod
    def forward(
        ctx: Any, record: Record, place: Place, sizes: Sequence[int] | None, *rows: Tensor
    ) -> Tensor:
        ctx.record, ctx.place, ctx.sizes = record, place, sizes
        return torch.stack(rows) if sizes is None else torch.cat(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,), sizes = grads, ctx.sizes
        rows = moves.unbound(grad) if sizes is None else moves.parted(grad, sizes)
        known = ctx.record.known()
        masks = [] if known is None else ctx.place.masks(known)
        mask = all_of(masks) if masks else None
        if mask is None or len(mask) != len(grad):
            return (None, None, None, *rows)
        ends = None if sizes is None else np.cumsum(sizes)[:-1]
        wanted = mask if ends is None else [part.any() for part in np.split(mask, ends)]
        return (None,) * 3 + tuple(row if n else None for row, n in zip(rows, wanted, strict=True))
