"""Operators on cells: ``x + y``, ``-x``, ``x < y``, ``x is y``, ``x in y``, ``x += y``, truth.

The kinds of the operands choose the way: Python's own operator once for uniform operands,
number columns by ``arithmetic``, tensors by ``torch_ops``, program-made containers by their
parts, instances by their Python methods, everything else thread by thread.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching import arithmetic, semantics, torch_ops, writes
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.rows import run_rows
from autobatch.batching.trees import container_of, is_plain
from autobatch.vm.values import Cell, Column, Container, Objects, Uniform, read, uniform

REFLECTED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def is_tensor(value: Any) -> bool:
    if type(value) is Column:
        return bool(value.tag == "tensor")
    return type(value) is Uniform and isinstance(value.obj, Tensor)


def is_number_column(value: Any) -> bool:
    return type(value) is Column and value.tag != "tensor"


def is_instance(value: Any) -> bool:
    """A program-made instance of a user's class."""
    return (
        type(value) is Container
        and isinstance(value.type, type)
        and value.type not in (list, tuple, dict, set, slice, range)
        and not issubclass(value.type, tuple)
    )


def once(context: Context, function: Callable[..., Any], *objs: Any) -> Cell:
    """Run for all threads at once what has only uniform operands; a failure is everyone's."""
    try:
        result = function(*objs)
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error
    return fresh(result)


def fresh(result: Any) -> Cell:
    """The cell for what a host call has made: its containers are the program's own."""
    return uniform(result) if is_plain(result) else container_of(result, fresh)


def unary(context: Context, name: str, cell: Cell) -> Cell:
    if name == "not":
        return negation(context, cell)
    value = read(cell)
    meaning = semantics.SEMANTICS[name]
    if is_tensor(value):
        return torch_ops.apply(context, meaning, [cell], {}, False)
    if type(value) is Uniform:
        return once(context, meaning, value.obj)
    if is_instance(value):
        return dunder(context, meaning, f"__{name}__", [cell])
    done = arithmetic.apply(context, name, meaning, [cell])
    return done if done is not None else run_rows(context, meaning, [cell], {}, "objects")


def binary(context: Context, name: str, left: Cell, right: Cell) -> Cell:
    """An arithmetic operator or an ordering or equality comparison."""
    meaning = semantics.SEMANTICS[name]
    x, y = read(left), read(right)
    if type(x) is Uniform and type(y) is Uniform:
        if is_tensor(x) or is_tensor(y):
            return torch_ops.apply(context, meaning, [left, right], {}, False)
        return once(context, meaning, x.obj, y.obj)
    done = arithmetic.apply(context, name, meaning, [left, right])
    if done is not None:
        return done
    if is_instance(x) or is_instance(y):
        return instance_binary(context, name, left, right)
    if (is_tensor(x) or is_tensor(y)) and not foreign_operand(x, y):
        return torch_ops.apply(context, meaning, [left, right], {}, False)
    if type(x) is Container or type(y) is Container:
        done = container_binary(context, name, left, right)
        if done is not None:
            return done
    if Objects in (type(x), type(y)) and holds_tensors(x, y):
        return torch_ops.apply(context, meaning, [left, right], {}, False)
    return run_rows(context, meaning, [left, right], {}, "objects")


def holds_tensors(*values: Any) -> bool:
    return any(
        is_tensor(v) or (type(v) is Objects and v.items and isinstance(v.items[0], Tensor))
        for v in values
    ) and all(
        type(v) is not Objects or all(isinstance(i, Tensor | int | float) for i in v.items)
        for v in values
    )


def foreign_operand(*values: Any) -> bool:
    """Whether an operand is nothing that a torch operator takes."""
    for value in values:
        if type(value) is Objects:
            return not holds_tensors(*values)
        if type(value) is Uniform and not isinstance(value.obj, Tensor | int | float | complex):
            return True
        if type(value) is Container:
            return True
    return False


def container_binary(context: Context, name: str, left: Cell, right: Cell) -> Cell | None:
    """What lists and tuples that the program made do without looking at single threads."""
    x, y = parts_of(left), parts_of(right)
    if name == "add" and x is not None and y is not None and type_of(left) is type_of(right):
        return Cell(Container(type_of(left), [*x, *y]))
    if name == "mul":
        for parts, other, kind in ((x, right, type_of(left)), (y, left, type_of(right))):
            count = read(other)
            if parts is not None and type(count) is Uniform and type(count.obj) in (int, bool):
                return Cell(Container(kind, parts * count.obj))
    if name in ("eq", "ne") and x is not None and y is not None:
        if type_of(left) is not type_of(right) or len(x) != len(y):
            return uniform(name == "ne")
        if not x:
            return uniform(name == "eq")
        if any(is_tensor(read(cell)) for cell in (*x, *y)):
            return None
        result = uniform(True)
        for a, b in zip(x, y, strict=True):
            result = both(context, result, truth(context, binary(context, "eq", a, b)))
        return result if name == "eq" else negation(context, result)
    return None


