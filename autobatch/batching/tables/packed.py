"""What a program does with packed values: tensors of different lengths in one table (``packs``).

Indexing, slicing, lengths and shapes are batched. ``x[i]`` and ``x[a:b]`` are views of the cell of
``x``, read when they are wanted: a row is gathered for the threads that use it, and for them only.
All else runs on objects, one tensor for each thread: for a pure function they are lent
(``lent``), before a write or an unknown effect the value becomes them (``unpack``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.applying.index_parts import INTEGERS
from autobatch.batching.context import Context
from autobatch.batching.host.rower import Rower
from autobatch.batching.levels import Batched, leaves_of
from autobatch.batching.tables import places
from autobatch.batching.tables.alike import named
from autobatch.batching.tables.arguments import shared
from autobatch.batching.tables.order import orders
from autobatch.batching.tensors import folding, lookup, torch_ops, windows
from autobatch.batching.tensors.aliases import is_strided
from autobatch.batching.tensors.views import Hole, TorchRecipe, viewed
from autobatch.batching.trees import NotATree, cell_of, tree_of
from autobatch.compat import storage_id
from autobatch.presence import brought
from autobatch.values import grouping, packs
from autobatch.values.cells import (
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    View,
    fits_column,
    read,
    uniform,
)
from autobatch.values.heap import walks
from autobatch.values.packs import is_packed
from autobatch.values.stacks import Stacks

NEW = (Tensor.new_zeros, Tensor.new_ones, Tensor.new_full, Tensor.new_empty, Tensor.new_tensor)
"""Functions that take the dtype and the device of a tensor only."""
PLAIN = frozenset({"dtype", "device", "layout", "ndim", "requires_grad", "is_cuda", "itemsize"})
"""Attributes that do not depend on how many rows a tensor has."""

COLUMN = {
    **dict.fromkeys(named("flatten ravel", torch, Tensor), ((), (0,))),
    **dict.fromkeys(named("reshape view", torch, Tensor), ((-1,), ((-1,),))),
    **dict.fromkeys(named("squeeze", torch, Tensor), ((1,), (-1,))),
}
"""Functions that give the one column of a tensor ``[n, 1]``, with the arguments that say so."""

ROW = TorchRecipe("row", operator.getitem, (Hole(0), Hole(1)), {}, ())
"""How a row is read: ``x[i]`` with any index, so that rows at different places are alike."""
LOOP_ROW = replace(ROW, key="row of a loop", unbound=True)
"""The same of a row that iteration gives."""


def unpack(context: Context, cells: Iterable[Cell]) -> None:
    """Make the packed values among some cells objects, which can be written.

    Rows outside of them are seen before: objects have no row in their place.
    """
    held = [cell for cell in cells if is_packed(read(cell))]
    if held:
        context.flush()
    rower = Rower(context, keep=True)
    for cell in held:
        rower.rows(cell)


def lent(context: Context, cells: Iterable[Cell], run: Callable[[], Cell]) -> Cell:
    """What ``run``, which writes to none of the cells, gives for objects in their place."""
    cells = list(cells)
    held = [(cell, cell.value) for cell in cells if is_packed(read(cell))]
    packed = [pack for cell, _ in held if is_packed(pack := read(cell))]
    if not context.k:
        return of_none(held, packed, run)
    orders(context, packed)
    made: list[Objects] = []
    with context.services.moving():
        for pack in packed:
            stacks = grouping.apart(pack)
            context.counter.launch()
            made.append(packs.unpacked(pack) if stacks is None else Objects([], stacks=stacks))
    known = [(objects.stacks, pack) for objects, pack in zip(made, packed, strict=True)]
    for (cell, _), objects in zip(held, made, strict=True):
        cell.value = objects
    try:
        result = run()
    finally:
        for cell, value in held:
            cell.value = value
    if any_part(result, made) and not context.services.blind():
        unpack(context, cells)
        return run()
    result = repacked(result)
    seen_as(result, known)
    return result


def of_none(
    held: list[tuple[Cell, Value]], packed: list[Container], run: Callable[[], Cell]
) -> Cell:
    """The same of no threads: of their tensors as if of one row each."""
    for (cell, _), pack in zip(held, packed, strict=True):
        cell.value = Column(pack.static.new_empty(0, 1, *packs.event_shape(pack)))
    try:
        result = run()
        for part in walks.parts(result):
            part.value = read(part)
    finally:
        for cell, value in held:
            cell.value = value
    return result


def any_part(result: Cell, lent: list[Objects]) -> bool:
    """Whether an object of some thread's is a part of a tensor that was lent."""
    rows = [item for objects in lent if objects.stacks is None for item in objects.items]
    memory = {storage_id(item) for item in rows if item.numel()}
    if not memory:
        return False
    found = (cell.value for cell in walks.parts(result))
    own = [v.items for v in found if type(v) is Objects and v.stacks is None and v.lists is None]
    return any(is_strided(leaf) and storage_id(leaf) in memory for leaf in leaves_of(own))


