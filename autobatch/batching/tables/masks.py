"""What picks different numbers of elements: ``x[mask]``, ``torch.nonzero(mask)``, ``x[places]``.

The picked rows of all threads are gathered at once, and ``x[mask] = v`` puts as many back. Where
each thread picks as many they are a column, else packed (``vm.packs``). How many is read on the
host, one read for each operation.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from autobatch.batching import writes
from autobatch.batching.applying.index_parts import INTEGERS
from autobatch.batching.applying.overlaps import root_of
from autobatch.batching.applying.vmapped import Batched, unrecorded
from autobatch.batching.context import Context, Handler
from autobatch.batching.kinds import is_tensor
from autobatch.batching.tables.order import together
from autobatch.batching.tables.places import ragged, taken_at
from autobatch.batching.tensors import lookup, torch_ops
from autobatch.presence import moves
from autobatch.values.cells import Cell, Column, Container, Uniform, Value, View, read, uniform
from autobatch.values.packs import is_packed


def picked(context: Context, base: Cell, index: Cell) -> Cell | None:
    """``x[index]`` for a tensor ``x``; None where the index is not of the kinds above."""
    where = read(index)
    if is_packed(where):
        return at_places(context, base, where, index)
    if type(where) is Container and where.type is tuple and where.cells:
        first, *rest = where.children()
        depth = depth_of(read(first))
        if not depth or not all(map(lookup.is_basic, rest)):
            return None
        whole = [uniform(slice(None))] * depth
        part = lookup.getitem(context, base, Cell(Container(tuple, [*whole, *rest])))
        return picked(context, part, first)
    mask, value = any_mask(context, where), read(base)
    return None if mask is None else taken(context, value, mask)


def depth_of(where: Value) -> int:
    """How many dimensions an index picks from, that picks as many as each thread likes; else 0."""
    if is_packed(where):
        return 1 if where.static.dim() == 1 and where.static.dtype in INTEGERS else 0
    mask = own_mask(where)
    return 0 if mask is None else mask.dim() - 1


def taken(context: Context, value: Any, mask: Tensor) -> Cell | None:
    """``x[mask]``; None where the mask does not fit."""
    if not is_strided(value):
        return None
    shape, depth = lookup.shape_of(value), mask.dim() - 1
    if shape[:depth] != mask.shape[1:]:
        return None
    data = value.data if type(value) is Column else value.obj.expand(context.k, *shape)
    places, sizes = true_places(context, mask)
    return ragged(context, taken_at(data, places), *sizes)


def own_mask(value: Value) -> Tensor | None:
    """A mask of some threads that differs by thread, ``[k, ...]``; None for anything else."""
    if type(value) is not Column or value.tag != "tensor" or value.table.dim() < 2:
        return None
    return value.data if value.table.dtype is torch.bool and value.data.shape[0] else None


def any_mask(context: Context, value: Value) -> Tensor | None:
    """The same, or one truth: of each thread, or of all."""
    if type(value) is Column and value.tag == "tensor" and value.table.dim() == 1:
        return value.data if value.table.dtype is torch.bool and context.k else None
    obj = value.obj if type(value) is Uniform and context.k else None
    if isinstance(obj, Tensor) and not obj.dim() and obj.dtype is torch.bool:
        return obj.expand(context.k)
    return own_mask(value)


def is_strided(value: Any) -> bool:
    return type(value) is Column or value.obj.layout is torch.strided


def true_places(context: Context, mask: Tensor) -> tuple[Tensor, tuple[Tensor, list[int]]]:
    """Where a mask is true, ``[N, 1 + dims]`` with the row first; how many for each thread."""
    lengths = mask.flatten(1).sum(1) if mask.dim() > 1 else mask.long()
    sizes = context.host(lengths, "mask")
    return torch.nonzero_static(mask, size=sum(sizes)), (lengths, sizes)


def put(context: Context, base: Cell, index: Cell, item: Cell) -> bool:
    """``x[mask] = v`` for as many values as each thread's mask picks; whether it is done."""
    mask, own = any_mask(context, read(index)), values_of(context, read(item))
    value: Any = read(base)
    if mask is None or own is None or type(base.value) is View or writes.is_outside(base):
        return False
    if root_of(item) is base:  # torch refuses most of that
        return False
    table, sizes = own
    shape, depth = lookup.shape_of(value), mask.dim() - 1
    if not is_strided(value) or shape != (*mask.shape[1:], *table.shape[1:]):
        return False
    data = value.data if type(value) is Column else value.obj.expand(context.k, *shape)
    if shape[:depth] != mask.shape[1:] or (table.dtype, table.device) != (data.dtype, mask.device):
        return False
    places, (_, counts) = true_places(context, mask)
    if counts != sizes:
        return False
    context.services.tensor_written(context.span)
    writes.refuse_tied(context, base)
    written = moves.added(data.index_put(places.unbind(1), table), places[:, 0], len(data))
    new = unrecorded(Batched(data), Batched(written), context.k)
    writes.set_content(base, Column(new.data))
    context.counter.launch()
    return True


