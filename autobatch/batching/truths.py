"""Truth values on cells: a uniform bool or a bool column, and how they combine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from autobatch.batching import lists
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.finishing import finished
from autobatch.batching.host.own_methods import asks, each_thread
from autobatch.batching.host.rows import map_rows, run_rows
from autobatch.batching.kinds import is_instance, own_method, user_class
from autobatch.batching.objects import namespaces
from autobatch.batching.protocols import length_given, special_method, truth_given
from autobatch.values.cells import (
    DICT_VIEW,
    PACKED,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    read,
    uniform,
)


def once(context: Context, function: Callable[..., bool], *objs: Any) -> Cell:
    if asks(context, function, objs):
        return each_thread(context, function, objs)
    try:
        return uniform(function(*objs))
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error


def truth(context: Context, cell: Cell) -> Cell:
    """``bool(x)``: a uniform bool or a bool column."""
    value = namespaces.opened(read(cell))
    if type(value) is Objects and value.lists is not None:
        return lists.truth(context, value.lists)
    if type(value) is Objects and says_no_code(value):
        return map_rows(context, bool, cell, value.items, "objects")
    if type(value) is not Column and asks_user(value):
        return instance_truth(context, cell, user_class(value))
    match value:
        case Uniform(obj=obj):
            return once(context, bool, obj)
        case Column(tag="bool"):
            return cell
        case Column(tag="tensor"):
            data = value.data
            if data.dim() > 1 and data.shape[1:].numel() != 1:
                return undecided(context, cell, data.new_empty(data.shape[1:], device="cpu"))
            flat = data if data.dim() == 1 else data.reshape(context.k)
            return Cell(Column(flat if flat.dtype is torch.bool else flat != 0, "bool"))
        case Column(data=data):
            return Cell(Column(data != 0, "bool"))
        case Objects():
            return run_rows(context, bool, [cell], {}, "objects")
        case Container(type=kind, cells=cells):
            if kind is DICT_VIEW:
                return truth(context, value.cells[0])
            if kind is range or kind is PACKED:
                return run_rows(context, bool, [cell], {}, "objects")
            sized = kind in (list, tuple, dict, set) or hasattr(kind, "_fields")
            return uniform(bool(cells) if sized else True)
    raise AssertionError(value)


def undecided(context: Context, cell: Cell, example: Tensor) -> Cell:
    """The truth of a tensor of many elements, or of none, is torch's error; it has no shape."""
    try:
        return uniform(bool(example))
    except RuntimeError as error:
        context.tell(error, [cell], None)
        raise RowsFail(context.lowest(), error) from error


def asks_user(value: Any) -> bool:
    """Whether it is a user's object that says itself whether it is true."""
    return is_instance(value) or any(own_method(value, name) for name in ("__bool__", "__len__"))


def says_no_code(value: Objects) -> bool:
    """Whether no method in Python is asked whether a thread's object is true."""
    return value.lists is None and not any(map(says_itself, set(map(type, value.items))))


def says_itself(kind: type) -> bool:
    """Whether instances of a class are asked, by a method in Python, whether they are true."""
    if isinstance(getattr(kind, "__bool__", None), FunctionType):
        return True
    return isinstance(getattr(kind, "__len__", None), FunctionType)


def instance_truth(context: Context, cell: Cell, kind: type | None) -> Cell:
    for method, given in (("__bool__", truth_given), ("__len__", length_given)):
        function = special_method(kind, method)
        if function is not None:
            call = partial(context.invoke, context, function, [cell], {})
            return finished(context, call, partial(truth_of, given))
    return uniform(True)


def truth_of(given: Callable[[Context, Cell], Cell], context: Context, found: Cell) -> Cell:
    """What a method has said of a truth value, checked by ``given``."""
    return truth(context, given(context, found))


def both(left: Cell, right: Cell) -> Cell:
    """The conjunction of two truth values."""
    a, b = read(left), read(right)
    if type(a) is Uniform:
        return right if a.obj else left
    if type(b) is Uniform:
        return left if b.obj else right
    return Cell(Column(a.data & b.data, "bool"))  # type: ignore[union-attr]


def either(left: Cell, right: Cell) -> Cell:
    """The disjunction of two truth values."""
    a, b = read(left), read(right)
    if type(a) is Uniform:
        return left if a.obj else right
    if type(b) is Uniform:
        return right if b.obj else left
    return Cell(Column(a.data | b.data, "bool"))  # type: ignore[union-attr]


def flipped(flag: Cell) -> Cell:
    """The negation of a truth value."""
    value = read(flag)
    if type(value) is Uniform:
        return uniform(not value.obj)
    return Cell(Column(~value.data, "bool"))  # type: ignore[union-attr]


def negation(context: Context, cell: Cell) -> Cell:
    """``not x``."""
    return finished(context, partial(truth, context, cell), lambda _, found: flipped(found))
