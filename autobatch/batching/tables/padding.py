"""Packed rows as ``[k, T, *E]``, for what torch only has for tensors of one length."""

from __future__ import annotations

import torch
from torch import Tensor

from autobatch.presence import kinds, moves
from autobatch.values.packs import Order

WORTH, SMALL = 4, 1 << 14
"""How many times the rows padding may take; so many rows it always may."""


def is_cheap(order: Order) -> bool:
    """Whether it costs little beside what the rows themselves cost."""
    return repays(len(order.sizes) * order.longest, order.total)


def repays(size: int, total: int) -> bool:
    """Whether so many elements with padding may stand for so many without."""
    return size <= max(SMALL, WORTH * total)


def padded(table: Tensor, order: Order, neutral: float = 0) -> Tensor:
    """Zeros, or another number, behind each thread's rows."""
    k, longest = len(order.sizes), order.longest
    none = table.new_full((k * longest, *table.shape[1:]), neutral)
    where = places(order)
    rows = none.index_copy(0, where, table)
    if moves.is_differentiated(table):
        source = torch.arange(len(none) + len(table), device=table.device)
        index = source[: len(none)].index_copy(0, where, source[len(none) :])
        moves.noted(rows, kinds.Arranged(index, (len(none), len(table))))
    return moves.noted(rows.reshape(k, longest, *table.shape[1:]), kinds.Grouped(longest))


def places(order: Order) -> Tensor:
    """Where each row is among the padded ones, ``[N]``."""
    return order.owners * order.longest + order.places


def unpadded(padding: Tensor, order: Order) -> Tensor:
    """The rows again; what is behind them is never read."""
    return moves.taken(moves.flattened(padding), places(order))
