"""What loops go over but ranges: rows of tensors, parts of structures, ``enumerate`` and the like.

Each has a length and an item at every place, ``length`` and ``items_at``; an iterator is the place
that is next. Nothing of it is written while the loop runs.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from autobatch.compiled import listing, numbers, tables
from autobatch.compiled.arrays import indexing
from autobatch.compiled.types import (
    BOOL,
    INT,
    Array,
    Items,
    Listed,
    Range,
    Rows,
    Structure,
    Table,
    Type,
    Value,
    machine_of,
    number,
    parts_of,
    refuse,
    step_of,
    structure,
)
from autobatch.compiled.writer import Writer


def sequence(w: Writer, x: Value) -> Value:
    """What a loop may go over."""
    type_ = x.type
    if isinstance(type_, Range | Items) and not type_.is_iterator:
        return x
    if isinstance(type_, Table):
        return tables.sequence(w, x)
    if (
        isinstance(type_, Listed)
        or (isinstance(type_, Rows | Array) and type_.shape[0])
        or (isinstance(type_, Structure) and is_picked(type_))
    ):
        return Value(Items("each", (type_,)), x.leaves)
    return refuse(f"a loop over {type_} has no compiled form")


def is_picked(type_: Structure) -> bool:
    """Whether any part of a structure may be taken: all are known, or numbers and 0-d tensors."""
    if type_.kind not in (tuple, list) and not hasattr(type_.kind, "_fields"):
        return False
    return all(map(listing.holds, type_.parts))


def is_even(type_: Type) -> bool:
    """Whether all items of what a loop goes over are of one type."""
    if isinstance(type_, Items) and type_.kind in ("keys", "values", "items", "members"):
        return False
    if isinstance(type_, Items) and type_.kind != "each":
        return all(map(is_even, type_.parts))
    inner = type_.parts[0] if isinstance(type_, Items) else type_
    if isinstance(inner, Listed | Table):
        return False
    return not isinstance(inner, Structure) or len(set(inner.parts)) == 1


def length(w: Writer, x: Value) -> str:
    match x.type:
        case Range():
            return x.leaves[1]
        case Rows(shape=shape) | Array(shape=shape):
            return str(shape[0])
        case Structure(parts=parts):
            return str(len(parts))
        case Listed():
            return listing.length(w, x)
        case Items("backwards"):
            return w.made(f"add i64 {x.leaves[0]}, 1")
        case Items("keys" | "values" | "items"):
            begun, table = parts_of(x)
            now = tables.stamp(w, table)
            w.give_up_if(w.made(f"icmp ne i64 {now}, {begun.leaf}"))  # a key has come or gone
            return listing.length(w, table)
        case Items("members"):
            return listing.length(w, x)
        case Items("enumerate"):
            return length(w, parts_of(x)[0])
        case _:
            first, *others = (length(w, part) for part in parts_of(x))
            if "0" in (first, *others):  # what has no items has no type of an item either
                return "0"
            for other in others:
                if not (first + other).count("%"):
                    first = str(min(int(first), int(other)))
                    continue
                first = w.select(w.made(f"icmp slt i64 {other}, {first}"), "i64", other, first)
            return first


def items_at(w: Writer, x: Value, at: str) -> Iterator[Value]:
    """The item at a place that there is: for each type that it may have, what is written next."""
    match x.type:
        case Range():
            offset = w.made(f"mul i64 {at}, {step_of(x)}")
            yield Value(INT, (w.made(f"add i64 {x.leaves[0]}, {offset}"),))
        case Rows() | Array():
            yield indexing.getitem(w, x, Value(INT, (at,)))
        case Structure():
            yield from parts_at(w, x, at)
        case Listed():
            yield from listing.load(w, x, at)
        case Items("backwards"):
            last, over = parts_of(x)
            back = w.made(f"sub i64 {last.leaf}, {at}")
            w.give_up_if(w.made(f"icmp sge i64 {back}, {listing.length(w, over)}"))
            yield from listing.load(w, over, back)
        case Items("reversed"):
            (inner,) = parts_of(x)
            end = w.made(f"sub i64 {length(w, inner)}, 1")
            yield from items_at(w, inner, w.made(f"sub i64 {end}, {at}"))
        case Items("keys" | "values" | "items" | "members" as kind):
            yield from tables.item_at(w, kind, parts_of(x)[-1], at)
        case Items("enumerate"):
            inner, first = parts_of(x)
            place = at if first.leaf == "0" else w.checked("sadd", at, first.leaf)
            for each in items_at(w, inner, at):
                yield structure(tuple, [Value(INT, (place,)), each])
        case Items("zip"):
            for items in all_at(w, parts_of(x), at):
                yield structure(tuple, items)
        case _:
            yield from items_at(w, parts_of(x)[0], at)


def all_at(w: Writer, parts: Sequence[Value], at: str) -> Iterator[list[Value]]:
    """The items of several."""
    if not parts:
        yield []
        return
    for item in items_at(w, parts[0], at):
        for others in all_at(w, parts[1:], at):
            yield [item, *others]


def parts_at(w: Writer, x: Value, at: str) -> Iterator[Value]:
    """A part of a structure, at a place that there is."""
    parts = parts_of(x)
    if not at.startswith("%"):
        yield parts[int(at)]
        return
    left = dict.fromkeys(part.type for part in parts)
    for type_ in list(left):
        del left[type_]
        places = [place for place, part in enumerate(parts) if part.type == type_]
        on = w.fresh()
        if left:
            own = w.either(*(w.made(f"icmp eq i64 {at}, {place}") for place in places))
            here = w.fresh()
            w.emit(f"br i1 {own}, label %{here}, label %{on}")
            w.begin(here)
        leaves = parts[places[0]].leaves
        for place in places[1:]:
            own = w.made(f"icmp eq i64 {at}, {place}")
            each = zip(machine_of(type_), parts[place].leaves, leaves, strict=True)
            leaves = tuple(w.select(own, machine, a, b) for machine, a, b in each)
        yield Value(type_, leaves)
        if left:
            w.begin(on)


def iterator(w: Writer, x: Value) -> Value:
    over = sequence(w, x)
    assert isinstance(over.type, Items)
    many = length(w, over)
    fresh = not many.startswith("%") and int(many) > 0
    return Value(replace(over.type, is_iterator=True, fresh=fresh), ("0", *over.leaves))


Step = tuple[Value, Value | None, Value]
"""The iterator a step further, its item if it is any, and whether there was one."""


def advanced(w: Writer, x: Value) -> Iterator[Step]:
    """The ways that a step may go."""
    assert isinstance(x.type, Items)
    at, *leaves = x.leaves
    over = Value(Items(x.type.kind, x.type.parts), tuple(leaves))
    many = length(w, over)
    if x.type.fresh:
        for item in items_at(w, over, "0"):
            yield Value(replace(x.type, fresh=False), ("1", *leaves)), item, number(True)
        return
    if many == "0":
        yield x, None, number(False)
        return
    more = w.made(f"icmp slt i64 {at}, {many}")
    if is_even(x.type):
        after = w.made(f"add i64 {at}, {w.made(f'zext i1 {more} to i64')}")
        (item,) = items_at(w, over, w.select(more, "i64", at, "0"))
        yield Value(x.type, (after, *leaves)), item, Value(BOOL, (more,))
        return
    some, none = w.fresh(), w.fresh()
    w.emit(f"br i1 {more}, label %{some}, label %{none}")
    w.begin(none)
    yield x, None, number(False)
    w.begin(some)
    after = w.made(f"add i64 {at}, 1")
    for item in items_at(w, over, at):
        yield Value(x.type, (after, *leaves)), item, number(True)


def over(kind: str, most: int, w: Writer, args: Sequence[Value]) -> Value:
    """``enumerate(x)``, ``zip(x, …)``, ``reversed(x)``."""
    if not 1 <= len(args) <= most:
        refuse(f"{kind} has a compiled form for 1 to {most} arguments")
    if kind == "reversed" and isinstance(args[0].type, Items | Table):
        refuse(f"reversed has no compiled form for {args[0].type}")
    if kind == "reversed" and isinstance(args[0].type, Listed):
        last = w.made(f"sub i64 {listing.length(w, args[0])}, 1")
        return Value(Items("backwards", (INT, args[0].type)), (last, args[0].leaf))
    if kind == "enumerate":
        first = args[1] if len(args) > 1 else number(0)
        if first.type not in (INT, BOOL):
            refuse(f"enumerate has no compiled form for {first.type}")
        start = Value(INT, (numbers.as_int(w, first),))
        parts = [sequence(w, args[0]), start]
    else:
        parts = [sequence(w, x) for x in args]
    types = tuple(part.type for part in parts)
    return Value(Items(kind, types), tuple(leaf for part in parts for leaf in part.leaves))


FUNCTIONS: dict[Any, Callable[[Writer, Sequence[Value]], Value]] = {
    builtins.enumerate: partial(over, "enumerate", 2),
    builtins.zip: partial(over, "zip", 8),
    builtins.reversed: partial(over, "reversed", 1),
}