def seen_as(result: Cell, known: list[tuple[Stacks | None, Container]]) -> None:
    """Views of what was lent stand for what they hold as long as the packed values are these."""
    value = result.value
    if type(value) is Container:
        for child in value.children():
            seen_as(child, known)
    if type(value) is View and value.cache is not None:
        for stacks, pack in known:
            if stacks is not None and value.seen is stacks:
                value.seen = pack


def repacked(result: Cell) -> Cell:
    """New tensors that differ in their first dimension only, packed again."""
    value = result.value
    if type(value) is not Objects or value.stacks is not None or value.ties or not value.items:
        return result
    items = value.items
    if not all(type(item) is Tensor and item.dim() for item in items):
        return result
    if len({(item.dtype, item.shape[1:], item.device, item.layout) for item in items}) > 1:
        return result
    return Cell(packs.in_order(brought.joined(items), [item.shape[0] for item in items]))


# x[i]


def getitem(context: Context, base: Cell, pack: Container, index: Cell) -> Cell | None:
    """``x[i]``, ``x[a:b]``, ``x[i, ...]`` and ``x[t]``; None for any other index.

    ``i`` is an int or a 0-d tensor, ``t`` an integer tensor, the thread's own or the same for all.
    """
    where = read(index)
    if type(where) is Container and where.type is slice:
        return None if windows.slice_of_ints(index) is None else slice_of(base, where)
    if is_packed(where):
        return places.getitem(context, pack, index)
    if type(where) is Container and where.type is tuple and where.cells:
        columns = columns_of(base, pack, index)
        if columns is not None:
            return columns
        first, *rest = where.children()
        if rest and is_packed(read(first)):
            return at_places(context, base, pack, first, rest)
        if not is_single(read(first)):
            return None
        row = getitem(context, base, pack, first)
        if not rest or row is None:
            return row
        return lookup.getitem(context, row, Cell(Container(tuple, rest)))
    if not is_int(where):
        return None
    found = index_of(where)
    snapshot = [Cell(pack), Cell(where)]
    context.check(
        packs.outside(pack, found),
        lambda row: torch_ops.one_row(context, operator.getitem, snapshot, row),
    )
    if is_single(where):
        return row_of(base, index)
    context.counter.launch()
    return Cell(Column(packs.rows(pack, found)))


def at_places(
    context: Context, base: Cell, pack: Container, first: Cell, rest: list[Cell]
) -> Cell | None:
    """``x[places, j]`` or ``x[mask, j]``: of what ``x[:, j]`` is."""
    if read(first).static.dim() != 1:  # type: ignore[union-attr]
        return None
    part = columns_of(base, pack, Cell(Container(tuple, [uniform(slice(None)), *rest])))
    columns = None if part is None else read(part)
    return places.getitem(context, columns, first) if is_packed(columns) else None


def row_of(base: Cell, index: Cell, recipe: TorchRecipe = ROW) -> Cell:
    """The row at a thread's index, which shares memory with the whole; gathered when it is read."""
    return Cell(View(base, recipe, (Cell(read(index)),)))


def by_value(cell: Cell) -> Cell:
    """A row that is an int, apart from the whole, for those that write neither; else the cell.

    A write to what is handed back of it is refused.
    """
    value = cell.value
    if type(value) is not View or (value.recipe is not ROW and value.recipe is not LOOP_ROW):
        return cell
    row = read(cell)
    if type(row) is not Column or row.table.dim() != 1 or row.table.dtype not in INTEGERS:
        return cell
    return Cell(Column(row.data, outside=True))


