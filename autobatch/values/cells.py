"""Cells and the kinds of values that they hold.

A group's variables, list slots, fields and captured variables refer to *cells*; a cell
holds one *value* that stands for all ``k`` threads of the group:

- ``Uniform``: one Python object or tensor for all threads;
- ``Column``: a tensor with one row per thread, ``[k, *E]``, tagged ``tensor`` or, where the
  program sees Python numbers, ``int``, ``float`` or ``bool`` (int64, float64, bool of ``[k]``);
- ``Objects``: one Python object per thread, in a list of length ``k``;
- ``Container``: a list, tuple, dict, instance, box, bound method, closure or iterator that the
  program made: one structure for all threads, whose parts are cells; and tensors of different
  lengths as rows of one table (``packs``);
- ``View``: a tensor that shares memory with its base cell, kept as a recipe.

A value is replaced, not changed (a container's list or dict of cells excepted), so the
identity of a cell's value serves as its version, and two names for one mutable thing are two
references to one cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, final

import numpy as np
import torch
from torch import Tensor

from autobatch.compat import storage_id
from autobatch.presence import wide_rows
from autobatch.presence.record import met
from autobatch.values.repeated import is_shared, rows_of
from autobatch.values.stacks import Stacks
from autobatch.values.strides import is_plain, is_watched, taken

Bounds = tuple[int, int]
NUMBER_TAGS: dict[type, str] = {bool: "bool", int: "int", float: "float"}
NUMBER_DTYPES = {"bool": torch.bool, "int": torch.int64, "float": torch.float64}
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
LARGE_ROW = 8192
"""Bytes from which a thread's row is not copied at a split."""


Ties = frozenset[object]
"""Marks of a tensor that may be another one, by thread: both of them bear one mark.

``min(a, b)`` gives one of its operands itself. A write to a tensor is refused while another name
for what bears one of its marks is live; see ``writes.refuse_tied``.
"""
NO_TIES: Ties = frozenset()


@final
@dataclass(slots=True, eq=False, repr=False)
class Uniform:
    """``obj`` for all threads; ``shared`` if it existed before the call, so may not be written."""

    obj: Any
    shared: bool = False
    ties: Ties = NO_TIES


@final
class Column:
    """``data[i]`` is what thread ``i`` of the group sees; ``bounds`` encloses an int column.

    ``outside`` tells the rows that stand for tensors which existed before the call, so may not be
    written, and whose memory they show: for each row, or once for all, a ``storage_id``, True where
    nobody knows it, and False (0) for a row that is a thread's own.
    A large column that has been split is ``table[rows]``, not yet copied: ``x[t]`` looks up the
    thread and ``t`` at once, and only a use of the whole copies the rows. One that repeats a
    differentiated tensor stays so (see ``repeated``). The lengths of packed values may have an
    ``order``: see ``packs``.
    """

    __slots__ = ("bounds", "order", "outside", "rows", "table", "tag", "ties")
    order: Any  # of few columns: not set, where there is none

    def __init__(
        self,
        data: Tensor,
        tag: str = "tensor",
        bounds: Bounds | None = None,
        rows: Tensor | None = None,
        outside: np.ndarray | int = False,
    ) -> None:
        self.table = data
        self.tag = tag
        self.bounds = bounds
        self.rows = rows
        self.outside = outside
        self.ties = NO_TIES

    @property
    def data(self) -> Tensor:
        """The threads' rows, ``[k, *E]``."""
        if self.rows is not None:
            if is_shared(self.table):
                return rows_of(self.table, self.rows)
            self.table = taken(self.table, self.rows)
            self.rows = None
        return self.table

    @property
    def is_whole(self) -> bool:
        """Whether it is a tensor of its own, and nobody else's."""
        return self.rows is None and self.outside is False and not self.ties

    @property
    def event_shape(self) -> torch.Size:
        return self.table.shape[1:]

    def select(self, index: Tensor) -> Column:
        """The rows at ``index``; large ones stay where they are until they are used."""
        table, rows = self.table, self.rows
        if rows is not None:
            return Column(table, self.tag, self.bounds, rows.index_select(0, index))
        if table.dim() > 1 and (
            table.stride(0) * table.element_size() >= LARGE_ROW
            or (table.requires_grad and is_shared(table))
        ):
            return Column(table, self.tag, self.bounds, index)
        return Column(taken(table, index), self.tag, self.bounds)

    def __repr__(self) -> str:
        return f"Column({self.tag}, {self.table.dtype}, {tuple(self.event_shape)})"


