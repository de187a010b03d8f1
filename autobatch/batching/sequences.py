"""Operators on lists and tuples whose structure all threads share: ``+``, ``*``, comparisons.

A comparison is Python's: equal parts (the same, or ``==``) are skipped, the first that differ
decide. ``binary`` is what compares or adds two parts.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

from autobatch.batching import shapes
from autobatch.batching.context import Context
from autobatch.batching.kinds import is_instance, is_number, is_tensor, own_method, parts_of
from autobatch.batching.truths import both, either, flipped, truth
from autobatch.values.cells import Cell, Container, Uniform, Value, read, uniform

Binary = Callable[[Context, str, Cell, Cell], Cell]
ORDERINGS = ("lt", "le", "gt", "ge")


def combined(context: Context, binary: Binary, name: str, left: Cell, right: Cell) -> Cell | None:
    """``left`` and ``right`` by their parts; None if single threads have to be looked at."""
    whole = shapes.both_told(left, right)
    if whole is not None:
        return binary(context, name, *whole)
    x, y = sequence(left), sequence(right)
    if name == "mul":
        return repeated(left, right) or repeated(right, left)
    if x is None or y is None:
        return None
    if name == "add" and family(left) is family(right):
        return Cell(Container(family(left), [*x, *y]))
    if name in ("eq", "ne") and family(left) is not family(right):
        return uniform(name == "ne")
    if name in ("eq", "ne"):
        flag = equal(context, binary, x, y)
        return flag if flag is None or name == "eq" else flipped(flag)
    if name in ORDERINGS and family(left) is family(right):
        return ordered(context, binary, name, x, y)
    return None


def sequence(cell: Cell) -> list[Cell] | None:
    """The parts of a list or tuple, named tuples too."""
    value = read(cell)
    kind = value.type if type(value) is Container else None
    if isinstance(kind, type) and issubclass(kind, tuple):
        return list(value.children())  # type: ignore[union-attr]
    return parts_of(cell)


def family(cell: Cell) -> type:
    """``list`` or ``tuple``."""
    value = read(cell)
    kind = value.type if type(value) is Container else type(getattr(value, "obj", None))
    return list if kind is list else tuple


def repeated(items: Cell, times: Cell) -> Cell | None:
    parts, count = sequence(items), read(times)
    if parts is None or type(count) is not Uniform or type(count.obj) not in (int, bool):
        return None
    return Cell(Container(family(items), parts * count.obj))


def equal(context: Context, binary: Binary, left: list[Cell], right: list[Cell]) -> Cell | None:
    if len(left) != len(right):
        return uniform(False)
    result = uniform(True)
    for a, b in zip(left, right, strict=True):
        flag = parts_equal(context, binary, a, b)
        if flag is None:
            return None
        result = both(result, flag)
    return result


def parts_equal(context: Context, binary: Binary, a: Cell, b: Cell) -> Cell | None:
    """``a is b or a == b``; None where ``==`` may not give a bool, or has to be short-circuited."""
    if a is b:
        return uniform(True)
    x, y = read(a), read(b)
    if is_tensor(x) or is_tensor(y) or asks_user(x) or asks_user(y):
        return None
    if type(x) is Uniform and type(y) is Uniform and x.obj is y.obj:
        return uniform(True)
    return truth(context, binary(context, "eq", a, b))


def asks_user(value: Value) -> bool:
    """Whether it is a user's object that says itself what it is equal to."""
    if is_instance(value):
        return isinstance(getattr(value.type, "__eq__", None), FunctionType)
    return own_method(value, "__eq__") is not None


def ordered(
    context: Context, binary: Binary, name: str, left: list[Cell], right: list[Cell]
) -> Cell | None:
    """Lexicographic order of numbers, strings and sequences of them."""
    pairs = list(zip(left, right, strict=False))
    if not all(comparable(a, b) for a, b in pairs):
        return None
    sizes = {"lt": len(left) < len(right), "le": len(left) <= len(right)}
    sizes |= {"gt": not sizes["le"], "ge": not sizes["lt"]}
    result = uniform(sizes[name])
    for a, b in reversed(pairs):
        same = parts_equal(context, binary, a, b)
        if same is None:
            return None
        flag = read(same)
        if type(flag) is Uniform and flag.obj:
            continue
        decided = binary(context, name, a, b)
        result = either(both(same, result), both(flipped(same), decided))
    return result


def comparable(a: Cell, b: Cell) -> bool:
    """Whether comparing two parts cannot fail, so that it matters not for whom it is done."""
    x, y = read(a), read(b)
    if is_number(x) and is_number(y):
        return True
    if type(x) is Uniform and type(y) is Uniform:
        return type(x.obj) is type(y.obj) is str
    one, other = sequence(a), sequence(b)
    if one is None or other is None or family(a) is not family(b):
        return False
    return all(comparable(p, q) for p, q in zip(one, other, strict=False))