def values_of(context: Context, value: Any) -> tuple[Tensor, list[int]] | None:
    """The rows of all threads' tensors ``[n, *E]`` one after the other, and how many each has."""
    if is_packed(value):
        table, order = together(context, value)
        return table, list(order.sizes)
    if type(value) is not Column or value.tag != "tensor" or not value.event_shape:
        return None
    data = value.data
    return moves.flattened(data), [data.shape[1]] * len(data)


def at_places(context: Context, base: Cell, where: Container, index: Cell) -> Cell | None:
    """``x[places]`` for an index tensor ``[n]`` whose length differs by thread."""
    value: Any = read(base)
    if where.static.dim() != 1 or where.static.dtype not in INTEGERS or not is_strided(value):
        return None
    shape = lookup.shape_of(value)
    if not shape or not shape[0] or not context.k:
        return None
    places, order = together(context, where)
    inside = places.clamp(-shape[0], shape[0] - 1).long()
    failed = order.any_of(inside != places)
    snapshot = [Cell(value), Cell(where)]
    context.check(failed, lambda row: torch_ops.one_row(context, operator.getitem, snapshot, row))
    if type(value) is Column:
        table = taken_at(value.data, torch.stack([order.owners, inside], 1))
    else:
        table = moves.taken(value.obj, inside)
    context.counter.launch()
    return Cell(order.pack(table))


def _nonzero(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``torch.nonzero(x)``, ``[n, dims]``."""
    mask = truths(args, kwargs)
    if mask is None:
        return None
    places, sizes = true_places(context, mask)
    return ragged(context, places[:, 1:], *sizes)


def _where(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``torch.where(x)``: for each dimension where in it the true elements are."""
    mask = truths(args, kwargs)
    if mask is None:
        return None
    places, sizes = true_places(context, mask)
    columns = [column.contiguous() for column in places[:, 1:].unbind(1)]
    return Cell(Container(tuple, [ragged(context, column, *sizes) for column in columns]))


def truths(args: list[Cell], kwargs: dict[str, Cell]) -> Tensor | None:
    """Where the one argument, a tensor of the thread's own, is not zero."""
    value = read(args[0]) if len(args) == 1 and not kwargs else None
    if type(value) is not Column or value.tag != "tensor" or value.table.dim() < 2:
        return None
    return value.data != 0 if value.data.shape[0] else None


def _masked_select(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    if len(args) != 2 or kwargs or not is_tensor(read(args[0])):
        return None
    mask, value = own_mask(read(args[1])), read(args[0])
    if mask is None or lookup.shape_of(value) != mask.shape[1:]:
        return None
    return taken(context, value, mask)


HANDLERS: dict[Any, Handler] = {
    **dict.fromkeys((torch.nonzero, Tensor.nonzero, torch.argwhere, Tensor.argwhere), _nonzero),
    torch.where: _where,
    **dict.fromkeys((torch.masked_select, Tensor.masked_select), _masked_select),
}
