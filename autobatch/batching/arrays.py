"""What a program does with per-thread arrays: lists of different lengths (``vm.arrays``).

``x[i]``, ``x[i] = v``, ``x[a:b]``, ``append``, ``pop``, ``extend``, ``+``, ``len`` and iteration
run batched; all else on real lists, thread by thread. A write of what does not lie in the buffers
as the other elements do makes the array objects first.

Invariant: what may fail is checked before anything is written, so that an operation that fails has
changed nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from autobatch.batching import arithmetic, torch_ops
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.picking import is_index
from autobatch.vm import arrays, stores
from autobatch.vm.arrays import buffers_of, is_array, length_of, parts_of
from autobatch.vm.values import ARRAY, INT_MAX, Cell, Column, Container, Uniform, read, uniform

Failing = Callable[[list[None], int], Any]
"""An operation on a list of as many elements, with an index, for its exception."""


def array_of(cell: Cell) -> Container | None:
    value = cell.value
    return value if is_array(value) else None


def numeric(context: Context, name: str, left: Cell, right: Cell) -> Cell:
    """An operator on lengths and positions."""
    x, y = read(left), read(right)
    meaning = getattr(operator, name)
    if type(x) is Uniform and type(y) is Uniform:
        return uniform(meaning(x.obj, y.obj))
    done = arithmetic.apply(context, name, meaning, [left, right])
    assert done is not None
    return done


def taken_over(context: Context, cell: Cell) -> bool:
    """Make a list an array that is read or written at a place of each thread's own.

    A short one of numbers is as well served by its cells, which recordings know.
    """
    value = cell.value
    if type(value) is not Container or value.type is not list or context.forecasts is not None:
        return False
    layout = arrays.layout_of_list(value)
    if layout is None or (type(layout) is arrays.Number and len(value.cells) < arrays.LONG):
        return False
    arrays.convert(cell, context.k, context.device, layout)
    return True


def as_array(context: Context, cell: Cell, layout: arrays.Layout) -> Container | None:
    """A list of elements of a layout, as an array from now on."""
    value = cell.value
    if type(value) is not Container or value.type is not list:
        return None
    if value.cells and arrays.layout_of_list(value) != layout:
        return None
    arrays.convert(cell, context.k, context.device, layout)
    return array_of(cell)


# Places


def number_of(value: Any) -> Any:
    """An index or a length as an int or ``[k]``; None if it is neither."""
    if type(value) is Uniform:
        obj = value.obj
        whole = isinstance(obj, Tensor) and not obj.dim() and not obj.dtype.is_floating_point
        return int(obj) if type(obj) in (int, bool) or whole else None
    return value.data.to(torch.int64) if is_index(value) else None


def size_of(array: Container) -> Any:
    return number_of(length_of(array).value)


def slot_of(context: Context, array: Container, index: Any, failing: Failing) -> Any:
    """The slot of an index; the threads for which it is out of range fail as ``failing`` does."""
    size = size_of(array)
    if type(index) is int and type(size) is int:
        if not -size <= index < size:
            raise_as(context, failing, size, index)
        return index + size if index < 0 else index
    low = least(array)
    if type(index) is not int or (index >= low if index >= 0 else -index > low):
        check(context, array, index, failing, (index < -size) | (index >= size))
    last = buffers_of(array).capacity - 1
    if type(index) is int:
        return min(index, last) if index >= 0 else (size + index).clamp(min=0)
    return torch.where(index < 0, index + size, index).clamp(0, last)


def least(array: Container) -> int:
    """Each thread's list has as many elements."""
    value = length_of(array).value
    if type(value) is Uniform:
        return int(value.obj)
    return value.bounds[0] if value.bounds is not None else 0  # type: ignore[union-attr]


def raise_as(context: Context, failing: Failing, size: int, index: int) -> None:
    try:
        failing([None] * size, index)
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error


def check(context: Context, array: Container, index: Any, failing: Failing, failed: Any) -> None:
    """Note the threads for which an index is out of range."""
    at = uniform(index) if type(index) is int else Cell(Column(index, "int"))
    snapshot = [Cell(length_of(array).value), at]
    context.check(
        failed.expand(context.k),
        lambda row: torch_ops.one_row(
            context, lambda size, place: failing([None] * size, place), snapshot, row
        ),
    )


# Writing


def writable(context: Context, cell: Cell) -> Container:
    """The array, to write to; what has been computed so far is as it will be."""
    context.settle()
    value = cell.value
    assert type(value) is Container
    if buffers_of(value).frozen:
        context.counter.launch(len(buffers_of(value).data))
        value = cell.value = arrays.owned(value)
    return value


def numbers(context: Context, array: Container, item: Cell) -> list[Column] | None:
    """The numbers of an element to be written; None if it lies in the buffers in no such way."""
    layout = buffers_of(array).layout
    if arrays.layout_of(item) != layout:
        return None
    own = iter(arrays.stores_of(array))
    values = arrays.values_of(layout, item, own, context.k)
    return [arrays.expanded(value, context.k, context.device) for value in values]


