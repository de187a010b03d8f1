"""Rows at places of each thread's own, as many as it likes: ``x[places]``, ``x.index_add(...)``.

The places and the mask are packed, ``x`` is packed or has as many rows in every thread. A place
within a thread's tensor becomes one within the table of all, so one gather or one scatter does it.
A place that a tensor does not have is refused as torch refuses it, for that thread.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.applying.index_parts import INTEGERS
from autobatch.batching.context import Context
from autobatch.batching.tables.alike import named
from autobatch.batching.tables.arguments import bound, shared
from autobatch.batching.tables.order import brought_together, together
from autobatch.batching.tensors import torch_ops
from autobatch.presence import kinds, moves
from autobatch.values import packs
from autobatch.values.cells import Cell, Column, Container, Uniform, read
from autobatch.values.packs import Order, is_packed

SELECTS = named("index_select", torch, Tensor)
ADDS = named("index_add", torch, Tensor)
SCATTERS = named("scatter_add", torch, Tensor)
TRUE = named("nonzero argwhere", torch, Tensor)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a tensor of each thread: from ``firsts[i]`` on ``sizes[i]`` rows of a table."""

    table: Tensor
    firsts: Tensor | int
    sizes: Tensor | int
    again: Callable[[Tensor], Cell]

    def at(self, places: Tensor, order: Order, from_end: bool) -> tuple[Tensor, Tensor]:
        """Where places of their threads are in the table; which threads have none such."""
        extra = [1] * (places.dim() - 1)
        firsts, sizes = (
            part[order.owners].reshape(-1, *extra) if isinstance(part, Tensor) else part
            for part in (self.firsts, self.sizes)
        )
        places = places.long()
        outside = places >= sizes
        outside |= places < (-sizes if from_end else 0)
        if from_end:
            places = torch.where(places < 0, places + sizes, places)
        found = (places + firsts).clamp(0, max(self.table.shape[0] - 1, 0))
        if outside.dim() > 1:
            outside = outside.flatten(1).any(1)
        return found, order.any_of(outside)


def rows_of(context: Context, value: Any, written: bool) -> Rows | None:
    """The rows of a tensor; ``written``: each thread's are its own."""
    if is_packed(value):
        table, order = together(context, value)
        return Rows(table, order.begins, order.lengths, lambda new: Cell(order.pack(new)))
    obj = value.obj if type(value) is Uniform else None
    if isinstance(obj, Tensor) and obj.dim() and obj.layout is torch.strided:
        if not written:
            return Rows(obj, 0, obj.shape[0], lambda new: Cell(Uniform(new)))
        value = Column(obj.expand(context.k, *obj.shape))
    if type(value) is not Column or value.tag != "tensor" or value.table.dim() < 2:
        return None
    data = value.data
    size = data.shape[1]
    firsts = torch.arange(context.k, device=data.device) * size

    def again(new: Tensor) -> Cell:
        return Cell(Column(moves.noted(new.reshape(data.shape), kinds.Grouped(size))))

    return Rows(moves.flattened(data), firsts, size, again)


def getitem(context: Context, pack: Container, index: Cell) -> Cell | None:
    """``x[places]`` or ``x[mask]`` for a packed ``x``; None for any other index."""
    where = read(index)
    if not is_packed(where) or not context.k:
        return None
    if where.static.dtype is torch.bool:
        return picked(context, pack, where)
    return gathered(context, operator.getitem, [Cell(pack), Cell(where)], pack, where, True)


def picked(context: Context, pack: Container, mask: Container) -> Cell | None:
    """The rows for which a mask ``[n]`` is true, or the elements for which one ``[n, *E]`` is."""
    depth = mask.static.dim()
    if mask.static.shape[1:] != pack.static.shape[1:depth] or depth > pack.static.dim():
        return None
    found = brought_together(context, [pack, mask])
    if found is None:
        return None
    (table, truths), order = found
    per_row = truths.flatten(1).sum(1) if depth > 1 else truths.long()
    lengths = order.lengths.new_zeros(context.k).index_add(0, order.owners, per_row)
    sizes = context.host(lengths, "mask")
    places = torch.nonzero_static(truths, size=sum(sizes))
    return ragged(context, taken_at(table, places), lengths, sizes)


def taken_at(data: Tensor, places: Tensor) -> Tensor:
    """What is at some places ``[N, dims]``."""
    if places.shape[1] == 1:
        return moves.taken(data, places[:, 0])
    found = data[tuple(places.unbind(1))]
    return moves.noted(found, kinds.Taken(places[:, 0], len(data)))


