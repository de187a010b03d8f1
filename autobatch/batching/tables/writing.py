"""Writes in place of packed rows: ``y += x``, ``out.index_add_(0, places, rows)``, on the tables.

A table is never changed: the write gives the cell a new one, which all names for it see.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from autobatch.batching import writes
from autobatch.batching.context import Context
from autobatch.batching.tables import rules
from autobatch.batching.tables.alike import ELEMENTWISE
from autobatch.batching.tables.places import ADDS, SCATTERS
from autobatch.structure import own_attribute
from autobatch.values.cells import Cell, Column, Uniform, View, read
from autobatch.values.packs import is_packed


def apply(context: Context, function: Any, args: list[Cell], kwargs: dict[str, Cell]) -> bool:
    """Whether the write is done: that of a whole tensor which no operand is a part of."""
    pure = twin(function)
    if pure is None or any(type(cell.value) is View for cell in (*args, *kwargs.values())):
        return False
    target = args[0]
    if writes.is_outside(target):
        return False
    shape = shape_of(target, context.k)
    found = None if shape is None else rules.apply(context, pure, args, kwargs)
    if found is None or found is target or shape_of(found, context.k) != shape:
        return False
    context.services.tensor_written(context.span)
    writes.refuse_tied(context, target)
    writes.set_content(target, found.value)
    return True


def twin(function: Any) -> Any:
    """The function that gives what another one writes; None where the tables know none."""
    name = own_attribute(function, "__name__", "")
    found = getattr(operator, name.strip("_")[1:], None) if name.strip("_")[:1] == "i" else None
    if found not in ELEMENTWISE and name.endswith("_"):
        found = getattr(Tensor, name[:-1], None) or getattr(torch, name[:-1], None)
    return found if found in ELEMENTWISE or found in ADDS or found in SCATTERS else None


def shape_of(cell: Cell, k: int) -> Any:
    """What a write in place leaves as it is: dtype, shape, which rows are whose."""
    value = read(cell)
    if is_packed(value):
        table: Tensor = value.static
        return (table.dtype, table.shape[1:], "packed")
    if type(value) is Column:
        return (value.table.dtype, value.event_shape)
    obj = value.obj if type(value) is Uniform else None
    return (obj.dtype, obj.shape) if isinstance(obj, Tensor) and k else None
