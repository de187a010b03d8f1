"""From a real Python value for each thread to one cell.

Values that share a type become a column, a tuple of columns or a uniform value; everything else
becomes objects.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.compat import on_device
from autobatch.values.cells import NUMBER_TAGS, Cell, Column, Container, Objects, uniform
from autobatch.values.strides import stacked

SHARABLE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, torch.nn.Module)
"""Objects that stay one for all threads when all threads have the same."""
OWNERS = (type, types.ModuleType)
"""What functions written in C belong to, which are no methods of an object."""
NUMPY_DTYPES: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}


def from_rows(
    context: Context,
    items: list[Any],
    fresh: bool = True,
    known: dict[tuple[int, ...], Cell] | None = None,
) -> Cell:
    """One cell for a real value per thread; ``known`` are those of tuples met before, by id."""
    if not items:
        return Cell(Objects([]))
    first = items[0]
    kind = type(first)
    if len(set(map(type, items))) > 1:
        return Cell(Objects(items))
    if kind in NUMBER_TAGS:
        return numbers_from(context, items, kind)
    if kind in (str, bytes) and all(item == first for item in items):
        return uniform(first)
    if first is None or first is Ellipsis or first is NotImplemented:
        return uniform(first)
    if is_sharable(first) and all(item is first for item in items):
        if id(first) in context.foreign.own:
            return Cell(Objects(items))
        return uniform(first, shared=True)
    if is_dense(first) and fresh and len({signature(item) for item in items}) == 1:
        rows = stacked(items)
        return Cell(Objects(items) if rows is None else Column(rows))
    if kind is tuple and len({len(item) for item in items}) == 1:
        return tuples_from(context, items, fresh, {} if known is None else known)
    return Cell(Objects(items))


def is_dense(item: Any) -> bool:
    return isinstance(item, Tensor) and item.layout is torch.strided


def is_sharable(obj: Any) -> bool:
    """Not the method of a list, which may be the program's own: its name is a function, too."""
    owner = getattr(obj, "__self__", None) if type(obj) is types.BuiltinMethodType else None
    return isinstance(obj, SHARABLE) and (owner is None or isinstance(owner, OWNERS))


def tuples_from(
    context: Context, items: list[Any], fresh: bool, known: dict[tuple[int, ...], Cell]
) -> Cell:
    """The same for tuples of one length, each once: a tuple may hold one tuple many times."""
    key = tuple(map(id, items))
    if key not in known:
        columns = map(list, zip(*items, strict=True))
        parts = [from_rows(context, column, fresh, known) for column in columns]
        known[key] = Cell(Container(tuple, parts))
    return known[key]


def numbers_from(context: Context, items: list[Any], kind: type) -> Cell:
    try:
        numbers: np.ndarray = np.array(items, dtype=NUMPY_DTYPES[kind])
    except OverflowError:
        return Cell(Objects(items))
    bounds = (min(items), max(items)) if kind is int else None
    data = on_device(numbers, context.device)
    return Cell(Column(data, NUMBER_TAGS[kind], bounds))


def signature(tensor: Tensor) -> Any:
    return (tensor.dtype, tensor.shape, tensor.device, tensor.layout, type(tensor))