def ragged(context: Context, table: Tensor, lengths: Tensor, sizes: list[int]) -> Cell:
    """Rows that lie one after the other, so many for each thread."""
    context.counter.launch()
    if min(sizes) < max(sizes):
        return Cell(packs.in_order(table, sizes, lengths))
    if not sizes[0]:
        return Cell(Column(table.reshape(context.k, 0, *table.shape[1:])))
    return Cell(Column(moves.grouped(table, sizes[0])))


def gathered(
    context: Context,
    function: Any,
    snapshot: list[Cell],
    value: Any,
    where: Container,
    from_end: bool,
) -> Cell | None:
    """The rows at some places, as many for each thread as it has places."""
    if where.static.dtype not in INTEGERS or (not from_end and where.static.dim() != 1):
        return None
    places, order = together(context, where)
    base = rows_of(context, value, False)
    if base is None or (not base.table.shape[0] and order.total):
        return None
    found, outside = base.at(places, order, from_end)
    refuse(context, function, snapshot, outside)
    rows = packs.rows_at(base.table, found)
    context.counter.launch()
    return Cell(order.pack(rows))


def true_places(context: Context, value: Any) -> Cell | None:
    """Where in its thread's tensor ``[n]`` each element is that is not zero, ``[m, 1]``."""
    if not is_packed(value) or value.static.dim() != 1:
        return None
    table, order = together(context, value)
    true = table != 0
    lengths = order.lengths.new_zeros(context.k).index_add(0, order.owners, true.long())
    sizes = context.host(lengths, "mask")
    rows = torch.nonzero_static(true, size=sum(sizes))
    context.counter.launch()
    return Cell(packs.in_order(order.places[rows], sizes, lengths))


def refuse(context: Context, function: Any, snapshot: list[Cell], outside: Tensor) -> None:
    """What torch raises for the threads that name a row which is not there."""

    def raising(row: int) -> None:
        torch_ops.one_row(context, function, snapshot, row)
        raise AssertionError(f"{function} takes a place that is out of range")

    context.check(outside, raising)


def apply(
    context: Context, function: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    """``nonzero``; ``index_select``, ``index_add``, ``scatter_add`` along the first dimension."""
    if not context.k or not args:
        return None
    if function in TRUE and len(args) == 1 and not kwargs:
        return true_places(context, read(args[0]))
    adds = function in ADDS or function in SCATTERS
    if not adds and function not in SELECTS:
        return None
    names = ["input", "dim", "index", "src" if function in SCATTERS else "source"]
    names = names if adds else names[:3]
    given = bound(names, args, kwargs)
    if given is None or len(given) != len(names):
        return None
    value, dim, where, *source = (given[name] for name in names)
    if not is_packed(where) or type(shared(dim)) is not int:
        return None
    if shared(dim) not in (0, -dims_of(value)):
        return None
    snapshot = [Cell(value), Cell(dim), Cell(where), *map(Cell, source)]
    if adds:
        return added(context, function, snapshot, value, where, source[0])
    return gathered(context, function, snapshot, value, where, False)


def dims_of(value: Any) -> int:
    if is_packed(value):
        return int(value.static.dim())
    if type(value) is Column:
        return len(value.event_shape)
    return getattr(value.obj, "ndim", 0) if type(value) is Uniform else 0


def added(
    context: Context, function: Any, snapshot: list[Cell], value: Any, where: Any, source: Any
) -> Cell | None:
    """Rows added to those at some places."""
    if not is_packed(source) or where.static.dtype not in (torch.int32, torch.int64):
        return None
    deep = function in SCATTERS
    if dims_of(value) != source.static.dim() or (
        where.static.dim() != (source.static.dim() if deep else 1)
    ):
        return None
    found = brought_together(context, [where, source])
    base = rows_of(context, value, True)
    if found is None or base is None:
        return None
    (places, rows), order = found
    if not fits(base.table, places, rows, deep) or (not base.table.shape[0] and order.total):
        return None
    at, outside = base.at(places, order, False)
    refuse(context, function, snapshot, outside)
    new = base.table.scatter_add(0, at, rows) if deep else base.table.index_add(0, at, rows)
    context.counter.launch()
    return base.again(moves.added(new, at, len(base.table)))


def fits(table: Tensor, places: Tensor, rows: Tensor, deep: bool) -> bool:
    if table.dtype is not rows.dtype or (deep and places.dtype is not torch.int64):
        return False
    return table.shape[1:] == rows.shape[1:] and (not deep or places.shape == rows.shape)