def room(context: Context, array: Container, more: int) -> None:
    """Let the buffers hold so many more elements."""
    buffers, length = buffers_of(array), length_of(array).value
    if arrays.longest(array) + more <= buffers.capacity:
        return
    if type(length) is Column and context.k:
        most = context.host(length.data.max(), "length")
        length.bounds = (least(array), most)
    top = arrays.longest(array) + more
    if 2 * top > buffers.capacity:
        context.counter.launch(len(buffers.data))
        buffers.grow(2 * top)


def resized(context: Context, array: Container, by: int) -> None:
    """Let each thread's list have so many more elements, or fewer."""
    cells: Any = array.cells
    cells[1] = numeric(context, "add", cells[1], uniform(by))


def append(context: Context, cell: Cell, item: Cell) -> bool:
    """``x.append(v)``; False where it has to be done thread by thread."""
    array = array_of(cell)
    columns = None if array is None else numbers(context, array, item)
    if columns is None:
        return False
    array = writable(context, cell)
    room(context, array, 1)
    store(context, array, size_of(array), columns)
    resized(context, array, 1)
    return True


def store(context: Context, array: Container, slot: Any, columns: Sequence[Column]) -> None:
    context.counter.launch(len(columns))
    arrays.put(array, slot, columns)


def setitem(context: Context, cell: Cell, index: Cell, item: Cell) -> bool:
    """``x[i] = v``."""
    array = array_of(cell)
    at = number_of(read(index))
    columns = None if array is None or at is None else numbers(context, array, item)
    if columns is None:
        return False
    array = writable(context, cell)
    store(context, array, slot_of(context, array, at, assigned), columns)
    return True


def assigned(items: list[None], index: int) -> None:
    items[index] = None


def pop(context: Context, cell: Cell, args: list[Cell]) -> Cell | None:
    """``x.pop()``, ``x.pop(-1)``."""
    index = read(args[0]) if args else Uniform(-1)
    array = array_of(cell)
    if array is None or len(args) > 1 or type(index) is not Uniform or index.obj != -1:
        return None
    array = writable(context, cell)
    slot = slot_of(context, array, -1, list.pop)
    item = taken(context, array, slot)
    resized(context, array, -1)
    floor(array)
    return item


def floor(array: Container) -> None:
    """No list has less than no elements, which the bounds of a difference cannot tell."""
    value = length_of(array).value
    if type(value) is Column and value.bounds is not None:
        low, high = value.bounds
        value.bounds = (max(low, 0), max(high, 0))


def extend(context: Context, cell: Cell, items: Cell) -> bool:
    """``x.extend(y)``, ``x += y`` for lists of like elements."""
    array, other = array_of(cell), read(items)
    if is_array(other) and array is None:
        array = as_array(context, cell, buffers_of(other).layout)
    if array is None or type(other) is not Container:
        return False
    if other.type in (list, tuple):
        parts = list(other.children())
        layout = buffers_of(array).layout
        if any(arrays.layout_of(part) != layout for part in parts):
            return False
        return all(append(context, cell, part) for part in parts)
    if not is_array(other) or buffers_of(other).layout != buffers_of(array).layout:
        return False
    array = writable(context, cell)
    attach(context, array, other)
    return True


def attach(context: Context, array: Container, other: Container) -> None:
    """Write the elements of one array behind those of another."""
    width = min(arrays.longest(other), buffers_of(other).capacity)
    room(context, array, width)
    here, size = parts_of(array)[0], size_of(array)
    length = length_of(other)
    steps = torch.arange(width, device=here.device)
    slots = (size + steps).expand(context.k, width) if type(size) is int else size[:, None] + steps
    slots = slots.clamp(max=buffers_of(array).capacity - 1)
    columns = renumbered(array, other, width)
    for mine, theirs in zip(buffers_of(array).data, columns, strict=True):
        mine[here[:, None], slots] = theirs.data
    context.counter.launch(len(columns))
    buffers_of(array).widen([column.bounds for column in columns])
    cells: Any = array.cells
    cells[1] = numeric(context, "add", cells[1], length)


def renumbered(array: Container, other: Container, width: int) -> list[Column]:
    """The first ``width`` elements, tensors by their numbers in the stores of another array."""
    rules = (
        stores.renumbering(mine, theirs)
        for mine, theirs in zip(arrays.stores_of(array), arrays.stores_of(other), strict=True)
    )
    columns: list[Column] = []
    for leaf, is_tensor in enumerate(arrays.stored_leaves(buffers_of(other).layout)):
        column = arrays.rows_of(other, leaf, width)
        rule = next(rules) if is_tensor else None
        columns.append(column if rule is None else rule(column))
    return columns


# Reading


def taken(context: Context, array: Container, slot: Any) -> Cell:
    context.counter.launch(len(buffers_of(array).data))
    return arrays.item(array, slot)


def getitem(context: Context, cell: Cell, array: Container, index: Cell) -> Cell | None:
    """``x[i]`` and ``x[a:b]``; None where it has to be done thread by thread."""
    where = read(index)
    if type(where) is Container and where.type is slice:
        ends = [bound_of(read(part)) for part in where.children()]
        return None if MISSING in ends else sliced(context, array, *ends)
    at = number_of(where)
    if at is None:
        return None
    return taken(context, array, slot_of(context, array, at, operator.getitem))


