"""Python's operators on values of any type: which rules a pair of operands goes by."""

from __future__ import annotations

from math import prod

from autobatch.compiled import listing, numbers, tensors
from autobatch.compiled.arrays import calls
from autobatch.compiled.arrays.memory import Strided, element, strided
from autobatch.compiled.types import (
    BOOL,
    INT,
    Array,
    Listed,
    Number,
    Range,
    Rows,
    Scalar,
    Static,
    Structure,
    Type,
    Value,
    number,
    parts_of,
    refuse,
)
from autobatch.compiled.writer import Writer


def binary(w: Writer, name: str, x: Value, y: Value) -> Value:
    both = (x.type, y.type)
    if all(isinstance(type_, Number) for type_ in both):
        return numbers.binary(w, name, x, y)
    if all(isinstance(type_, Number | Scalar) for type_ in both):
        return tensors.binary(w, name, x, y)
    if any(calls.has_dims(type_) for type_ in both):
        return calls.operated(w, name, [x, y])
    return refuse(f"the operator {name} has no compiled form for {x.type} and {y.type}")


def compare(w: Writer, name: str, x: Value, y: Value) -> Value:
    if name in ("is", "is_not"):
        return identical(x, y, name == "is")
    if name in ("in", "not_in"):
        return contained(w, x, y, name == "in")
    both = (x.type, y.type)
    words = [type_.obj for type_ in both if isinstance(type_, Static) and type(type_.obj) is str]
    if len(words) == 2 and name in ("eq", "ne"):
        return number((words[0] == words[1]) == (name == "eq"))
    if name in ("eq", "ne") and are_apart(*both):
        return number((x.type == y.type) == (name == "eq"))
    if all(isinstance(type_, Number) for type_ in both):
        return numbers.compare(w, name, x, y)
    if all(isinstance(type_, Number | Scalar) for type_ in both):
        return tensors.compare(w, name, x, y)
    if any(calls.has_dims(type_) for type_ in both):
        return calls.operated(w, name, [x, y])
    return refuse(f"the comparison {name} has no compiled form for {x.type} and {y.type}")


def identical(x: Value, y: Value, wanted: bool) -> Value:
    """``x is y``, where one of them is an object that no number or tensor is."""
    statics = [value.type.obj for value in (x, y) if isinstance(value.type, Static)]
    if not statics:
        refuse("`is` has a compiled form for None and other objects that all examples share")
    same = len(statics) == 2 and statics[0] is statics[1]
    return number(same == wanted)


def are_apart(one: Type, other: Type) -> bool:
    """Whether one of two values is None or a string, and the other no string."""
    both = (one, other)
    plain = all(is_word(type_) or isinstance(type_, Number | Structure | Listed) for type_ in both)
    return plain and any(map(is_word, both))


def is_word(type_: Type) -> bool:
    return isinstance(type_, Static) and type(type_.obj) in (type(None), str)


def contained(w: Writer, x: Value, y: Value, wanted: bool) -> Value:
    """``x in (a, b, …)``, or in a range, of Python numbers."""
    if isinstance(y.type, Range) and x.type in (INT, BOOL) and y.type.step is not None:
        found = within(w, numbers.as_int(w, x), y.type.step, *y.leaves)
    elif isinstance(y.type, Structure) and y.type.kind is not dict:
        found = "false"
        for part in parts_of(y):
            if not all(isinstance(v.type, Number) or is_word(v.type) for v in (x, part)):
                refuse(f"`in` has no compiled form for {x.type} and {part.type}")
            if isinstance(x.type, Number) and isinstance(part.type, Number):
                numbers.refuse_nans(w, x, part)
            found = w.either(truth(w, compare(w, "eq", x, part)), found)
    else:
        return refuse(f"`in` has no compiled form for {x.type} and {y.type}")
    return Value(BOOL, (found if wanted else w.made(f"xor i1 {found}, true"),))


def within(w: Writer, x: str, step: int, first: str, many: str) -> str:
    """Whether an int is in a range."""
    far = w.checked("ssub", x, first)
    whole = w.made(f"icmp eq i64 {w.made(f'srem i64 {far}, {step}')}, 0")
    place = w.made(f"sdiv i64 {far}, {step}") if step != -1 else w.checked("ssub", "0", far)
    below = w.made(f"icmp slt i64 {place}, {many}")
    some = w.made(f"icmp sge i64 {place}, 0")
    return w.made(f"and i1 {w.made(f'and i1 {whole}, {below}')}, {some}")


def unary(w: Writer, name: str, x: Value) -> Value:
    if name == "not":
        known = known_bit(x)
        if known is not None:
            return number(not known)
        return Value(BOOL, (w.made(f"xor i1 {truth(w, x)}, true"),))
    if isinstance(x.type, Number):
        return numbers.unary(w, name, x)
    if isinstance(x.type, Scalar):
        return tensors.unary(w, name, x)
    if calls.has_dims(x.type):
        return calls.operated(w, name, [x])
    return refuse(f"the operator {name} has no compiled form for {x.type}")


def known_bit(x: Value) -> bool | None:
    """``bool(x)``, where that is known before anything runs."""
    if x.known is not None:
        return bool(x.known)
    if isinstance(x.type, Structure):
        return bool(x.type.parts)
    if isinstance(x.type, Static) and type(x.type.obj) in (type(None), str):
        return bool(x.type.obj)
    return None


def truth(w: Writer, x: Value) -> str:
    """``bool(x)`` as a bit."""
    known = known_bit(x)
    if known is not None:
        return "true" if known else "false"
    if isinstance(x.type, Number):
        return numbers.truth(w, x)
    if isinstance(x.type, Scalar):
        return tensors.truth(w, x)
    if isinstance(x.type, Listed):
        return w.made(f"icmp ne i64 {listing.length(w, x)}, 0")
    if isinstance(x.type, Array | Rows) and prod(x.type.shape) == 1:
        y = strided(x)
        assert isinstance(y, Strided)
        return tensors.truth(w, element(w, y, "0"))
    return refuse(f"the truth of {x.type} has no compiled form")


def as_truth(w: Writer, x: Value) -> Value:
    known = known_bit(x)
    return number(known) if known is not None else Value(BOOL, (truth(w, x),))
