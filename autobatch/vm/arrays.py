"""Per-thread arrays: lists of like elements, each thread's of a length of its own.

An array is a ``Container`` of the mark ``ARRAY``. ``static`` are its ``Buffers``: for each number
in an element, a tensor ``[K, capacity]``. The cells are two number columns, which row of the
buffers is the thread's, and how long its list is, and the stores of an element's tensors
(``stores``), of which the buffers have the numbers. A split or a meeting moves the columns; the
parts of a split go on with the same buffers, each writing to the rows of its own threads.

    xs[i]         ->  data[place, i]
    xs.append(v)  ->  data[place, length] = v, then length + 1

What lies beyond a list's length is nobody's. An element is a number, a tensor that is no view of
another one, what all threads share and nobody can change, or a tuple of elements; ``layout_of``
says how it lies in the buffers.
Anything else stays a list of cells. Where one row of ``frozen`` buffers may be two lists', a write
copies the rows before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, final

import torch
from torch import Tensor

from autobatch.vm.identities import identity
from autobatch.vm.stores import ROW, Kind, Shelf, is_stored, numbers_of, storable, store
from autobatch.vm.values import (
    ARRAY,
    NUMBER_DTYPES,
    NUMBER_TAGS,
    Bounds,
    Cell,
    Column,
    Container,
    Uniform,
    View,
    expand,
    fits_column,
    join_bounds,
    read,
    uniform,
)

LONG = 16
"""Elements from which a list is an array where its cells would have to be moved."""
SPARE = 4
CONSTANTS = (str, bytes, type(None), type(Ellipsis), torch.dtype)


@final
@dataclass(frozen=True, slots=True)
class Number:
    """An element, or a part of one, that is a number of the type ``tag``."""

    tag: str


@final
@dataclass(frozen=True, slots=True)
class Stored:
    """An element, or a part of one, that is a tensor: its number in a store is in the buffers."""

    kind: Kind


@final
@dataclass(frozen=True, slots=True)
class Same:
    """A part that is the same object for all threads, in all elements."""

    key: Hashable
    obj: Any = field(compare=False)


@final
@dataclass(frozen=True, slots=True)
class Parts:
    """A tuple, or a named one."""

    type: Any
    parts: tuple[Layout, ...]


Layout = Number | Stored | Same | Parts


@final
@dataclass(slots=True, eq=False)
class Buffers:
    """``data[j]`` ``[K, capacity]`` holds the ``j``-th numbers; ``bounds[j]`` enclose its ints.

    They enclose zero as well, which is where no element is.
    """

    layout: Layout
    data: list[Tensor]
    bounds: list[Bounds | None]
    frozen: bool = False

    @property
    def capacity(self) -> int:
        return self.data[0].shape[1] if self.data else 2**62

    def grow(self, capacity: int) -> None:
        """Let each list have so many elements."""
        self.data = [widened(data, capacity) for data in self.data]

    def widen(self, bounds: Sequence[Bounds | None]) -> None:
        """Take in where the ints of new elements lie."""
        self.bounds = [join_bounds(pair) for pair in zip(self.bounds, bounds, strict=True)]


def widened(data: Tensor, capacity: int) -> Tensor:
    new = blank(data.shape[0], capacity, data)
    new[:, : data.shape[1]] = data
    return new


def blank(rows: int, capacity: int, like: Tensor) -> Tensor:
    """A buffer that may be written in any mode."""
    with torch.inference_mode(False):
        return torch.zeros(rows, capacity, dtype=like.dtype, device=like.device)


def is_array(value: Any) -> TypeGuard[Container]:
    return type(value) is Container and value.type is ARRAY


def parts_of(array: Container) -> tuple[Tensor, Cell]:
    """The rows of the threads, and the cell of their lengths."""
    place, length, *_ = array.children()
    column = place.value
    assert type(column) is Column
    return column.data, length


def length_of(array: Container) -> Cell:
    """``len(xs)``: a number of each thread's own, or one for all."""
    return list(array.children())[1]


def longest(array: Container) -> int:
    """No thread's list has more elements."""
    value = length_of(array).value
    if type(value) is Uniform:
        return int(value.obj)
    assert type(value) is Column
    return buffers_of(array).capacity if value.bounds is None else value.bounds[1]


def stores_of(array: Container) -> list[Cell]:
    """The stores of an element's tensors, in order."""
    return list(array.children())[2:]


def buffers_of(array: Container) -> Buffers:
    buffers: Buffers = array.static
    return buffers