def parts_of(cell: Cell) -> list[Cell] | None:
    """The parts of a list or plain tuple, program-made or the same for all threads."""
    value = read(cell)
    if type(value) is Container and value.type in (list, tuple):
        return list(value.children())
    if type(value) is Uniform and type(value.obj) in (list, tuple):
        return [Cell(Uniform(item, value.shared)) for item in value.obj]
    return None


def type_of(cell: Cell) -> Any:
    value = read(cell)
    if type(value) is Container:
        return value.type
    return type(value.obj) if type(value) is Uniform else None


def instance_binary(context: Context, name: str, left: Cell, right: Cell) -> Cell:
    """``x.__add__(y)``, then ``y.__radd__(x)``, as Python asks them."""
    forward = f"__{name}__" if name not in ("and", "or") else f"__{name}__"
    backward = f"__{REFLECTED[name]}__" if name in REFLECTED else f"__r{name}__"
    for method, receiver, other in ((forward, left, right), (backward, right, left)):
        value = read(receiver)
        if is_instance(value) and hasattr(value.type, method):
            function = getattr(value.type, method)
            if function is getattr(object, method, None):
                continue
            result = context.invoke(context, function, [receiver, other], {})
            if getattr(read(result), "obj", None) is not NotImplemented:
                return result
    if name in ("eq", "ne"):
        return uniform((left is right) == (name == "eq"))
    return run_rows(context, semantics.SEMANTICS[name], [left, right], {}, "objects")


def dunder(
    context: Context, meaning: Callable[..., Any], method: str, cells: list[Cell]
) -> Cell:
    """A special method of a program-made instance; Python's own error if its class has none."""
    kind = read(cells[0]).type  # type: ignore[union-attr]
    function = getattr(kind, method, None)
    if function is None or function is getattr(object, method, None):
        return run_rows(context, meaning, cells, {}, "objects", keep=True)
    return context.invoke(context, function, cells, {})


def inplace(context: Context, name: str, left: Cell, right: Cell) -> Cell:
    """``x += y``: a write where ``x`` is a tensor, list, dict or set, else ``x + y``."""
    meaning = semantics.SEMANTICS[f"i{name}"]
    value = read(left)
    if is_tensor(value):
        if foreign_operand(read(right)):
            return run_rows(context, meaning, [left, right], {}, "objects")
        return writes.write(context, meaning, [left, right], {})
    if type(value) is Container and value.type is list and name == "add":
        parts = parts_of(right)
        if parts is not None:
            value.cells.extend(parts)  # type: ignore[union-attr]
            return left
    if is_instance(value) and hasattr(value.type, f"__i{name}__"):
        return context.invoke(context, getattr(value.type, f"__i{name}__"), [left, right], {})
    if type(value) is Container and value.type in (list, dict, set):
        return kept(context, meaning, left, right)
    if type(value) is Uniform and isinstance(value.obj, list | dict | set | bytearray):
        raise writes.shared_write(context, f"a {type(value.obj).__name__}")
    if type(value) is Objects and any(writable(item) for item in value.items):
        return kept(context, meaning, left, right)
    return binary(context, name, left, right)


def writable(item: Any) -> bool:
    return isinstance(item, Tensor | list | dict | set | bytearray) or hasattr(item, "__iadd__")


def kept(context: Context, meaning: Callable[..., Any], left: Cell, right: Cell) -> Cell:
    """In place on each thread's own object: the cell goes on if all give themselves back."""
    result = run_rows(context, meaning, [left, right], {}, "objects", keep=True, fresh=False)
    before, after = read(left), result.value
    if type(before) is Objects and type(after) is Objects:
        if all(a is b for a, b in zip(before.items, after.items, strict=True)):
            return left
    return result


