"""Dicts and sets that a program makes and writes, in its thread's memory.

Each is two lists in memory, of its entries and of their places (``table_texts``). Keys are ints,
words and tuples of these. What would depend on the order of a set gives no machine code.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from autobatch.compiled import listing, table_texts
from autobatch.compiled.functions import Unfit
from autobatch.compiled.sequences import Place, gone_through, listed, text_of, told
from autobatch.compiled.types import (
    INT,
    Items,
    Listed,
    Method,
    Static,
    Table,
    Value,
    number,
    parts_of,
    refuse,
    structure,
)
from autobatch.compiled.writer import Writer

NONE = Value(Static(None))
TAKEN_OUT = 2**32
"""What an entry that was taken out counts in a stamp."""


def new(w: Writer, kind: type) -> Value:
    """An empty dict or set."""
    entries = listing.new(w, (), whole="entries")
    index = listing.new(w, (number(0),), whole="index")
    assert isinstance(entries.type, Listed) and isinstance(index.type, Listed)
    return Value(Table(kind, (entries.type, index.type)), (*entries.leaves, *index.leaves))


def stamp(w: Writer, x: Value) -> str:
    """What is another number where a key has come or gone."""
    entries, index = parts_of(x)
    (out,) = (item for item in listing.load(w, index, "0") if item.type == INT)
    gone = w.made(f"mul i64 {out.leaf}, {TAKEN_OUT}")
    return w.made(f"add i64 {listing.length(w, entries)}, {gone}")


def text(place: Place, function: Callable[..., Any], owner: Value, *args: Value) -> Iterator[Value]:
    return place.entered(text_of(function), [*parts_of(owner), *args], {})


# Displays


def of_pairs(place: Place, pairs: Sequence[tuple[Value, Value]]) -> Iterator[Value]:
    """``{k: v, …}``."""
    made = new(place.w, dict)
    yield from filled(place, made, [(table_texts.store, pair) for pair in pairs])


def of_members(place: Place, members: Sequence[Value]) -> Iterator[Value]:
    """``{a, b, …}``."""
    made = new(place.w, set)
    yield from filled(place, made, [(table_texts.add, (member,)) for member in members])


def filled(place: Place, made: Value, steps: Sequence[tuple[Any, Any]]) -> Iterator[Value]:
    if not steps:
        yield made
        return
    for _ in text(place, steps[0][0], made, *steps[0][1]):
        yield from filled(place, made, steps[1:])


def set_of(place: Place, args: Sequence[Value], named: dict[str, Value]) -> Iterator[Value]:
    """``set(x)``."""
    if named or len(args) > 1:
        raise Unfit("has a compiled form for one argument")
    parts = listed(args[0]) if args else []
    if parts is not None and len(parts) <= 1:
        yield from of_members(place, parts)
        return
    made = new(place.w, set)
    for _ in text(place, table_texts.add_all, made, gone_through(args[0])):
        yield made


def dict_of(place: Place, args: Sequence[Value], named: dict[str, Value]) -> Iterator[Value]:
    """``dict()``."""
    if args or named:
        raise Unfit("has a compiled form without arguments")
    yield new(place.w, dict)


RULES: dict[Any, Callable[..., Iterator[Value]]] = {builtins.set: set_of, builtins.dict: dict_of}


# What is done with a table


def at_key(place: Place, owner: Value, key: Value) -> Iterator[Value]:
    """Where the entry of a key is, or a KeyError."""
    for found in text(place, table_texts.place_of, owner, key):
        place.w.raise_if(place.w.made(f"icmp slt i64 {found.leaf}, 0"), KeyError)
        yield found


def getitem(place: Place, owner: Value, key: Value) -> Iterator[Value]:
    if is_set(owner):
        refuse("an item of a set is read")
    for found in at_key(place, owner, key):
        for entry in listing.load(place.w, parts_of(owner)[0], found.leaf):
            yield parts_of(entry)[1]


def setitem(place: Place, owner: Value, key: Value, value: Value) -> Iterator[Value]:
    if is_set(owner):
        refuse("an item of a set is written")
    return text(place, table_texts.store, owner, key, value)


def delitem(place: Place, owner: Value, key: Value) -> Iterator[Value]:
    for found in at_key(place, owner, key):
        yield from text(place, table_texts.taken, owner, found)


def contains(place: Place, name: str, owner: Value, key: Value) -> Iterator[Value]:
    found = table_texts.contained if name == "in" else table_texts.not_contained
    return text(place, found, owner, key)


def is_set(x: Value) -> bool:
    return isinstance(x.type, Table) and x.type.kind is set


def sequence(w: Writer, x: Value, part: str = "keys") -> Value:
    """What a loop over a dict, or over its values or items, goes over."""
    if is_set(x):
        refuse("what depends on the order of a set has no compiled form")
    return Value(Items(part, (INT, x.type)), (stamp(w, x), *x.leaves))


METHODS: dict[type, frozenset[str]] = {
    dict: frozenset({"get", "setdefault", "pop", "clear", "keys", "values", "items"}),
    set: frozenset({"add", "discard", "remove", "clear"}),
}


def method(owner: Value, name: str) -> Value:
    assert isinstance(owner.type, Table)
    if name not in METHODS[owner.type.kind]:
        refuse(f"the attribute {name} of {owner.type} has no compiled form")
    return Value(Method(owner.type, name), owner.leaves)


def called(
    place: Place, callee: Value, args: Sequence[Value], named: dict[str, Value]
) -> Iterator[Value]:
    """A call of such a method."""
    assert isinstance(callee.type, Method)
    owner = Value(callee.type.owner, callee.leaves)
    if named:
        refuse(f"{callee.type} has no compiled form with keyword arguments")
    yield from told(callee.type.name, applied(place, owner, callee.type.name, list(args)))


def applied(place: Place, owner: Value, name: str, args: list[Value]) -> Iterator[Value]:
    if name in ("keys", "values", "items") and not args:
        yield sequence(place.w, owner, name)
    elif name == "get" and 1 <= len(args) <= 2:
        yield from text(place, table_texts.get, owner, *(args if len(args) > 1 else [*args, NONE]))
    elif name == "setdefault" and len(args) == 2:
        yield from text(place, table_texts.setdefault, owner, *args)
    elif name == "pop" and len(args) == 2:
        yield from text(place, table_texts.pop_or, owner, *args)
    elif name == "pop" and len(args) == 1:
        for entry in delitem(place, owner, args[0]):
            yield parts_of(entry)[1]
    elif name in ("add", "discard") and len(args) == 1:
        yield from text(place, getattr(table_texts, name), owner, *args)
    elif name == "remove" and len(args) == 1:
        for _ in delitem(place, owner, args[0]):
            yield NONE
    elif name == "clear" and not args:
        yield from text(place, table_texts.clear, owner)
    else:
        raise Unfit(f"has no compiled form for {len(args)} arguments")


def item_at(w: Writer, kind: str, x: Value, at: str) -> Iterator[Value]:
    """The key, value or item at a place."""
    for entry in listing.load(w, parts_of(x)[0], at):
        parts = parts_of(entry)
        if kind == "items":
            yield structure(tuple, parts)
        else:
            yield parts[kind == "values"]
