"""Displays and comprehensions: lists, tuples, dicts and sets as a program writes them down."""

from __future__ import annotations

from typing import Any

from autobatch.batching import lists, semantics
from autobatch.batching.containers import iterators, subscripts
from autobatch.batching.containers.callees import is_hashable
from autobatch.batching.context import Context
from autobatch.batching.host.rows import run_rows, write_rows
from autobatch.batching.objects import namespaces
from autobatch.values.cells import Cell, Container, Uniform, read, uniform


def dict_(context: Context, attr: Any, *cells: Cell) -> Cell:
    keys = [subscripts.entry_key(cell) for cell in cells[::2]]
    if any(key is subscripts.NO_KEY or not is_hashable(key) for key in keys):
        return run_rows(
            context,
            semantics.SEMANTICS["dict"],
            list(cells),
            {},
            "keys differ",
            keep=True,
            fresh=False,
        )
    return Cell(Container(dict, dict(zip(keys, cells[1::2], strict=True))))


def set_(context: Context, attr: Any, *cells: Cell) -> Cell:
    return run_rows(
        context, semantics.SEMANTICS["set"], list(cells), {}, "a set", keep=True, fresh=False
    )


def append(context: Context, attr: Any, target: Cell, item: Cell) -> None:
    value = read(target)
    if type(value) is Container and value.type is list:
        value.cells.append(item)  # type: ignore[union-attr]
        return
    found = lists.held(value)
    if found is not None and lists.append(context, found, item):
        return
    write_rows(context, semantics.SEMANTICS["append"], target, item)


def extend(context: Context, attr: Any, target: Cell, items: Cell) -> None:
    value = read(target)
    if type(value) is Container and value.type is list:
        parts = iterators.starred(context, items)
        if parts is not None:
            value.cells.extend(parts)  # type: ignore[union-attr]
            return
    write_rows(context, semantics.SEMANTICS["extend"], target, items)


def update(context: Context, attr: Any, target: Cell, items: Cell) -> None:
    value, other = read(target), namespaces.opened(read(items))
    if type(value) is Container and isinstance(value.cells, dict):
        if type(other) is Uniform and type(other.obj) is dict:
            value.cells.update({key: uniform(item, shared=True) for key, item in other.obj.items()})
            return
        if type(other) is Container and other.type is dict:
            value.cells.update(other.cells)  # type: ignore[arg-type]
            return
    write_rows(context, semantics.SEMANTICS["update"], target, items)


def to_tuple(context: Context, attr: Any, cell: Cell) -> Cell:
    value = read(cell)
    if type(value) is Container:
        return Cell(Container(tuple, list(value.children())))
    return run_rows(context, tuple, [cell], {}, "objects", fresh=False)


def to_set(context: Context, attr: Any, cell: Cell) -> Cell:
    return run_rows(context, set, [cell], {}, "a set", keep=True, fresh=False)
