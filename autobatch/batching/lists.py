"""Operations on lists of different lengths that lie in one table (``vm.lists``).

Each gives None, or False, where a thread's Python would raise, or where an element is of another
kind: then the lists become objects, and the operation runs thread by thread. So no operation here
fails, and each looks at once whether every thread's place is in its list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.kinds import is_index
from autobatch.compat import on_device
from autobatch.presence import moves
from autobatch.values import listing, packs
from autobatch.values.cells import (
    NUMBER_TAGS,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    as_column,
    fits_column,
    read,
    uniform,
)
from autobatch.values.lists import Lists
from autobatch.values.logs import Logged, Place

Method = Callable[[Context, Lists, list[Cell]], Cell | None]


def held(value: Any) -> Lists | None:
    """The lists that a value is, in one table."""
    return value.lists if type(value) is Objects else None


def made(found: Lists) -> Cell:
    return Cell(Objects([], lists=found))


# Where and what.


def place(context: Context, found: Lists, index: Cell) -> Place | None:
    """A place that is in every thread's list; None where one is not."""
    value = read(index)
    if type(value) is Uniform and type(value.obj) in (int, bool):
        return fixed(found, int(value.obj))
    if not is_index(value):
        return None
    assert type(value) is Column
    where = value.data.to(found.table.device, torch.int64)
    if value.bounds is not None and value.bounds[0] >= 0 and value.bounds[1] < found.least:
        return where
    sizes = found.sizes
    where = torch.where(where < 0, where + sizes, where)
    inside = ((where >= 0) & (where < sizes)).all()
    return where if context.host(inside, "lists") else None


def fixed(found: Lists, index: int) -> Place | None:
    if not -found.least <= index < found.least:
        return None
    if index >= 0:
        return index
    return found.most + index if found.least == found.most else found.sizes + index


def fitting(context: Context, found: Lists, item: Cell) -> Column | None:
    """An element as the lists have theirs; None where it is of another kind."""
    value = read(item)
    tag = found.tag
    if type(value) is Uniform and fits_column(value.obj):
        if NUMBER_TAGS[type(value.obj)] != tag:
            return None
        return as_column(value, context.k, context.device)
    if tag != "tensor":
        return value if type(value) is Column and value.tag == tag else None
    if type(value) is Column:
        if value.tag != "tensor" or not value.is_whole:
            return None
    elif type(value) is not Uniform or not isinstance(value.obj, Tensor) or value.shared:
        return None
    column = as_column(value, context.k, context.device)
    assert column is not None
    table = column.table
    same = (table.dtype, table.shape[1:], table.device) == found.kind
    return column if same and type(table) is Tensor else None


def element(found: Lists, rows: Tensor) -> Cell:
    return Cell(found.element(rows))


# Subscripts.


def getitem(context: Context, found: Lists, index: Cell) -> Cell | None:
    """``xs[i]`` and ``xs[a:b]``."""
    value = read(index)
    if type(value) is Container and value.type is slice:
        return cut(context, found, value)
    where = place(context, found, index)
    if where is None:
        return None
    with context.services.moving():
        return element(found, found.at(where))


def cut(context: Context, found: Lists, part: Container) -> Cell | None:
    """``xs[a:b]``."""
    start, stop, step = (bound(read(cell)) for cell in part.children())
    if step == -1 and start is None and stop is None:
        with context.services.moving():
            return made(found.turned())
    if step is not None or any(type(end) is str for end in (start, stop)):
        return None
    sizes = torch.from_numpy(found.lengths)
    if type(start) is int and start >= 0 and start < found.table.shape[1]:
        begin: Any = start
    elif start is None:
        begin = 0
    else:
        begin = packs.bound(start, sizes)
    end = sizes if stop is None else packs.bound(stop, sizes)
    lengths = (end - begin).clamp(min=0)
    moved = begin if type(begin) is int else begin.to(found.table.device)
    with context.services.moving():
        return made(found.cut(moved, lengths.numpy()))


def bound(value: Any) -> Any:
    """A slice's bound: None, an int or integers on the host; a text for anything else."""
    if type(value) is Uniform and (value.obj is None or type(value.obj) is int):
        return value.obj
    if type(value) is Column and value.tag == "int" and value.data.is_cpu:
        return value.data
    return "other"


