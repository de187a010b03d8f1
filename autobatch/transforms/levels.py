"""What a level of ``torch.func`` leaves behind: its wrappers around tensors that cells reach.

Rows move within a level, also those of tensors that are none of its own, and come out wrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CellType
from typing import Any

from torch import Tensor

from autobatch.presence.layers import alive
from autobatch.values import packs
from autobatch.values.cells import PACKED, Cell, Column, Container, Objects, Uniform, View
from autobatch.values.heap import walks


def revived(cells: Iterable[Cell]) -> None:
    """Take what the cells reach out of the wrappers of levels that have ended."""
    changed(cells, alive)


def changed(cells: Iterable[Cell], change: Callable[[Tensor], Tensor]) -> None:
    """Put other tensors in the place of those that the cells reach."""
    for cell in walks.reached(cells):
        change_cell(cell, change)


def change_cell(cell: Cell, change: Callable[[Tensor], Tensor]) -> None:
    value = cell.value
    change_value(value, change)
    if type(value) is View and value.cache is not None:
        change_value(value.cache, change)


def change_value(value: Any, change: Callable[[Tensor], Tensor]) -> None:
    match value:
        case Column():
            value.table = change(value.table)
            if value.rows is not None:
                value.rows = change(value.rows)
            if (order := packs.order_beside(value)) is not None:
                order.change(change)
        case Uniform(obj=Tensor()):
            value.obj = change(value.obj)
        case Container(type=kind) if kind is PACKED:
            value.static = change(value.static)
        case Objects(items=items):
            change_objects(items, change, set())


def change_objects(holder: Any, change: Callable[[Tensor], Tensor], seen: set[int]) -> None:
    """The same within a list or dict of the host's, or a variable's cell; tuples are made anew."""
    if id(holder) in seen:
        return
    seen.add(id(holder))
    for place, item in entries(holder):
        if isinstance(item, Tensor):
            put(holder, place, change(item))
        elif type(item) is tuple:
            own = list(item)
            change_objects(own, change, seen)
            if any(new is not old for new, old in zip(own, item, strict=True)):
                put(holder, place, tuple(own))
        elif type(item) in HOLDERS:
            change_objects(item, change, seen)


HOLDERS = (list, dict, CellType)


def entries(holder: Any) -> list[tuple[Any, Any]]:
    """What a holder has, and where."""
    if type(holder) is CellType:
        try:
            return [(None, holder.cell_contents)]
        except ValueError:  # it is empty
            return []
    return list(holder.items() if type(holder) is dict else enumerate(holder))


def put(holder: Any, place: Any, item: Any) -> None:
    if type(holder) is CellType:
        holder.cell_contents = item
    else:
        holder[place] = item