MISSING = object()


def bound_of(value: Any) -> Any:
    """A bound of a slice as None, an int or ``[k]``."""
    if type(value) is Uniform and value.obj is None:
        return None
    found = number_of(value)
    return MISSING if found is None else found


def sliced(context: Context, array: Container, start: Any, stop: Any, step: Any) -> Cell | None:
    """``x[a:b]``, a new list."""
    if step is not None and (type(step) is not int or step != 1):
        return None
    size = size_of(array)
    first = 0 if start is None else bounded(start, size)
    last = size if stop is None else bounded(stop, size)
    count = last - first
    top = min(arrays.longest(array), buffers_of(array).capacity)
    if type(count) is int:
        length = uniform(max(count, 0))
    else:
        count = torch.as_tensor(count, device=context.device).clamp(min=0)
        length = Cell(Column(count.expand(context.k), "int", (0, top)))
    return Cell(part(context, array, first, length, top))


def bounded(given: Any, size: Any) -> Any:
    """A slice's bound as Python means it: from the end if negative, and within the list."""
    if type(given) is int and type(size) is int:
        return min(given, size) if given >= 0 else max(given + size, 0)
    sizes = torch.as_tensor(size)
    if type(given) is int:
        return sizes.clamp(max=given) if given >= 0 else (sizes + given).clamp(min=0)
    return torch.where(given < 0, given + sizes, given).clamp(min=0).minimum(sizes)


def part(context: Context, array: Container, first: Any, length: Cell, top: int) -> Container:
    """The elements from ``first`` on, in buffers of their own."""
    buffers = buffers_of(array)
    place, _ = parts_of(array)
    width = int(length.value.obj) if type(length.value) is Uniform else top
    capacity = width + arrays.SPARE
    steps = torch.arange(width, device=place.device)
    slots = steps + (first if type(first) is int else first[:, None])
    slots = slots.clamp(max=max(buffers.capacity - 1, 0)).expand(context.k, width)
    data: list[Tensor] = []
    for table in buffers.data:
        new = arrays.blank(context.k, capacity, table)
        new[:, :width] = table[place[:, None], slots]
        data.append(new)
    context.counter.launch(len(data))
    layout, bounds = buffers.layout, list(buffers.bounds)
    own = arrays.stores_of(array)
    return arrays.fresh(layout, context.k, data, bounds, length, own, context.device)


def copied(context: Context, array: Container) -> Cell:
    """``x.copy()``, ``list(x)``."""
    context.counter.launch(len(buffers_of(array).data))
    return Cell(arrays.owned(array))


def concatenated(context: Context, left: Cell, right: Cell) -> Cell | None:
    """``x + y`` where one of them is an array and the other a list of like elements."""
    x, y = read(left), read(right)
    if type(x) is not Container or type(y) is not Container:
        return None
    if {x.type, y.type} - {list, ARRAY}:
        return None
    known = buffers_of(x if is_array(x) else y).layout
    if any(arrays.layout_of_list(v) not in (known, None if v.cells else known) for v in (x, y)):
        return None
    result = Cell(arrays.owned(x) if is_array(x) else Container(list, list(x.children())))
    arrays.convert(result, context.k, context.device, known)
    context.counter.launch(len(buffers_of(result.value).data))  # type: ignore[arg-type]
    return result if extend(context, result, right) else None


def advance(context: Context, cells: list[Cell], array: Container) -> tuple[Cell, Cell]:
    """The next element of an iterator over an array, and whether there was one."""
    position = cells[0]
    more = numeric(context, "lt", position, length_of(array))
    if getattr(read(more), "obj", True) is False or not buffers_of(array).capacity:
        return uniform(None), more
    at = number_of(read(position))
    last = buffers_of(array).capacity - 1
    slot = min(at, last) if type(at) is int else at.clamp(max=last)
    cells[0] = numeric(context, "add", position, uniform(1))
    return taken(context, array, slot), more


def progression(context: Context, start: Cell, step: int, size: Cell) -> Cell | None:
    """The list of ``start``, ``start + step`` and so on, ``size`` of them."""
    first, top = arrays.expanded(read(start), context.k, context.device), highest(context, size)
    if first.bounds is None or abs(step) * top + max(map(abs, first.bounds)) > INT_MAX:
        return None
    steps = torch.arange(top, device=context.device) * step
    data = arrays.blank(context.k, top + arrays.SPARE, first.data)
    data[:, :top] = first.data[:, None] + steps
    ends = (step * top, 0, -step * top)
    bounds = (min(first.bounds[0] + min(ends), 0), max(first.bounds[1] + max(ends), 0))
    context.counter.launch(2)
    layout = arrays.Number("int")
    return Cell(arrays.fresh(layout, context.k, [data], [bounds], size, (), context.device))


def highest(context: Context, size: Cell) -> int:
    """The most of some lengths."""
    value = size.value
    if type(value) is Uniform:
        return int(value.obj)
    assert type(value) is Column
    most = context.host(value.data.max(), "length") if context.k else 0
    value.bounds = (0, most)
    return int(most)