def setitem(context: Context, found: Lists, index: Cell, item: Cell) -> bool:
    """``xs[i] = v``."""
    where = place(context, found, index)
    column = fitting(context, found, item)
    if where is None or column is None:
        return False
    context.settle()
    with context.services.moving():
        found.put(where, column)
    return True


def append(context: Context, found: Lists, item: Cell) -> bool:
    column = fitting(context, found, item)
    if column is None:
        return False
    context.settle()
    with context.services.moving():
        found.push(column)
    return True


# Sizes and iteration.


def length(context: Context, found: Lists) -> Cell:
    """``len(xs)``."""
    if found.least == found.most:
        return uniform(found.least)
    sizes = on_device(found.lengths, context.device)
    return Cell(Column(sizes, "int", (found.least, found.most)))


def truth(context: Context, found: Lists) -> Cell:
    """``bool(xs)``."""
    if found.least or not found.most:
        return uniform(bool(found.most))
    flags = on_device(found.lengths > 0, context.device)
    return Cell(Column(flags, "bool"))


def step(context: Context, found: Lists, position: Cell) -> tuple[Cell, Cell]:
    """The element at a position, of the lists that go so far, and which they are."""
    value = read(position)
    if type(value) is Uniform:
        at = value.obj
        if at >= found.most:
            return uniform(None), uniform(False)
        with context.services.moving():
            item = found.at(at)
        if at < found.least:
            return element(found, item), uniform(True)
        more: Any = on_device(found.lengths > at, context.device)
        return rest(found, item), Cell(Column(more, "bool"))
    assert type(value) is Column
    sizes = on_device(found.lengths, context.device)
    more = value.data < sizes
    if not found.most:
        return uniform(None), Cell(Column(more, "bool"))
    where = value.data.clamp(max=found.table.shape[1] - 1).to(found.table.device)
    with context.services.moving():
        return rest(found, found.at(where)), Cell(Column(more, "bool"))


def step_down(context: Context, found: Lists, position: Cell) -> tuple[Cell, Cell]:
    """The same of what goes through them from their ends."""
    value = read(position)
    if type(value) is Uniform:
        return step(context, found, position) if value.obj >= 0 else (uniform(None), uniform(False))
    assert type(value) is Column
    ahead = value.data.clamp(min=0)
    item, more = step(context, found, Cell(Column(ahead, "int")))
    inside = read(more).data & (value.data >= 0)  # type: ignore[union-attr]
    return item, Cell(Column(inside, "bool"))


def down_from(context: Context, found: Lists, position: Tensor) -> Lists:
    """The elements from each thread's position on, the last one first; none, if beyond the end."""
    at = np.array(context.host(position, "lists"), dtype=np.int64)
    lengths = np.where(at < found.lengths, at + 1, 0).clip(min=0)
    with context.services.moving():
        return found.cut(0, lengths).turned()


def rest(found: Lists, rows: Tensor) -> Cell:
    """Elements, some of them beyond their lists' ends: what those are is nobody's."""
    column = found.element(rows)
    if column.bounds is not None:
        column.bounds = (min(column.bounds[0], 0), max(column.bounds[1], 0))
    return Cell(column)


# Methods and functions.


def _append(context: Context, found: Lists, args: list[Cell]) -> Cell | None:
    return uniform(None) if append(context, found, args[0]) else None


def _pop(context: Context, found: Lists, args: list[Cell]) -> Cell | None:
    last = not args or getattr(read(args[0]), "obj", None) == -1
    if not last or not found.least:
        return None
    context.settle()
    with context.services.moving():
        return element(found, found.pop())


def _clear(context: Context, found: Lists, args: list[Cell]) -> Cell | None:
    context.settle()
    found.measured(np.zeros_like(found.lengths))
    return uniform(None)


def _copy(context: Context, found: Lists, args: list[Cell]) -> Cell | None:
    return made(found.copy())


def _reverse(context: Context, found: Lists, args: list[Cell]) -> Cell | None:
    context.settle()
    with context.services.moving():
        found.hold(found.turned())
    return uniform(None)


def _extend(context: Context, found: Lists, args: list[Cell]) -> Cell | None:
    parts = read(args[0])
    if type(parts) is not Container or parts.type not in (list, tuple):
        return None
    columns = [fitting(context, found, cell) for cell in parts.children()]
    if None in columns:
        return None
    context.settle()
    with context.services.moving():
        for column in columns:
            assert column is not None
            found.push(column)
    return uniform(None)