def shown_memory(value: Value) -> int:
    """What rows that are a part of a tensor bear as ``outside``."""
    if type(value) is not Uniform or not value.shared or not isinstance(value.obj, Tensor):
        return False
    return storage_id(value.obj)


def selected(columns: Sequence[Column], indices: Sequence[Tensor]) -> list[list[Column]]:
    """``column.select(index)`` of each column, for each index."""
    if is_watched() or not all(map(moves_at_once, columns)):
        return [[column.select(index) for column in columns] for index in indices]
    return [
        [Column(wide_rows.rows_at(c.table, index), c.tag, c.bounds) for c in columns]
        for index in indices
    ]


def moves_at_once(column: Column) -> bool:
    """Whether some of its rows are nothing but copied."""
    table = column.table
    if column.rows is not None or not is_plain(table):
        return False
    return table.dim() < 2 or table.stride(0) * table.element_size() < LARGE_ROW


class ManyLists(Protocol):
    """Lists of different lengths, one for each thread (``lists.Lists``)."""

    def opened(self) -> list[list[Any]]: ...


@final
class Objects:
    """``items[i]`` is the object of thread ``i``, a real Python object with its identity.

    Lists of one kind of elements lie in one table, as ``lists``, until the first look at ``items``;
    tensors of unlike shapes lie in ``stacks``.
    """

    __slots__ = ("_items", "lists", "stacks", "ties")

    def __init__(
        self,
        items: list[Any],
        ties: Ties = NO_TIES,
        lists: ManyLists | None = None,
        stacks: Stacks | None = None,
    ) -> None:
        self._items = items
        self.ties = ties
        self.lists: Any = lists
        self.stacks = stacks

    @property
    def items(self) -> list[Any]:
        if self.lists is not None:
            self._items = self.lists.opened()
            self.lists = None
        elif self.stacks is not None:
            self._items = self.stacks.opened()
            self.stacks = None
        return self._items

    @property
    def kinds(self) -> set[type]:
        """The types of the objects, which are not looked at where they lie in a table."""
        if self.lists is not None:
            return {list}
        return {Tensor} if self.stacks is not None else set(map(type, self._items))

    def __repr__(self) -> str:
        return f"Objects({self.lists or self.stacks or self._items!r})"


@final
@dataclass(slots=True, eq=False, repr=False)
class Container:
    """``type`` is a Python type or one of the marks below; ``static`` is what all threads share."""

    type: Any
    cells: list[Cell] | dict[Any, Cell]
    static: Any = None

    def children(self) -> Iterable[Cell]:
        return self.cells.values() if isinstance(self.cells, dict) else self.cells

    def rebuilt(self, cells: Iterator[Cell]) -> Container:
        """The same structure over other cells, taken in the order of ``children``."""
        if isinstance(self.cells, dict):
            return Container(self.type, dict(zip(self.cells, cells, strict=True)), self.static)
        return Container(self.type, list(cells), self.static)


class Recipe(Protocol):
    """How a view is read from its base, and how a new content of the view is written back."""

    @property
    def key(self) -> Any: ...

    def read(self, base: Value, args: list[Value]) -> Value: ...

    def write(self, base: Value, args: list[Value], content: Value) -> Value: ...

    def row(self, base: Tensor, args: list[Any]) -> Tensor: ...


@final
@dataclass(slots=True, eq=False, repr=False)
class View:
    """What ``recipe`` makes of ``base`` and ``args``; ``cache`` holds it for the base ``seen``."""

    base: Cell
    recipe: Recipe
    args: tuple[Cell, ...]
    cache: Value | None = None
    seen: Any = None


Value = Uniform | Column | Objects | Container | View


