"""The rows of packed values, brought into the order in which their threads are.

All that runs on the tables of packed values needs them one after the other, nothing else between.
Nothing is copied where they lie so; how many each thread has is read on the host once for values of
the same lengths.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.presence import moves
from autobatch.values import packs
from autobatch.values.cells import Container
from autobatch.values.packs import Order


def brought_together(
    context: Context, given: Sequence[Container]
) -> tuple[list[Tensor], Order] | None:
    """The rows of all threads one after the other, for each of some packed values.

    None where their lengths differ.
    """
    found = orders(context, given)
    order = found[0]
    if any(other is not order and other.sizes != order.sizes for other in found):
        return None
    return [in_order(pack, own) for pack, own in zip(given, found, strict=True)], order


def together(context: Context, pack: Container) -> tuple[Tensor, Order]:
    """The rows of one packed value, one thread's after another's."""
    (order,) = orders(context, [pack])
    return in_order(pack, order), order


def orders(context: Context, given: Sequence[Container]) -> list[Order]:
    """The lengths of packed values, read on the host where they are not known: all at once."""
    unknown = {id(pack): pack for pack in given if packs.order_of(pack) is None}
    if unknown:
        parts = [packs.parts_of(pack)[:2] for pack in unknown.values()]
        numbers = torch.stack([column for pair in parts for column in pair])
        found = context.host(numbers, "packed rows")
        for pack, begins, sizes in zip(unknown.values(), found[::2], found[1::2], strict=True):
            packs.note(pack, begins, sizes)
    return [packs.order_of(pack) for pack in given]  # type: ignore[misc]


def in_order(pack: Container, order: Order) -> Tensor:
    """The table, or its rows in order where it is another one's, too."""
    table: Tensor = pack.static
    if packs.is_in_order(pack, order):
        return table
    begins, _, step = packs.parts_of(pack)
    owners = order.owners
    if isinstance(step, Tensor):
        step = step[owners]
    return moves.owned(moves.taken(table, begins[owners] + order.places * step), order.sizes)