# Layouts


def layout_of(cell: Cell) -> Layout | None:
    """How an element lies in buffers; None if it has to stay a cell."""
    kind = storable(cell)
    if kind is not None:
        return Stored(kind)
    value = cell.value
    if type(value) is Column:
        return None if value.tag == "tensor" else Number(value.tag)
    if type(value) is Uniform:
        return layout_of_object(value.obj)
    if type(value) is Container and is_tuple(value.type):
        parts = tuple(map(layout_of, value.children()))
        return None if None in parts else Parts(value.type, parts)  # type: ignore[arg-type]
    return None


def layout_of_object(obj: Any) -> Layout | None:
    if fits_column(obj):
        return Number(NUMBER_TAGS[type(obj)])
    if isinstance(obj, CONSTANTS):
        return Same(identity(obj), obj)
    if type(obj) is tuple:
        parts = tuple(map(layout_of_object, obj))
        return None if None in parts else Parts(tuple, parts)  # type: ignore[arg-type]
    return None


def is_tuple(kind: Any) -> bool:
    """Tuples and named tuples; what else derives from tuple is made in a way of its own."""
    return kind is tuple or (
        isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
    )


def layout_of_list(value: Container) -> Layout | None:
    """The layout of all elements of an array or a list of some; None if there is none."""
    if value.type is ARRAY:
        return buffers_of(value).layout
    found: Layout | None = None
    for cell in value.children():
        layout = layout_of(cell)
        if layout is None or (found is not None and layout != found):
            return None
        found = layout
    return found


def values_of(layout: Layout, cell: Cell, stores: Iterator[Cell], k: int) -> Iterator[Any]:
    """The numbers of an element of a layout; its tensors are in the stores from now on."""
    if type(layout) is Number:
        yield cell.value
    elif type(layout) is Stored:
        yield numbers_of(cell, next(stores), k)
    elif type(layout) is Parts:
        for part, own in zip(layout.parts, inner(cell), strict=True):
            yield from values_of(part, own, stores, k)


def inner(cell: Cell) -> list[Cell]:
    """The parts of a tuple."""
    value = cell.value
    if type(value) is Container:
        return list(value.children())
    return [uniform(obj) for obj in value.obj]  # type: ignore[union-attr]


def tensors_in(cell: Cell, layout: Layout) -> Iterator[Cell]:
    """The tensors of an element, in the order of the stores."""
    if type(layout) is Stored:
        yield cell
    elif type(layout) is Parts:
        for part, own in zip(layout.parts, inner(cell), strict=True):
            yield from tensors_in(own, part)


def tags(layout: Layout) -> list[str]:
    if type(layout) is Number:
        return [layout.tag]
    if type(layout) is Stored:
        return ["int"]
    return [tag for part in getattr(layout, "parts", ()) for tag in tags(part)]


def kinds(layout: Layout) -> list[Kind]:
    """Of the stores, in order."""
    if type(layout) is Stored:
        return [layout.kind]
    return [kind for part in getattr(layout, "parts", ()) for kind in kinds(part)]


def stored_leaves(layout: Layout) -> list[bool]:
    """Which numbers are those of tensors."""
    if type(layout) in (Number, Stored):
        return [type(layout) is Stored]
    return [flag for part in getattr(layout, "parts", ()) for flag in stored_leaves(part)]


def element(layout: Layout, numbers: Iterator[Cell], stores: Iterator[Cell]) -> Cell:
    """The cell of an element, its numbers and the stores of its tensors taken in order."""
    if type(layout) is Number:
        return next(numbers)
    if type(layout) is Stored:
        return Cell(View(next(stores), ROW, (next(numbers),)))
    if type(layout) is Parts:
        parts = [element(part, numbers, stores) for part in layout.parts]
        return Cell(Container(layout.type, parts))
    assert type(layout) is Same
    return uniform(layout.obj)


def element_of_row(layout: Layout, numbers: Iterator[Any], shelves: Iterator[Shelf]) -> Any:
    """One thread's element."""
    if type(layout) is Number:
        return next(numbers)
    if type(layout) is Stored:
        return next(shelves)[next(numbers)]
    if type(layout) is Parts:
        parts = [element_of_row(part, numbers, shelves) for part in layout.parts]
        return layout.type(*parts) if hasattr(layout.type, "_fields") else tuple(parts)
    assert type(layout) is Same
    return layout.obj


# Making arrays


def made(buffers: Buffers, place: Tensor, length: Cell, stores: Sequence[Cell]) -> Container:
    return Container(ARRAY, [Cell(Column(place, "int")), length, *stores], buffers)


