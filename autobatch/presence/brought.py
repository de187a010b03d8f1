"""Rows that threads have made each by itself, on the host, put together.

Autograd goes back from the column to each row's own graph, which a zero gradient may go through as
NaN (``0 * inf``). In: such rows. Out: the column ``[k, *E]``, whose backward has no gradient for
the rows that nobody needed, as in a loop, where nothing goes back to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from autobatch.compat import within_duals, within_level
from autobatch.presence import moves
from autobatch.presence.known import Place
from autobatch.presence.moves import PLACE, notes_of
from autobatch.presence.record import Record, record_at_work
from autobatch.presence.walk import all_of


def brought_together(rows: Sequence[Tensor]) -> Tensor:
    """``torch.stack(rows)`` of what each thread had for itself."""
    record = record_at_work()
    if record is None:
        return moves.stacked(rows)
    with moves.keeping():
        result = stacked(record, rows)
    record.get([result])
    return result


def stacked(record: Record, rows: Sequence[Tensor]) -> Tensor:
    if not torch.is_grad_enabled() or not any(row.requires_grad for row in rows):
        return moves.stacked(rows)
    if within_level() or within_duals():
        return moves.stacked(rows)
    record.is_used = True
    place = Place()
    made: Tensor = Together.apply(record, place, *rows)  # type: ignore[no-untyped-call]
    notes_of(made.grad_fn)[PLACE] = place
    return moves.noted(made, moves.STACKED)


class Together(torch.autograd.Function):
    """``torch.stack``, and back only to the rows that somebody needed."""

    @staticmethod
    def forward(ctx: Any, record: Record, place: Place, *rows: Tensor) -> Tensor:
        ctx.record, ctx.place = record, place
        return torch.stack(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        rows = moves.unbound(grad)
        known = ctx.record.known()
        masks = [] if known is None else ctx.place.masks(known)
        mask = all_of(masks) if masks else None
        if mask is None or len(mask) != len(rows):
            return (None, None, *rows)
        return (None, None, *(row if n else None for row, n in zip(rows, mask, strict=True)))
