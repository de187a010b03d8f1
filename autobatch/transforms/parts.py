"""Cells as trees of tensors: a group's arguments and results, leaf by leaf.

Tuples, lists, dicts and named tuples are structure; every other cell is a leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.tables import padding
from autobatch.batching.tables.order import in_order
from autobatch.presence.layers import alive
from autobatch.values import packs
from autobatch.values.cells import (
    PACKED,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    View,
    read,
)
from autobatch.values.heap import walks
from autobatch.values.packs import Order


def is_tree(value: Any) -> bool:
    """Whether a value is structure: a program-made tuple, list, dict or named tuple."""
    if type(value) is not Container or not isinstance(value.type, type):
        return False
    return value.type in (list, dict) or issubclass(value.type, tuple)


def opened(cell: Cell) -> Cell:
    """A cell whose lists, tuples and dicts are containers, those that all threads share too."""
    value = read(cell)
    if is_tree(value):
        assert type(value) is Container
        return Cell(value.rebuilt(map(opened, value.children())))
    if type(value) is Objects:
        return turned(value.items)
    if type(value) is not Uniform:
        return cell
    obj, shared = value.obj, value.shared
    if type(obj) is dict:
        parts = {key: opened(Cell(Uniform(item, shared))) for key, item in obj.items()}
        return Cell(Container(dict, parts))
    if isinstance(obj, list | tuple) and not isinstance(obj, torch.Size):
        items = [opened(Cell(Uniform(item, shared))) for item in obj]
        return Cell(Container(type(obj), items))
    return cell


def turned(items: list[Any]) -> Cell:
    """Lists, tuples and dicts of one structure, one for each thread, as one of threads' parts."""
    first: Any = items[0] if items else None
    kind = type(first)
    if not isinstance(first, list | tuple | dict) or isinstance(first, torch.Size):
        return Cell(Objects(items))
    if any(type(item) is not kind or len(item) != len(first) for item in items):
        return Cell(Objects(items))
    if not isinstance(first, dict):
        inner = zip(*items, strict=True)
        return Cell(Container(kind, [turned(list(part)) for part in inner]))
    if kind is not dict or any(tuple(item) != tuple(first) for item in items):
        return Cell(Objects(items))
    return Cell(Container(dict, {key: turned([item[key] for item in items]) for key in first}))


def leaves(cell: Cell) -> list[Cell]:
    """The leaves of a tree, in order."""
    value = read(cell)
    if not is_tree(value):
        return [cell]
    return [leaf for child in value.children() for leaf in leaves(child)]  # type: ignore[union-attr]


def rebuilt(tree: Cell, new: Iterator[Cell]) -> Cell:
    """The same tree of other leaves, or with trees in their place."""
    value = read(tree)
    if not is_tree(value):
        return next(new)
    assert type(value) is Container
    return Cell(value.rebuilt(rebuilt(child, new) for child in list(value.children())))


def column(cell: Cell, k: int) -> Tensor | None:
    """A leaf as ``[k, *E]``; None if it is not a tensor of one shape and dtype in all threads."""
    value = read(cell)
    if type(value) is Column and value.tag == "tensor":
        return value.data
    if type(value) is Uniform and isinstance(value.obj, Tensor):
        return value.obj.expand(k, *value.obj.shape)
    if type(value) is Objects and all(isinstance(item, Tensor) for item in value.items):
        same = len({(item.dtype, item.shape, item.device) for item in value.items}) == 1
        return torch.stack(value.items) if same else None
    return packs.stacked(value) if packs.is_packed(value) else None


def columns(tree: Cell, k: int) -> list[Tensor] | None:
    """All leaves of a tree as columns; None if one is none."""
    return all_of(column(leaf, k) for leaf in leaves(tree))


def padded_columns(tree: Cell, k: int) -> list[Tensor] | None:
    """The same, with zeros behind the rows of leaves of lengths of the threads' own.

    ``tree_of`` and ``leaf_like`` leave these out again.
    """
    return all_of(padded_column(leaf, k) for leaf in leaves(tree))


def all_of(found: Iterable[Tensor | None]) -> list[Tensor] | None:
    known = list(found)
    return None if any(tensor is None for tensor in known) else known  # type: ignore[return-value]


def padded_column(leaf: Cell, k: int) -> Tensor | None:
    pack, order = read(leaf), own_lengths(leaf)
    if order is None or not packs.is_packed(pack):
        return column(leaf, k)
    return padding.padded(in_order(pack, order), order) if padding.is_cheap(order) else None


def own_lengths(leaf: Cell) -> Order | None:
    """The lengths of a leaf's rows, if these are not the same in all threads."""
    value = read(leaf)
    if not packs.is_packed(value):
        return None
    order = packs.known_order(value)
    return order if len(set(order.sizes)) > 1 else None


def are_tensors(tree: Cell, k: int) -> bool:
    """Whether each leaf of a tree is a tensor in all threads, of one shape but for its length."""
    return all(packs.is_packed(read(leaf)) or column(leaf, k) is not None for leaf in leaves(tree))


def tree_of(tree: Cell, tensors: Iterable[Tensor]) -> Cell:
    """The same tree with columns as its leaves, of which rows are those of its own."""
    return rebuilt(tree, map(leaf_like, leaves(tree), tensors))


def leaf_like(leaf: Cell, data: Tensor) -> Cell:
    """A column, padded where a leaf was, in the place of this."""
    order = own_lengths(leaf)
    if order is None:
        return Cell(Column(data))
    order.change(alive)  # it may be of a level that has ended, within one that has not
    return Cell(order.pack(padding.unpadded(data, order)))


def tensors(cells: Iterable[Cell]) -> list[Tensor]:
    """The tensors that some cells reach."""
    found: list[Any] = []
    for cell in walks.reached(cells):
        value = cell.value
        for each in (value, value.cache) if type(value) is View else (value,):
            if type(each) is Column:
                found.append(each.table)
            elif type(each) is Uniform:
                found.append(each.obj)
            elif type(each) is Objects:
                found += each.items
            elif type(each) is Container and each.type is PACKED:
                found.append(each.static)
    return [item for item in found if isinstance(item, Tensor)]


def others(cells: Iterable[Cell]) -> Iterator[Any]:
    """The Python objects that some cells reach, but for tensors."""
    for cell in walks.reached(cells):
        value = cell.value
        objects = value.items if type(value) is Objects else ()
        for each in (value.obj,) if type(value) is Uniform else objects:
            if not isinstance(each, Tensor):
                yield each


def without_others(cells: Iterable[Cell]) -> None:
    """Leave out of the tables that some cells reach the rows of threads that have none there."""
    for cell in walks.reached(cells):
        value = cell.value
        cell.value = own_rows(value)
        if type(value) is View and value.cache is not None:
            value.cache = own_rows(value.cache)


def own_rows(value: Any) -> Any:
    if type(value) is Column and value.rows is not None:
        value.table, value.rows = value.data, None
    return packs.alone(value) if packs.is_packed(value) else value


def skeleton(tree: Cell) -> Any:
    """A tree's structure with a number in place of each leaf."""
    value = read(tree)
    if not is_tree(value):
        return 0
    inner = [skeleton(child) for child in value.children()]  # type: ignore[union-attr]
    if value.type is dict:  # type: ignore[union-attr]
        return dict(zip(value.cells, inner, strict=True))  # type: ignore[union-attr]
    kind: Any = value.type  # type: ignore[union-attr]
    return kind(*inner) if hasattr(kind, "_fields") else kind(inner)