def fresh(
    layout: Layout,
    k: int,
    data: list[Tensor],
    bounds: list[Bounds | None],
    length: Cell,
    stores: Sequence[Cell],
    device: torch.device,
) -> Container:
    """An array over buffers of its own, one row for each of ``k`` threads."""
    place = torch.arange(k, device=device)
    return made(Buffers(layout, data, bounds), place, length, stores)


def convert(cell: Cell, k: int, device: torch.device, layout: Layout) -> None:
    """Make a list whose elements have a layout an array, for all names of it."""
    value = cell.value
    assert type(value) is Container
    if value.type is ARRAY:
        return
    cells = list(value.children())
    stores = stores_for(cells, layout)
    numbers = [list(values_of(layout, item, iter(stores), k)) for item in cells]
    capacity = len(cells) + max(SPARE, len(cells) // 2)
    data: list[Tensor] = []
    bounds: list[Bounds | None] = []
    for leaf, tag in enumerate(tags(layout)):
        values = [row[leaf] for row in numbers]
        table = blank(k, capacity, torch.empty(0, dtype=NUMBER_DTYPES[tag], device=device))
        ends: Bounds | None = (0, 0)
        if values and all(type(value) is Uniform for value in values):
            objs = [value.obj for value in values]
            table[:, : len(objs)] = torch.tensor(objs, dtype=table.dtype, device=device)
            ends = (int(min(0, *objs)), int(max(0, *objs))) if tag == "int" else None
        elif values:
            columns = [expanded(value, k, device) for value in values]
            table[:, : len(columns)] = torch.stack([column.data for column in columns], 1)
            ends = join_bounds([ends, *(column.bounds for column in columns)])
        data.append(table)
        bounds.append(ends if tag == "int" else None)
    cell.value = fresh(layout, k, data, bounds, uniform(len(cells)), stores, device)


def stores_for(cells: Sequence[Cell], layout: Layout) -> list[Cell]:
    """A store for each tensor of an element: one that holds some of them already, or a new one."""
    known: dict[Kind, Cell] = {}
    for cell in cells:
        for tensor in tensors_in(cell, layout):
            if is_stored(tensor):
                kind = storable(tensor)
                assert kind is not None
                known.setdefault(kind, tensor.value.base)  # type: ignore[union-attr]
    return [known.setdefault(kind, store(kind)) for kind in kinds(layout)]


def expanded(value: Any, k: int, device: torch.device) -> Column:
    return value if type(value) is Column else expand(value.obj, k, device)


def settle_long(cell: Cell) -> None:
    """Make a list an array where that is better than to move its cells."""
    value = cell.value
    if type(value) is not Container or value.type is not list:
        return
    layout = long_layout([value])
    if layout is not None:
        column = first_column(value.children())
        assert column is not None
        convert(cell, len(column.data), column.data.device, layout)


def long_layout(values: Sequence[Container]) -> Layout | None:
    """The layout of lists of many like elements, which differ by thread in one of the lists."""
    if len(values[0].cells) < LONG:
        return None
    if all(first_column(value.children()) is None for value in values):
        return None
    layouts = {layout_of_list(value) for value in values}
    return layouts.pop() if len(layouts) == 1 else None


def first_column(cells: Iterable[Cell]) -> Column | None:
    """A column among the parts of elements."""
    for cell in cells:
        value: Any = cell.value
        if type(value) is Uniform:
            continue
        if is_stored(cell):
            value = read(value.args[0])
        if type(value) is Container:
            value = first_column(value.children())
        if type(value) is Column:
            return value
    return None


# Moving arrays


def owned(array: Container) -> Container:
    """The same list over buffers of its own."""
    buffers = buffers_of(array)
    place, length = parts_of(array)
    data = [copied_rows(table, place) for table in buffers.data]
    bounds, device = list(buffers.bounds), place.device
    return fresh(buffers.layout, len(place), data, bounds, length, stores_of(array), device)


def copied_rows(table: Tensor, place: Tensor) -> Tensor:
    new = blank(len(place), table.shape[1], table)
    new[:] = table.index_select(0, place)
    return new


def freeze(cells: Iterable[Cell]) -> None:
    """Two heaps go on with the arrays among some cells: a write to one is not for the other."""
    for cell in cells:
        if is_array(cell.value):
            buffers_of(cell.value).frozen = True


Renumbering = Callable[[Column], Column] | None
"""What makes the numbers of tensors in one store those in another; None where they stay."""


def joined(
    arrays: Sequence[Container], renumbering: Callable[[Cell], Renumbering]
) -> list[Container]:
    """Arrays over one pair of buffers, which have the rows of all their threads in order.

    ``renumbering(store)`` says what the numbers of its tensors become.
    """
    new = [[renumbering(store) for store in stores_of(array)] for array in arrays]
    moves = any(rule is not None for rules in new for rule in rules)
    if not moves and len({id(array.static) for array in arrays}) == 1:
        return list(arrays)
    whole = joined_buffers(arrays, new)
    moved: list[Container] = []
    start = 0
    for array in arrays:
        place, length = parts_of(array)
        own = torch.arange(start, start + len(place), device=place.device)
        moved.append(made(whole, own, length, stores_of(array)))
        start += len(place)
    return moved


def joined_buffers(arrays: Sequence[Container], new: Sequence[Sequence[Renumbering]]) -> Buffers:
    """New buffers with the rows of several arrays' threads, the numbers of tensors renewed."""
    layout = buffers_of(arrays[0]).layout
    width = max(map(longest, arrays))
    data: list[Tensor] = []
    bounds: list[Bounds | None] = []
    rules = [iter(own) for own in new]
    for leaf, is_tensor in enumerate(stored_leaves(layout)):
        columns = [rows_of(array, leaf, width) for array in arrays]
        if is_tensor:
            renewed = [next(own) for own in rules]
            columns = [c if r is None else r(c) for c, r in zip(columns, renewed, strict=True)]
        pieces = [column.data for column in columns]
        table = blank(sum(map(len, pieces)), width + max(SPARE, width // 2), pieces[0])
        start = 0
        for piece in pieces:
            table[start : start + len(piece), : piece.shape[1]] = piece
            start += len(piece)
        data.append(table)
        bounds.append(join_bounds(column.bounds for column in columns))
    return Buffers(layout, data, bounds)


def rows_of(array: Container, leaf: int, width: int) -> Column:
    """The threads' rows of a buffer, as a column."""
    buffers = buffers_of(array)
    place, _ = parts_of(array)
    return Column(buffers.data[leaf].index_select(0, place)[:, :width], "int", buffers.bounds[leaf])


def numbers_of_tensors(array: Container) -> list[tuple[Cell, Tensor]]:
    """The stores of an array, and the numbers that it has in each."""
    leaves = [leaf for leaf, flag in enumerate(stored_leaves(buffers_of(array).layout)) if flag]
    width = longest(array)
    columns = [rows_of(array, leaf, width).data.reshape(-1) for leaf in leaves]
    return list(zip(stores_of(array), columns, strict=True))


def lists(
    array: Container, host: Callable[[Tensor], Any], k: int, shelves: Sequence[Shelf]
) -> list[list[Any]]:
    """Each thread's list; ``host`` gives what a tensor holds, ``shelves`` what stores hold."""
    buffers = buffers_of(array)
    place, length = parts_of(array)
    width = min(longest(array), buffers.capacity)
    value = length.value
    sizes = [value.obj] * k if type(value) is Uniform else host(value.data)  # type: ignore[union-attr]
    layout = buffers.layout
    columns = [host(data.index_select(0, place)[:, :width]) for data in buffers.data]
    return [
        [
            element_of_row(layout, iter([column[row][slot] for column in columns]), iter(shelves))
            for slot in range(size)
        ]
        for row, size in enumerate(sizes)
    ]


# Elements


def item(array: Container, slot: Any) -> Cell:
    """The elements in a slot, an int or ``[k]``."""
    buffers = buffers_of(array)
    place, _ = parts_of(array)
    numbers = [
        Cell(Column(taken(data, place, slot), tag, bounds))
        for data, tag, bounds in zip(
            buffers.data, tags(buffers.layout), buffers.bounds, strict=True
        )
    ]
    return element(buffers.layout, iter(numbers), iter(stores_of(array)))


def taken(data: Tensor, place: Tensor, slot: Any) -> Tensor:
    if type(slot) is int:
        return data[:, slot].index_select(0, place)
    return data[place, slot]


def put(array: Container, slot: Any, columns: Sequence[Column]) -> None:
    """Write the numbers of an element to a slot, an int or ``[k]``."""
    buffers = buffers_of(array)
    place, _ = parts_of(array)
    for data, column in zip(buffers.data, columns, strict=True):
        data[place, slot] = column.data
    buffers.widen([column.bounds for column in columns])
