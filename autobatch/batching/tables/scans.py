"""``x.cumsum(0)``, ``x.flip(0)``, ``x.sort(0)`` of packed values: as many rows, in all threads.

A running sum, or extreme, of padded rows is that of the rows up to where padding begins. Rows are
turned round and sorted within their threads by one gather.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autobatch.batching.applying import needed
from autobatch.batching.context import Context
from autobatch.batching.tables.alike import named
from autobatch.batching.tables.arguments import bound, packed_again, shared
from autobatch.batching.tables.order import together
from autobatch.batching.tables.padding import is_cheap, padded, unpadded
from autobatch.batching.trees import container_of
from autobatch.presence import moves
from autobatch.values.cells import Cell, Container
from autobatch.values.packs import Order, is_packed

RUNNING = named("cumsum cummax cummin logcumsumexp cumprod", torch, Tensor)
NEUTRAL: dict[Any, float] = dict.fromkeys(named("cumprod", torch, Tensor), 1)
"""What padding holds where a zero would cost: the gradient of products with zeros is dear."""
FLIPS = named("flip", torch, Tensor)
SORTS = named("sort argsort", torch, Tensor)
ARGSORTS = named("argsort", torch, Tensor)


def apply(
    context: Context, function: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    if function in SORTS:
        return ranked(context, function, args, kwargs)
    if not context.k or not args or not (function in RUNNING or function in FLIPS):
        return None
    names = ("input", "dims" if function in FLIPS else "dim")
    given = bound(names, args, kwargs)
    if given is None or len(given) != len(names):
        return None
    pack, dim = given["input"], shared(given[names[1]])
    if isinstance(dim, tuple) and len(dim) == 1 and function in FLIPS:
        (dim,) = dim
    if not is_packed(pack) or type(dim) is not int or dim not in (0, -pack.static.dim()):
        return None
    table, order = together(context, pack)
    if function in FLIPS:
        context.counter.launch()
        return Cell(order.pack(flipped(table, order)))
    if not is_cheap(order) or table.dtype.is_complex or not order.total:
        return None
    try:
        out = needed.of_table(
            function,
            table,
            lambda own: function(padded(own, order, NEUTRAL.get(function, 0)), 1),
        )
    except Exception:  # of a dtype that it does not take: single threads tell
        return None
    rows = [unpadded(part, order) for part in (out if isinstance(out, tuple) else (out,))]
    context.counter.launch()
    if not isinstance(out, tuple):
        return packed_again(rows[0], order)
    parts = iter(rows)
    return container_of(out, lambda _: Cell(order.pack(next(parts))))


def ranked(
    context: Context, function: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    """``x.sort(0)`` and ``x.argsort(0)``: padding is last in its order, and the order is stable."""
    given = bound(["input", "dim", "descending", "stable"], args, kwargs)
    pack = None if given is None else given.pop("input", None)
    if not context.k or not is_packed(pack) or given is None:
        return None
    if len(args) > (1 if "stable" in given else 3):  # torch wants names with it
        return None
    dims, options = pack.static.dim(), {name: shared(value) for name, value in given.items()}
    dim, descending = options.pop("dim", -1), options.get("descending", False)
    if dim not in (0, -dims) or not all(type(option) is bool for option in options.values()):
        return None
    table, order = together(context, pack)
    if not is_cheap(order) or table.dtype.is_complex or not order.total:
        return None
    wide = padded(table, order, last_of(table.dtype, descending))
    found, places = torch.sort(wide, stable=True, dim=1, descending=descending)
    context.counter.launch()
    index = Cell(order.pack(unpadded(places, order)))
    if function in ARGSORTS:
        return index
    parts = [Cell(order.pack(unpadded(found, order))), index]
    return Cell(Container(torch.return_types.sort, parts))


def last_of(dtype: torch.dtype, descending: bool) -> float:
    """What no element of a sequence comes behind: NaN is the largest of floats."""
    if dtype.is_floating_point:
        return -torch.inf if descending else torch.nan
    if dtype is torch.bool:
        return not descending
    info = torch.iinfo(dtype)
    return info.min if descending else info.max


def flipped(table: Tensor, order: Order) -> Tensor:
    """Each thread's rows, the last one first."""
    last = (order.begins + order.lengths - 1)[order.owners]
    return moves.taken(table, last - order.places)
