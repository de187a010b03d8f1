"""What loops go over but ranges: rows of tensors, parts of structures, ``enumerate`` and the like.

Each has a length and an item at every place, ``length`` and ``item``; an iterator is the place that
is next. Nothing of it is written while the loop runs.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from autobatch.compiled.arrays import indexing
from autobatch.compiled.types import (
    BOOL,
    INT,
    Array,
    Items,
    Number,
    Range,
    Rows,
    Scalar,
    Structure,
    Value,
    machine_of,
    parts_of,
    refuse,
    structure,
)
from autobatch.compiled.writer import Writer


def sequence(x: Value) -> Value:
    """What a loop may go over."""
    type_ = x.type
    if isinstance(type_, Range | Items) and not type_.is_iterator:
        return x
    if (isinstance(type_, Rows | Array) and type_.shape[0]) or (
        isinstance(type_, Structure) and is_even(type_)
    ):
        return Value(Items("each", (type_,)), x.leaves)
    return refuse(f"a loop over {type_} has no compiled form")


def is_even(type_: Structure) -> bool:
    """Whether any part of a structure may be taken: all are numbers or tensors of one type."""
    one = len(set(type_.parts)) == 1 and isinstance(type_.parts[0], Number | Scalar)
    return one and type_.kind is not dict


def length(w: Writer, x: Value) -> str:
    match x.type:
        case Range():
            return x.leaves[1]
        case Rows(shape=shape) | Array(shape=shape):
            return str(shape[0])
        case Structure(parts=parts):
            return str(len(parts))
        case _:
            first, *others = (length(w, part) for part in parts_of(x))
            for other in others:
                first = w.select(w.made(f"icmp slt i64 {other}, {first}"), "i64", other, first)
            return first


def item(w: Writer, x: Value, at: str) -> Value:
    """The item at a place that there is."""
    match x.type:
        case Range(step=step):
            offset = w.made(f"mul i64 {at}, {step}")
            return Value(INT, (w.made(f"add i64 {x.leaves[0]}, {offset}"),))
        case Rows() | Array():
            return indexing.getitem(w, x, Value(INT, (at,)))
        case Structure():
            return part_at(w, x, at)
        case Items("reversed"):
            (inner,) = parts_of(x)
            last = w.made(f"sub i64 {length(w, inner)}, 1")
            return item(w, inner, w.made(f"sub i64 {last}, {at}"))
        case Items("enumerate"):
            return structure(tuple, [Value(INT, (at,)), item(w, parts_of(x)[0], at)])
        case Items("zip"):
            return structure(tuple, [item(w, part, at) for part in parts_of(x)])
        case _:
            return item(w, parts_of(x)[0], at)


def part_at(w: Writer, x: Value, at: str) -> Value:
    """A part of a structure of parts of one type, at a place that there is."""
    found, *others = parts_of(x)
    (machine,) = machine_of(found.type)
    leaf = found.leaf
    for place, other in enumerate(others, start=1):
        leaf = w.select(w.made(f"icmp eq i64 {at}, {place}"), machine, other.leaf, leaf)
    return Value(found.type, (leaf,))


def iterator(w: Writer, x: Value) -> Value:
    over = sequence(x)
    assert isinstance(over.type, Items)
    return Value(Items(over.type.kind, over.type.parts, is_iterator=True), ("0", *over.leaves))


def advanced(w: Writer, x: Value) -> tuple[Value, Value, Value]:
    """The iterator a step further, its item, and whether there was one; else the item is any."""
    assert isinstance(x.type, Items)
    at, *leaves = x.leaves
    over = Value(Items(x.type.kind, x.type.parts), tuple(leaves))
    many = length(w, over)
    more = w.made(f"icmp slt i64 {at}, {many}")
    after = w.made(f"add i64 {at}, {w.made(f'zext i1 {more} to i64')}")
    found = item(w, over, w.select(more, "i64", at, "0"))
    return Value(x.type, (after, *leaves)), found, Value(BOOL, (more,))


def over(kind: str, most: int, w: Writer, args: Sequence[Value]) -> Value:
    """``enumerate(x)``, ``zip(x, …)``, ``reversed(x)``."""
    if not 1 <= len(args) <= most:
        refuse(f"{kind} has a compiled form for 1 to {most} arguments")
    if kind == "reversed" and isinstance(args[0].type, Items):
        refuse(f"reversed has no compiled form for {args[0].type}")
    parts = [sequence(x) for x in args]
    types = tuple(part.type for part in parts)
    return Value(Items(kind, types), tuple(leaf for part in parts for leaf in part.leaves))


FUNCTIONS: dict[Any, Callable[[Writer, Sequence[Value]], Value]] = {
    builtins.enumerate: partial(over, "enumerate", 1),
    builtins.zip: partial(over, "zip", 8),
    builtins.reversed: partial(over, "reversed", 1),
}