METHODS: dict[Any, tuple[int, Method]] = {
    list.append: (1, _append),
    list.pop: (1, _pop),
    list.clear: (0, _clear),
    list.copy: (0, _copy),
    list.extend: (1, _extend),
    list.reverse: (0, _reverse),
}
"""By method, the most arguments that it takes."""


def method(context: Context, function: Any, found: Lists, args: list[Cell]) -> Cell | None:
    """A method of lists; None if it has to run by thread."""
    most, rule = METHODS.get(function, (-1, None))
    if rule is None or len(args) > most or (len(args) < most and rule is not _pop):
        return None
    return rule(context, found, args)


def added(context: Context, found: Lists, right: Cell) -> Cell | None:
    """``xs + [h]`` and ``xs + ys``."""
    parts = read(right)
    other = held(parts)
    if other is not None:
        context.settle()
        with context.services.moving():
            return made(found.plus(other)) if found.kind == other.kind else None
    new = found.copy()
    is_list = type(parts) is Container and parts.type is list
    return made(new) if is_list and _extend(context, new, [right]) is not None else None


def stack(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``torch.stack(xs)``: the table itself, until the lists are written."""
    found = held(read(args[0])) if len(args) == 1 and not kwargs else None
    if found is None or found.tag != "tensor" or not found.least:
        return None
    table = found.table
    if type(table) is Logged:
        with context.services.moving():
            return Cell(whole_of(found, table))
    found.lent = True
    if found.least == found.most:
        return Cell(Column(table[:, : found.most].clone()))
    return Cell(ragged_over(context, found, table))


def ragged_over(context: Context, found: Lists, table: Tensor) -> Container:
    """A tensor of each list's own length, over a table of its elements ``[k, capacity, *E]``."""
    k, capacity = table.shape[:2]
    begins = torch.arange(0, k * capacity, capacity, device=context.device)
    sizes = on_device(found.lengths, context.device)
    return packs.pack(moves.flattened(table), begins, sizes, found.most)


def whole_of(found: Lists, table: Logged) -> Column | Container:
    """The same of elements that gradients flow into."""
    if found.least == found.most:
        return Column(table.stacked(found.most))
    sizes, rows = on_device(found.lengths, table.device), table.elements(found.lengths)
    return packs.in_order(rows.view_as(rows), found.lengths.tolist(), sizes)


def opened(context: Context, base: Cell) -> Lists | None:
    """A list that is as long in all threads, as one table from now on; None if it cannot be one.

    Where each thread looks at a place of its own, a list of cells would be stacked each time.
    """
    value = read(base)
    recording = context.forecasts is not None
    if recording or type(value) is not Container or value.type is not list:
        return None
    cells: Any = value.cells
    if not listing.kind_of(cells, context.services.blind()):
        return None
    context.settle()
    with context.services.moving():
        found = listing.of_cells(cells, context.k, context.device)
    base.value = Objects([], lists=found)
    return found


def repeated(context: Context, items: Cell, times: Cell) -> Cell | None:
    """``[x] * n`` with a thread's own ``n``."""
    value, count = read(items), read(times)
    if type(value) is not Container or value.type is not list or context.forecasts is not None:
        return None
    if type(count) is not Column or count.tag not in ("int", "bool"):
        return None
    cells: Any = value.cells
    if not listing.kind_of(cells, context.services.blind()):
        return None
    counts = np.array(context.host(count.data, "lists"), dtype=np.int64)
    with context.services.moving():
        return made(listing.repeated(cells, counts, context.device))


def ranged(context: Context, value: Container) -> Cell | None:
    """``list(range(a, b))`` with a thread's own ``a`` or ``b``."""
    start, stop, ahead = map(read, value.children())
    if getattr(ahead, "obj", None) != 1 or context.forecasts is not None:
        return None
    ends = [as_column(end, context.k, context.device) for end in (start, stop)]
    first, last = ends
    if first is None or last is None or not (is_small(first) and is_small(last)):
        return None
    counts = np.array(context.host(last.data - first.data, "lists"), dtype=np.int64)
    return made(listing.counted(first, counts))


def is_small(column: Column) -> bool:
    """Whether they are ints whose differences are, too."""
    bounds = column.bounds
    return bounds is not None and max(-bounds[0], bounds[1]) < 2**62


HANDLERS: dict[Any, Callable[[Context, list[Cell], dict[str, Cell]], Cell | None]] = {
    torch.stack: stack
}
