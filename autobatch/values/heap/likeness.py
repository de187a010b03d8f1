"""Are two heaps alike: may groups that meet at a block coalesce.

In: the *roots* of a heap, the cells that the live variables refer to. Out: the key of ``alike``,
equal for heaps that may coalesce, and the ``identity`` by which objects are told apart.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable
from types import BuiltinMethodType, MethodType
from typing import Any

import torch
from torch import Tensor

from autobatch.values import listing
from autobatch.values.cells import (
    NUMBER_TAGS,
    PACKED,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    View,
    fits_column,
    is_mutable,
    read,
)
from autobatch.values.layouts import seen_for_all, seen_layout

Key = tuple[Hashable, ...]

LONG, LARGE = 16, 2**14
"""Elements of a uniform tensor, and of its threads' rows, that keep it from becoming a column."""
NAMED = (View, Container, Objects)
"""Values that a program writes to, so that it matters which names mean one."""
LISTS = "lists"
IMMUTABLE = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis), torch.dtype)


class Heap:
    """Collects the alike key of some roots; see ``alike``."""

    def __init__(self, k: int = 0, blind: bool = False, lists: bool = False) -> None:
        self.k = k
        self.blind = blind
        self.lists = lists
        self.numbers: dict[int, int] = {}
        self.parts: list[Hashable] = []

    def visit(self, cell: Cell) -> None:
        value = cell.value
        kind = type(value)
        if kind is Column and value.tag != "tensor":  # type: ignore[union-attr]
            self.parts.append(value.tag)  # type: ignore[union-attr]
            return
        if (kind in NAMED or not self.blind) and (kind is Column or is_mutable(value)):
            number = self.numbers.get(id(cell))
            if number is not None:
                self.parts.append(number)
                return
            self.numbers[id(cell)] = len(self.numbers)
        if self.lists and (kind is Container or kind is Objects):
            elements = elements_of(value, self.blind)
            if elements is not False:
                self.parts.append((LISTS, elements))
                return
        if type(value) is Container:
            self.parts.append((value.type, slots(value), static_key(value)))
            for child in value.children():
                self.visit(child)
        elif type(value) is View:
            self.parts.append(("view", value.recipe.key))
            self.visit(value.base)
            for arg in value.args:
                self.visit(arg)
        else:
            self.parts.append(leaf_key(value))
            if kind is Uniform and self.k and is_worth_keeping(value.obj, self.k):  # type: ignore[union-attr]
                self.parts.append(Uniform)


def elements_of(value: Value, blind: bool) -> Hashable:
    """The kind of the elements of lists that may differ in length (see ``lists``), else False."""
    if type(value) is Objects:
        return False if value.lists is None else value.lists.kind
    if type(value) is not Container or value.type is not list:
        return False
    kind = listing.kind_of(value.cells, blind)  # type: ignore[arg-type]
    if kind and blind:  # no write is seen through two names, so no element need stay a view;
        # what else has the view in its place keeps it, as in the groups whose list has it not
        value.cells = [
            Cell(read(cell)) if type(cell.value) is View else cell for cell in value.children()
        ]
    return kind


def is_worth_keeping(obj: Any, k: int) -> bool:
    """Whether a tensor for all ``k`` threads is better left one than made a row for each."""
    return isinstance(obj, Tensor) and obj.numel() >= LONG and obj.numel() * k >= LARGE


def slots(value: Container) -> Hashable:
    """What distinguishes the structure of containers of one type."""
    if not isinstance(value.cells, dict):
        return len(value.cells)
    if value.type is dict:
        return tuple(identity(key) for key in value.cells)  # 1 and True are two keys to a reader
    return tuple(value.cells)


def static_key(value: Container) -> Hashable:
    """What distinguishes what the threads of containers of one type share."""
    if value.type is PACKED:  # tables can be joined
        table = value.static
        return (table.dtype, table.shape[1:], table.device)
    return identity(value.static)


def alike(
    roots: Iterable[Cell], k: int = 0, blind: bool = False, lists: bool = False
) -> tuple[Hashable, ...]:
    """A key that is equal for heaps that may coalesce.

    With ``k``, their number of threads, that of heaps that should: a large uniform tensor saves
    more, by the operations that it spares each thread, than an execution of a block costs.

    Equal keys mean: the same tag, dtype and event shape cell by cell (a uniform number or
    tensor counts as the column that it would make), the same layout of tensors if the program sees
    that (see ``layouts``), the same alias graph among what can change, and otherwise the same
    uniform objects. ``blind``: which names mean one tensor does not matter. ``lists``: lists whose
    elements are of one kind may differ in length; those of no elements have None for the kind, and
    go with any (see ``agreed``).
    """
    heap = Heap(k, blind, lists)
    visit = heap.visit
    for root in roots:
        visit(root)
    return tuple(heap.parts)


def agreed(one: Key, other: Key) -> Key | None:
    """What two keys of ``alike`` are but for lists that are empty; None if they differ."""
    if len(one) != len(other):
        return None
    pairs = zip(one, other, strict=True)
    parts = [left if left == right else filled(left, right) for left, right in pairs]
    return None if None in parts else tuple(parts)


def filled(one: Any, other: Any) -> Hashable:
    """The part of a key for lists that are empty in some threads; None if they are no such."""
    if any(type(part) is not tuple or part[:1] != (LISTS,) for part in (one, other)):
        return None
    return other if one[1] is None else one if other[1] is None else None


def leaf_key(value: Value) -> Hashable:
    if type(value) is Column:
        if value.tag != "tensor":
            return value.tag
        data = value.table
        layout = seen_layout(data)
        return (data.dtype, data.shape[1:], data.device, layout)
    if type(value) is Objects:
        return "objects"
    assert type(value) is Uniform
    obj = value.obj
    if isinstance(obj, Tensor):
        return (obj.dtype, obj.shape, obj.device, seen_for_all(obj))
    if fits_column(obj):
        return NUMBER_TAGS[type(obj)]
    return identity(obj)


def identity(obj: object) -> Hashable:
    """Equal for the same object, and for the same bits of the same immutable type.

    A bound method is a new object each time that it is looked up; it goes by what it binds.
    """
    if type(obj) is float:
        return (float, struct.pack("d", obj))
    if type(obj) in IMMUTABLE:
        return (type(obj), repr(obj) if type(obj) is complex else obj)
    if type(obj) is tuple:
        return (tuple, tuple(identity(part) for part in obj))
    if type(obj) is MethodType:
        return (MethodType, id(obj.__self__), id(obj.__func__))
    if type(obj) is BuiltinMethodType:
        return (BuiltinMethodType, id(obj.__self__), hash(obj))  # its hash tells the function, too
    return id(obj)
