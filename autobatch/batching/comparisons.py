"""``x < y``, ``x is y`` and ``x in y`` on cells."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor

from autobatch.batching import guards, semantics
from autobatch.batching.containers.subscripts import NO_KEY
from autobatch.batching.context import Context
from autobatch.batching.finishing import finished
from autobatch.batching.host.rows import run_rows
from autobatch.batching.kinds import (
    event_of,
    foreign_operand,
    is_instance,
    is_number_column,
    is_tensor,
    own_method,
    parts_of,
)
from autobatch.batching.objects import namespaces
from autobatch.batching.operators import binary, once, refuse_functions
from autobatch.batching.tensors import torch_ops
from autobatch.batching.tensors.aliases import itself
from autobatch.batching.trace import Untraceable
from autobatch.batching.trees import is_plain
from autobatch.batching.truths import either, negation, truth
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.values.cells import (
    DICT_VIEW,
    NAMESPACE,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    expand,
    read,
    ties_of,
    uniform,
)

SMALL_INTS = (-5, 256)
"""Ints of which Python keeps one object each."""


def compare(context: Context, name: str, left: Cell, right: Cell) -> Cell:
    match name:
        case "is":
            return same(context, left, right)
        case "is_not":
            return negation(context, same(context, left, right))
        case "in":
            return contains(context, left, right)
        case "not_in":
            return finished(context, partial(contains, context, left, right), negation)
    return binary(context, name, left, right)


def same(context: Context, left: Cell, right: Cell) -> Cell:
    """``x is y``."""
    if left is right:
        return uniform(True)
    x, y = read(left), read(right)
    if is_namespace(x) and is_namespace(y):
        return uniform(x.cells[0] is y.cells[0])
    if context.forecasts is not None and Column in (type(x), type(y)):
        raise Untraceable("whether two tensors may be one is known as the program runs")
    if itself(left) is itself(right):
        return uniform(True)
    if ties_of(left) & ties_of(right):
        raise UnsupportedError(
            Diagnostic(
                "A program asks whether two names are of one tensor, which differs by thread.",
                context.span,
                "asked here",
                ("`min` and `max` give an operand itself.",),
                ("compare values (`m == x`), or choose with `if` (`m = x if x < y else y`).",),
                "tied-identity",
            )
        )
    if type(x) is Uniform and type(y) is Uniform:
        refuse_functions(x, y)
        return uniform(x.obj is y.obj)
    if Objects in (type(x), type(y)):
        return run_rows(context, operator.is_, [left, right], {}, "objects")
    return same_numbers(context, x, y)


def is_namespace(value: Value) -> TypeGuard[Container]:
    return type(value) is Container and value.type is NAMESPACE


def same_numbers(context: Context, x: object, y: object) -> Cell:
    """Bools and small ints are one object each; other numbers and tensors of two names are two."""
    columns = []
    for value in (x, y):
        if type(value) is Uniform and type(value.obj) in (bool, int):
            if type(value.obj) is int and not SMALL_INTS[0] <= value.obj <= SMALL_INTS[1]:
                return uniform(False)
            columns.append(expand(value.obj, context.k, context.device))
        elif type(value) is Column and value.tag in ("bool", "int"):
            columns.append(value)
    if len(columns) < 2 or columns[0].tag != columns[1].tag:
        return uniform(False)
    equal = columns[0].data == columns[1].data
    if columns[0].tag == "int":
        low, high = SMALL_INTS
        equal &= (columns[0].data >= low) & (columns[0].data <= high)
    return Cell(Column(equal, "bool"))


def contains(context: Context, item: Cell, holder: Cell) -> Cell:
    """``x in y``."""
    guards.refuse_iterator(context, holder)
    value, needle, key = namespaces.opened(read(holder)), read(item), plain_key(item)
    if type(value) is Container and value.type is dict and key is not NO_KEY:
        return uniform(key in value.cells)
    method = own_method(value, "__contains__")
    if method is not None:
        return finished(
            context, partial(context.invoke, context, method, [holder, item], {}), truth
        )
    if type(value) is Container and value.type is range:
        return in_range(context, item, holder, value)
    if type(value) is Container and value.type is DICT_VIEW and value.static == "keys":
        return contains(context, item, value.cells[0])
    parts = parts_of(holder)
    if parts is not None and all(map(is_simple, (item, *parts))):
        return any_equal(context, item, parts)
    meaning = semantics.SEMANTICS["in"]
    if is_tensor(value) and not foreign_operand(needle):
        return torch_ops.apply(context, Tensor.__contains__, [holder, item], {}, False)
    if type(value) is Uniform and (key is not NO_KEY or type(needle) is Uniform):
        asked = needle.obj if type(needle) is Uniform else key
        return once(context, meaning, asked, value.obj)
    return run_rows(context, meaning, [item, holder], {}, "objects", keep=is_instance(value))


def plain_key(cell: Cell) -> Any:
    """A plain value, or a tuple of some, that is the same for all threads; else ``NO_KEY``."""
    value = read(cell)
    if type(value) is Uniform and is_plain(value.obj):
        return value.obj
    if type(value) is Container and value.type is tuple:
        parts = tuple(map(plain_key, value.children()))
        if all(part is not NO_KEY for part in parts):
            return parts
    return NO_KEY


def is_simple(cell: Cell) -> bool:
    """Whether to compare it cannot fail, so that it matters not which parts are compared."""
    value = read(cell)
    if is_tensor(value):
        return event_of(value) == ()
    return is_number_column(value) or type(value) is Uniform


def in_range(context: Context, item: Cell, holder: Cell, value: Container) -> Cell:
    """An int in a range with a step of one; others thread by thread."""
    start, stop, step = value.children()
    ahead, needle = read(step), read(item)
    whole = type(needle) is Column and needle.tag == "int"
    if not whole or type(ahead) is not Uniform or ahead.obj != 1:
        return run_rows(context, semantics.SEMANTICS["in"], [item, holder], {}, "objects")
    low = truth(context, binary(context, "le", start, item))
    high = truth(context, binary(context, "lt", item, stop))
    return Cell(Column(torch.logical_and(low.value.data, high.value.data), "bool"))  # type: ignore[union-attr]


def any_equal(context: Context, item: Cell, parts: list[Cell]) -> Cell:
    result = uniform(False)
    for part in parts:
        if part is item:
            return uniform(True)
        result = either(result, truth(context, binary(context, "eq", item, part)))
    return result
