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
    Record,
    Rows,
    Scalar,
    Static,
    Structure,
    Table,
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
        return identical(w, x, y, name == "is")
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
    if all(isinstance(type_, Structure) and type_.kind is not dict for type_ in both):
        return row_by_row(w, name, x, y)
    if all(isinstance(type_, Number | Scalar) for type_ in both):
        return tensors.compare(w, name, x, y)
    if any(calls.has_dims(type_) for type_ in both):
        return calls.operated(w, name, [x, y])
    return refuse(f"the comparison {name} has no compiled form for {x.type} and {y.type}")


def row_by_row(w: Writer, name: str, x: Value, y: Value) -> Value:
    """Tuples or lists of parts that are known: the first parts that differ decide."""
    alike = is_tuple(x.type) == is_tuple(y.type)
    if not alike and name not in ("eq", "ne"):
        refuse(f"the comparison {name} has no compiled form for {x.type} and {y.type}")
    one, other = parts_of(x), parts_of(y)
    lengths = number(len(one)), number(len(other))
    if name in ("eq", "ne") and (not alike or len(one) != len(other)):
        return number(name == "ne")
    found = compare(w, name, *lengths)
    for a, b in reversed(list(zip(one, other, strict=False))):
        same = known_equal(w, a, b)
        known = known_bit(same)
        if known:
            continue
        own = compare(w, name, a, b)
        if known is None:
            bit = w.select(truth(w, same), "i1", truth(w, found), truth(w, own))
            own = Value(BOOL, (bit,))
        found = own
    return found


def known_equal(w: Writer, x: Value, y: Value) -> Value:
    """Whether two parts are one object, or equal."""
    if isinstance(x.type, Number) and isinstance(y.type, Number):
        numbers.refuse_nans(w, x, y)
    elif not all(is_word(v.type) or isinstance(v.type, Number | Structure) for v in (x, y)):
        refuse(f"a comparison has no compiled form for {x.type} and {y.type} in tuples or lists")
    return compare(w, "eq", x, y)


def is_tuple(type_: Type) -> bool:
    return isinstance(type_, Structure) and issubclass(type_.kind, tuple)


def identical(w: Writer, x: Value, y: Value, wanted: bool) -> Value:
    """``x is y``, where one of them is known by identity, or both by their addresses."""
    statics = [value.type.obj for value in (x, y) if isinstance(value.type, Static)]
    if all(isinstance(value.type, Listed | Record) for value in (x, y)):
        same_ = w.made(f"icmp {'eq' if wanted else 'ne'} ptr {x.leaf}, {y.leaf}")
        return Value(BOOL, (same_,))
    if not statics:
        refuse("`is` has a compiled form for None and other objects that all examples share")
    same = len(statics) == 2 and statics[0] is statics[1]
    return number(same == wanted)


def are_apart(one: Type, other: Type) -> bool:
    """Whether one of two values is None or a string, and the other no string; or one a number,
    and the other a tuple or a list.
    """
    both = (one, other)
    plain = all(is_word(type_) or isinstance(type_, Number | Structure | Listed) for type_ in both)
    numbers_ = sum(isinstance(type_, Number) for type_ in both)
    return plain and (any(map(is_word, both)) or numbers_ == 1)


def is_word(type_: Type) -> bool:
    return isinstance(type_, Static) and type(type_.obj) in (type(None), str)


def contained(w: Writer, x: Value, y: Value, wanted: bool) -> Value:
    """``x in (a, b, …)``, or in a range, of Python numbers and tuples of such."""
    if isinstance(y.type, Range) and x.type in (INT, BOOL) and y.type.step is not None:
        found = within(w, numbers.as_int(w, x), y.type.step, *y.leaves)
    elif isinstance(y.type, Structure) and y.type.kind is not dict:
        found = "false"
        for part in parts_of(y):
            found = w.either(truth(w, known_equal(w, part, x)), found)
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
    if isinstance(x.type, Listed | Table):
        return w.made(f"icmp ne i64 {listing.length(w, x)}, 0")
    if isinstance(x.type, Array | Rows) and prod(x.type.shape) == 1:
        y = strided(x)
        assert isinstance(y, Strided)
        return tensors.truth(w, element(w, y, "0"))
    return refuse(f"the truth of {x.type} has no compiled form")


def as_truth(w: Writer, x: Value) -> Value:
    known = known_bit(x)
    return number(known) if known is not None else Value(BOOL, (truth(w, x),))
