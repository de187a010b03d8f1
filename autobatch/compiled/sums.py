"""``sum`` as machine code: beside its additions of floats what they lose (see ``ir.sums``).

How a sum goes on is known from the types of what it adds. Ints that leave 64 bits give up.
"""

from __future__ import annotations

from autobatch.compiled.functions import is_kind
from autobatch.compiled.numbers import absolute, as_float, binary, compare
from autobatch.compiled.types import (
    BOOL,
    FLOAT,
    INT,
    Number,
    Static,
    Type,
    Value,
    number,
    static,
)
from autobatch.compiled.writer import Writer
from autobatch.ir import sums
from autobatch.llvm import literal


def begun(w: Writer, start: Value) -> Value:
    if isinstance(start.type, Static) and isinstance(start.type.obj, sums.STRINGS):
        w.raise_always(TypeError)
    return number(0) if start.type == INT and sums.COMPENSATED else beside(start.type)


def beside(total: Type) -> Value:
    return number(0.0) if total == FLOAT and sums.COMPENSATED else static(None)


def left(w: Writer, total: Value, lost: Value, item: Value) -> Value:
    leaves = sums.WHOLE_WHEN_LEFT and not isinstance(item.type, Number)
    return whole(w, total, lost) if leaves else total


def lost_by(w: Writer, lost: Value, total: Value, item: Value, after: Value) -> Value:
    if lost.type == INT:
        return lost if item.type in (INT, BOOL) else beside(after.type)
    if lost.type != FLOAT:
        return lost
    if not isinstance(item.type, Number):
        return static(None)
    if item.type != FLOAT and not sums.COMPENSATED_INTS:
        return lost
    added = Value(FLOAT, (as_float(w, item),))
    larger = compare(w, "ge", absolute(w, total), absolute(w, added)).leaf
    one = short(w, total, added, after)
    other = short(w, added, total, after)
    return binary(w, "add", lost, Value(FLOAT, (w.select(larger, "double", one.leaf, other.leaf),)))


def short(w: Writer, a: Value, b: Value, c: Value) -> Value:
    """``(a - c) + b``."""
    return binary(w, "add", binary(w, "sub", a, c), b)


def whole(w: Writer, total: Value, lost: Value) -> Value:
    if lost.type != FLOAT:
        return total
    finite = is_kind("finite", w, [lost]).leaf
    some = w.made(f"fcmp une double {lost.leaf}, {literal(0.0, 'double')}")
    added = binary(w, "add", total, lost).leaf
    both = w.made(f"and i1 {finite}, {some}")
    return Value(FLOAT, (w.select(both, "double", added, total.leaf),))