def same(context: Context, left: Cell, right: Cell) -> Cell:
    """``x is y``."""
    if left is right:
        return uniform(True)
    x, y = read(left), read(right)
    if type(x) is Uniform and type(y) is Uniform:
        return uniform(x.obj is y.obj)
    if Objects in (type(x), type(y)):
        return run_rows(context, operator.is_, [left, right], {}, "objects")
    for value, other in ((x, y), (y, x)):
        if type(value) is Uniform and type(value.obj) is bool and type(other) is Column:
            return binary(context, "eq", left, right) if other.tag == "bool" else uniform(False)
    return uniform(False)


def contains(context: Context, item: Cell, holder: Cell) -> Cell:
    """``x in y``."""
    value = read(holder)
    if type(value) is Container and value.type is dict:
        key = read(item)
        if type(key) is Uniform and is_plain(key.obj):
            return uniform(key.obj in value.cells)
    if is_instance(value) and hasattr(value.type, "__contains__"):
        return context.invoke(context, value.type.__contains__, [holder, item], {})
    parts = parts_of(holder)
    needle = read(item)
    if parts is not None and (is_number_column(needle) or type(needle) is Uniform):
        if all(is_number_column(read(p)) or type(read(p)) is Uniform for p in parts):
            if not any(is_tensor(read(p)) for p in (*parts, item)):
                return any_equal(context, item, parts)
    meaning = semantics.SEMANTICS["in"]
    if is_tensor(value) and not foreign_operand(needle):
        return torch_ops.apply(context, Tensor.__contains__, [holder, item], {}, False)
    if type(value) is Uniform and type(needle) is Uniform:
        return once(context, meaning, needle.obj, value.obj)
    return run_rows(context, meaning, [item, holder], {}, "objects")


def any_equal(context: Context, item: Cell, parts: list[Cell]) -> Cell:
    result = uniform(False)
    for part in parts:
        equal = truth(context, binary(context, "eq", item, part))
        a, b = read(result), read(equal)
        if type(a) is Uniform and type(b) is Uniform:
            result = uniform(a.obj or b.obj)
        elif type(a) is Uniform:
            result = result if a.obj else equal
        elif type(b) is Uniform:
            result = equal if b.obj else result
        else:
            result = Cell(Column(a.data | b.data, "bool"))  # type: ignore[union-attr]
    return result


def both(context: Context, left: Cell, right: Cell) -> Cell:
    """The conjunction of two truth values."""
    a, b = read(left), read(right)
    if type(a) is Uniform:
        return right if a.obj else left
    if type(b) is Uniform:
        return left if b.obj else right
    return Cell(Column(a.data & b.data, "bool"))  # type: ignore[union-attr]


def negation(context: Context, cell: Cell) -> Cell:
    value = read(truth(context, cell))
    if type(value) is Uniform:
        return uniform(not value.obj)
    return Cell(Column(~value.data, "bool"))  # type: ignore[union-attr]


def truth(context: Context, cell: Cell) -> Cell:
    """``bool(x)``: a uniform bool or a bool column."""
    value = read(cell)
    match value:
        case Uniform(obj=obj):
            return once(context, bool, obj)
        case Column(data=data, tag="bool"):
            return cell
        case Column(data=data, tag="tensor"):
            if data[:1].numel() != 1 and data.shape[1:].numel() != 1:
                return once(context, bool, data.new_empty(data.shape[1:], device="cpu"))
            flat = data if data.dim() == 1 else data.reshape(context.k)
            return Cell(Column(flat if flat.dtype is torch.bool else flat != 0, "bool"))
        case Column(data=data):
            return Cell(Column(data != 0, "bool"))
        case Objects():
            return run_rows(context, bool, [cell], {}, "objects")
        case Container(type=kind) if is_instance(value):
            return instance_truth(context, cell, kind)
        case Container(type=kind, cells=cells):
            if kind is range:
                return run_rows(context, bool, [cell], {}, "objects")
            return uniform(bool(cells) if kind in (list, tuple, dict, set) else True)
    raise AssertionError(value)


def instance_truth(context: Context, cell: Cell, kind: type) -> Cell:
    for method in ("__bool__", "__len__"):
        function = getattr(kind, method, None)
        if function is not None:
            return truth(context, context.invoke(context, function, [cell], {}))
    return uniform(True)


def compare(context: Context, name: str, left: Cell, right: Cell) -> Cell:
    match name:
        case "is":
            return same(context, left, right)
        case "is_not":
            return negation(context, same(context, left, right))
        case "in":
            return contains(context, left, right)
        case "not_in":
            return negation(context, contains(context, left, right))
    return binary(context, name, left, right)