def slice_of(base: Cell, part: Container) -> Cell:
    """A slice, which shares memory with the whole: numbers only."""
    ends = [Cell(read(end)) for end in part.children()]
    index = Cell(Container(slice, ends))
    return Cell(viewed(operator.getitem, [base, index], {}, base, ()))


def columns_of(base: Cell, pack: Container, index: Cell) -> Cell | None:
    """``x[:, j]``, ``x[a:b, ..., j]``: a part of each of some rows, sharing memory with them."""
    try:
        tree = tree_of(index, None)
    except NotATree:
        return None
    if not all(map(windows.is_basic, tree)):
        return None
    first, *rest = windows.spelled_out(list(tree), pack.static.dim())
    if type(first) is not slice or any(type(part) in (Batched, Tensor) for part in rest):
        return None
    if any(
        type(end) is Batched for part in rest if type(part) is slice for end in folding.ends(part)
    ):
        return None
    try:
        pack.static[:0][(slice(None), *rest)]
    except IndexError:  # the first thread says so
        return None
    whole = uniform(slice(None))
    begin = whole if type(tree[0]) is not slice else next(iter(read(index).children()))  # type: ignore[union-attr]
    parts = Cell(Container(tuple, [begin, *map(cell_of, rest)]))
    return Cell(viewed(operator.getitem, [base, parts], {}, base, ()))


def is_int(value: Any) -> bool:
    """Whether it is an int, or a tensor of an integer dtype, for each thread or for all."""
    if type(value) is Column:
        return value.tag == "int" or (value.tag == "tensor" and value.table.dtype in INTEGERS)
    if type(value) is not Uniform:
        return False
    if isinstance(value.obj, Tensor):
        return value.obj.layout is torch.strided and value.obj.dtype in INTEGERS
    return type(value.obj) is int and fits_column(value.obj)


def is_single(value: Any) -> bool:
    """Whether it is one int for each thread: it picks one row."""
    if not is_int(value):
        return False
    if type(value) is Column:
        return value.table.dim() == 1
    return not isinstance(value.obj, Tensor) or not value.obj.dim()


def index_of(value: Any) -> Any:
    """An index as an int, or as a tensor ``[k, ...]``, ``[]`` or ``[1, n, ...]``."""
    if type(value) is Column:
        return value.data.long()
    obj = value.obj
    if not isinstance(obj, Tensor):
        return obj
    return obj.long() if not obj.dim() else obj.long()[None]


# Attributes and calls


def shape(pack: Container) -> Cell:
    """``x.shape``, whose first number is each thread's own."""
    return Cell(Container(torch.Size, sizes(pack)))


def sizes(pack: Container) -> list[Cell]:
    return [packs.length(pack), *map(uniform, packs.event_shape(pack))]


def attribute(pack: Container, name: str) -> Cell | None:
    """An attribute that all threads share, or the shape; None for any other."""
    if name == "shape":
        return shape(pack)
    return uniform(getattr(pack.static, name)) if name in PLAIN else None


def call(context: Context, callee: Any, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """A function of the length, the shape or the dtype; None for any other."""
    pack = read(args[0]) if args else None
    if not is_packed(pack):
        return None
    if callee in NEW and not any(is_packed(read(cell)) for cell in (*args[1:], *kwargs.values())):
        like = uniform(pack.static.detach()[:0])
        return torch_ops.apply(context, callee, [like, *args[1:]], kwargs, False)
    if callee in COLUMN and pack.static.shape[1:] == (1,):
        given = tuple(shared(read(cell)) for cell in (*args[1:], *kwargs.values()))
        if given in COLUMN[callee]:
            parts = [uniform(slice(None)), uniform(0)]
            return columns_of(args[0], pack, Cell(Container(tuple, parts)))
    if kwargs:
        return None
    if callee in (len, Tensor.__len__):
        return packs.length(pack)
    if callee in (Tensor.dim, Tensor.ndimension):
        return uniform(pack.static.dim())
    if callee is Tensor.size:
        dim = read(args[1]) if len(args) == 2 else None
        dims = pack.static.dim()
        if len(args) == 1:
            return shape(pack)
        if type(dim) is Uniform and type(dim.obj) is int and -dims <= dim.obj < dims:
            return sizes(pack)[dim.obj]
    return None
