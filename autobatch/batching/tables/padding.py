"""Packed rows as ``[k, T, *E]``, for what torch only has for tensors of one length."""

from __future__ import annotations

from torch import Tensor

from autobatch.values.packs import Order

WORTH, SMALL = 4, 1 << 14
"""How many times the rows padding may take; so many rows it always may."""


def is_cheap(order: Order) -> bool:
    """Whether it costs little beside what the rows themselves cost."""
    size = len(order.sizes) * order.longest
    return size <= max(SMALL, WORTH * order.total)


def padded(table: Tensor, order: Order, neutral: float = 0) -> Tensor:
    """Zeros, or another number, behind each thread's rows."""
    k, longest = len(order.sizes), order.longest
    none = table.new_full((k * longest, *table.shape[1:]), neutral)
    return none.index_copy(0, places(order), table).reshape(k, longest, *table.shape[1:])


def places(order: Order) -> Tensor:
    """Where each row is among the padded ones, ``[N]``."""
    return order.owners * order.longest + order.places


def unpadded(padding: Tensor, order: Order) -> Tensor:
    """The rows again; what is behind them is never read."""
    return padding.flatten(0, 1).index_select(0, places(order))