class Cell:
    """A place that names refer to."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Cell({self.value!r})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Mark:
    """The ``type`` of a container that is no Python container."""

    name: str


BOX = Mark("box")
METHOD = Mark("method")
CLOSURE = Mark("closure")
PARTIAL = Mark("partial call")
STATELESS = Mark("module with given parameters")
FORK = Mark("forked call")
DEFERRAL = Mark("deferred operation")
PENDING = Mark("pending result")
RANGE_ITERATOR = Mark("range iterator")
SEQUENCE_ITERATOR = Mark("sequence iterator")
ENUMERATE_ITERATOR = Mark("enumerate iterator")
ZIP_ITERATOR = Mark("zip iterator")
DICT_ITERATOR = Mark("dict iterator")
DOWN_ITERATOR = Mark("reversed list iterator")
ITERATORS = (
    *(RANGE_ITERATOR, SEQUENCE_ITERATOR, ENUMERATE_ITERATOR, ZIP_ITERATOR),
    *(DICT_ITERATOR, DOWN_ITERATOR),
)
DICT_VIEW = Mark("dict view")
NAMESPACE = Mark("attributes of an instance")
EXHAUSTED = 2**62
"""The position of an iterator that has ended: it gives nothing more, whatever its list becomes."""
CHANGED = -1
"""The position of an iterator over a dict that has grown or shrunk: every step is an error."""
DICT_CHANGED = "dictionary changed size during iteration"
"""What Python says of a dict that grows or shrinks while it is gone through."""
PACKED = Mark("packed rows")
PLACE = Mark("elements of a shared tensor, to be written again")
UPDATE = Mark("what a shared tensor is to become")


@dataclass(frozen=True, slots=True)
class Unset:
    """What an empty box holds."""

    name: str = field(default="")


UNSET = Unset()


def uniform(obj: Any, shared: bool = False) -> Cell:
    return Cell(Uniform(obj, shared))


def ties_of(cell: Cell) -> Ties:
    return getattr(cell.value, "ties", NO_TIES)


def is_number(obj: Any) -> bool:
    """A bool, int or float proper: what a number column can hold a row of."""
    return type(obj) in NUMBER_TAGS


def fits_column(obj: Any) -> bool:
    return is_number(obj) and (type(obj) is not int or INT_MIN <= obj <= INT_MAX)


def expand(obj: Any, k: int, device: torch.device) -> Column:
    """The column ``[k, *E]`` that a uniform number or tensor stands for."""
    if isinstance(obj, Tensor):
        met(obj)
        return Column(torch.stack([obj] * k) if obj.is_sparse else obj.expand(k, *obj.shape))
    tag = NUMBER_TAGS[type(obj)]
    data = torch.full((k,), obj, dtype=NUMBER_DTYPES[tag], device=device)
    return Column(data, tag, (int(obj), int(obj)) if tag == "int" else None)


def as_column(value: Value, k: int, device: torch.device) -> Column | None:
    """A number or tensor, each thread's own or the same for all, as ``[k, *E]``; else None."""
    if type(value) is Column:
        return value
    if type(value) is not Uniform:
        return None
    fits = isinstance(value.obj, Tensor) or fits_column(value.obj)
    return expand(value.obj, k, device) if fits else None


def is_iterator(value: Value) -> bool:
    return type(value) is Container and value.type in ITERATORS


def is_mutable(value: Value) -> bool:
    """Whether two names for it must stay two names for one thing."""
    if type(value) is Column:
        return value.tag == "tensor"
    if type(value) is Uniform:
        return not value.shared and isinstance(value.obj, Tensor)
    if type(value) is Container:
        return value.type is not METHOD
    if type(value) is Objects:
        return value.lists is not None
    return type(value) is View


def join_bounds(bounds: Iterable[Bounds | None]) -> Bounds | None:
    low, high = INT_MAX, INT_MIN
    for pair in bounds:
        if pair is None:
            return None
        low, high = min(low, pair[0]), max(high, pair[1])
    return (low, high)


def are_inside(bounds: Bounds | None, size: int) -> bool:
    """Whether ints are indices into as many parts, wherever in their bounds they are."""
    return bounds is not None and -size <= bounds[0] and bounds[1] < size


def read(cell: Cell) -> Value:
    """The value that a cell stands for: a view's is made from its base, if that has changed."""
    value = cell.value
    if type(value) is not View:
        return value
    base = read(value.base)
    if value.seen is not seen(base) or value.cache is None:
        value.cache = value.recipe.read(base, [read(arg) for arg in value.args])
        value.seen = seen(base)
    return value.cache


def seen(base: Value) -> Any:
    """What tells whether a base is still what it was: stacks, once opened, may be written."""
    if type(base) is Objects and base.stacks is not None:
        return base.stacks
    return base
