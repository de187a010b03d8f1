"""What a program does with lists and tuples: their methods and operators, ``sorted``, ``list``.

Of lists in memory most is Python text that means the same (``list_texts``).
"""

from __future__ import annotations

import bisect
import builtins
import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from autobatch.compiled import listing, numbers, tables, tensors
from autobatch.compiled.functions import Unfit
from autobatch.compiled.list_texts import (
    added,
    after,
    before,
    bisected,
    bisected_left,
    contained,
    copied,
    count,
    cut,
    equal,
    extended,
    extended_by_list,
    heaped,
    in_order,
    in_order_by,
    index,
    inserted,
    inserted_left,
    not_after,
    not_before,
    not_contained,
    numbers_of,
    popped,
    pushed,
    put,
    put_in_order,
    put_in_order_by,
    repeated,
    sliced,
    turned,
    unequal,
    without,
)
from autobatch.compiled.sequences import Place, gone_through, in_any_order, listed, text_of, told
from autobatch.compiled.types import (
    BOOL,
    INT,
    Array,
    Listed,
    Method,
    Number,
    Rows,
    Scalar,
    Static,
    Structure,
    Table,
    Value,
    machine_of,
    number,
    parts_of,
    refuse,
    structure,
)
from autobatch.compiled.writer import Writer

NONE = Value(Static(None))
MOST_SORTED = 16
"""Numbers that are sorted where they are; more are by text."""


# Methods

WRITING = frozenset(
    {"append", "pop", "insert", "clear", "extend", "remove", "reverse", "sort", "__setitem__"}
)
READING: dict[str, Callable[..., Any]] = {"index": index, "count": count}
COMPARED: dict[str, Callable[..., Any]] = {
    "eq": equal,
    "ne": unequal,
    "lt": before,
    "le": not_after,
    "gt": after,
    "ge": not_before,
}


def is_list(x: Value) -> bool:
    return isinstance(x.type, Listed) or (
        isinstance(x.type, Structure) and x.type.kind in (list, tuple)
    )


def method(w: Writer, owner: Value, name: str) -> Value | None:
    """A method of a list or a tuple; None for another attribute."""
    if isinstance(owner.type, Structure) and owner.type.kind is list and name in WRITING:
        listing.refuse_written(w, owner.type)
    found = name in READING or (name == "copy" and not is_tuple(owner))
    if found or (isinstance(owner.type, Listed) and name in WRITING):
        return listing_method(owner, name)
    return None


def listing_method(owner: Value, name: str) -> Value:
    assert isinstance(owner.type, Listed | Structure)
    return Value(Method(owner.type, name), owner.leaves)


def is_owner(type_: Method) -> bool:
    """Whether a method is a list's or tuple's, or makes a list of a tensor."""
    owner = type_.owner
    of_tensor = type_.name == "tolist" and isinstance(owner, Rows | Array | Scalar)
    return of_tensor or isinstance(owner, Listed | Structure)


def called(
    place: Place, callee: Value, args: Sequence[Value], named: dict[str, Value]
) -> Iterator[Value]:
    """A call of such a method."""
    assert isinstance(callee.type, Method)
    owner = Value(callee.type.owner, callee.leaves)
    if callee.type.name != "tolist":
        yield from told(callee.type.name, applied(place, owner, callee.type.name, args, named))
    elif args or named:
        refuse("tolist is called with arguments")
    elif isinstance(owner.type, Scalar):
        yield tensors.item(place.w, owner)
    else:
        yield from place.entered(text_of(numbers_of), [owner], {})


def is_tuple(x: Value) -> bool:
    return isinstance(x.type, Structure) and x.type.kind is tuple


def applied(
    place: Place, owner: Value, name: str, args: Sequence[Value], named: dict[str, Value]
) -> Iterator[Value]:
    """What a method gives, its owner being written."""
    w, given = place.w, list(args)
    if name in READING and len(given) == 1 and not named:
        yield from place.entered(text_of(READING[name]), [owner, *given], {})
    elif name == "copy" and not given and not named:
        yield from list_of(place, [owner], {})
    elif name == "sort" and not given:
        key, falls = order_of(place, named)
        text = put_in_order if not key else put_in_order_by
        yield from place.entered(text_of(text), [owner, falls, *key], {})
    elif named:
        raise Unfit("has no compiled form with keyword arguments")
    elif name == "append" and len(given) == 1:
        listing.append(w, owner, given[0])
        yield NONE
    elif name == "pop" and len(given) <= 1:
        yield from listing.pop(w, owner, given)
    elif name == "insert" and len(given) == 2:
        listing.insert(w, owner, *given)
        yield NONE
    elif name == "clear" and not given:
        listing.clear(w, owner)
        yield NONE
    elif name == "extend" and len(given) == 1:
        yield from extend(place, owner, given[0])
    elif name == "remove" and len(given) == 1:
        yield from place.entered(text_of(without), [owner, *given], {})
    elif name == "reverse" and not given:
        yield from place.entered(text_of(turned), [owner], {})
    else:
        raise Unfit(f"has no compiled form for {len(given)} arguments")


def extend(place: Place, owner: Value, items: Value) -> Iterator[Value]:
    """Append what there is, of a list as long as it is now."""
    parts = listed(items)
    if parts is not None:
        for part in parts:
            listing.append(place.w, owner, part)
        yield NONE
        return
    text = extended_by_list if isinstance(items.type, Listed) else extended
    yield from place.entered(text_of(text), [owner, gone_through(items)], {})


# Operators


def operated(place: Place, name: str, args: Sequence[Value]) -> Iterator[Value] | None:
    """``+``, ``*``, ``in`` and comparisons of lists and tuples; None for other operands."""
    one, other = args
    if name in ("in", "not_in") and isinstance(other.type, Table):
        return tables.contains(place, name, other, one)
    if name in ("in", "not_in") and listing.is_open_dict(other.type, place.w):
        raise listing.grows(other.type, place.w.lists.grown)
    if name in ("in", "not_in"):
        if not isinstance(other.type, Listed):
            return None
        text = contained if name == "in" else not_contained
        return place.entered(text_of(text), [other, one], {})
    if name in COMPARED:
        are_lists = is_list(one) and is_list(other) and is_tuple(one) == is_tuple(other)
        if not are_lists or not any(isinstance(x.type, Listed) for x in args):
            return None
        return place.entered(text_of(COMPARED[name]), [one, other], {})
    if name == "add" and is_list(one) and is_list(other):
        return sum_of(place, one, other)
    if name == "mul" and is_list(one) and other.type in (INT, BOOL):
        return many_of(place, one, other)
    if name == "mul" and is_list(other) and one.type in (INT, BOOL):
        return many_of(place, other, one)
    return None


def sum_of(place: Place, one: Value, other: Value) -> Iterator[Value]:
    if is_tuple(one) != is_tuple(other):
        refuse(f"{one.type} + {other.type} is an error")
    parts = listed(one), listed(other)
    if parts[0] is not None and parts[1] is not None:
        yield made_of(place.w, list if not is_tuple(one) else tuple, [*parts[0], *parts[1]])
    else:
        yield from place.entered(text_of(added), [one, other], {})


def made_of(w: Writer, kind: type, parts: Sequence[Value]) -> Value:
    """A new list or tuple of these parts."""
    return structure(tuple, list(parts)) if kind is tuple else listing.display(w, parts)


def many_of(place: Place, items: Value, many: Value) -> Iterator[Value]:
    """``[a, b] * n``; of a count that is known the parts are."""
    w, parts, kind = place.w, listed(items), tuple if is_tuple(items) else list
    if parts is not None and isinstance(many.known, int):
        few = max(int(many.known), 0) * sum(len(machine_of(part.type)) for part in parts) <= 64
        if few and (is_tuple(items) or not listing.is_grown(w)):
            yield made_of(w, kind, parts * int(many.known))
            return
    if is_tuple(items):
        refuse("a tuple is as long as a number that is not known before the program runs")
    if parts is not None and len(parts) == 1:
        yield listing.repeated(w, parts[0], numbers.as_int(w, many))
        return
    yield from place.entered(text_of(repeated), [items, many], {})


def element(place: Place, owner: Value, at: Value) -> Iterator[Value]:
    """``x[i]`` and ``x[i:j]`` of a list in memory."""
    if is_slice(at):
        yield from place.entered(text_of(sliced), [owner, *parts_of(at)], {})
    else:
        yield from listing.load(place.w, owner, listing.place_in(place.w, owner, at))


def is_slice(at: Value) -> bool:
    return isinstance(at.type, Structure) and at.type.kind is slice


def put_in(place: Place, owner: Value, at: Value, items: Value) -> Iterator[Value]:
    """``x[i:j] = …`` of a list in memory."""
    yield from place.entered(text_of(put), [owner, *parts_of(at), gone_through(items)], {})


def cut_out(place: Place, owner: Value, at: Value) -> Iterator[Value]:
    """``del x[i:j]``."""
    yield from place.entered(text_of(cut), [owner, *parts_of(at)], {})


def part_of(place: Place, owner: Value, at: Value) -> Value | None:
    """A slice of a structure, whose ends are known; None for another index."""
    if not is_slice(at):
        return None
    ends = [None if end.type == Static(None) else end.known for end in parts_of(at)]
    unknown = any(
        end is None and part.type != Static(None)
        for end, part in zip(ends, parts_of(at), strict=True)
    )
    assert isinstance(owner.type, Structure)
    if unknown or not all(end is None or isinstance(end, int) for end in ends) or ends[2] == 0:
        if owner.type.kind is list and unknown:
            listing.refuse_written(place.w, owner.type)
        refuse(f"a part of {owner.type} has a compiled form for ends that are known")
    some: Any = slice(*ends)
    return made_of(place.w, owner.type.kind, parts_of(owner)[some])


# Functions


def list_of(place: Place, args: Sequence[Value], named: dict[str, Value]) -> Iterator[Value]:
    """``list(x)``."""
    if named or len(args) > 1:
        raise Unfit("has a compiled form for one argument")
    parts = listed(args[0]) if args else []
    if parts is not None:
        yield listing.display(place.w, parts)
        return
    yield from place.entered(text_of(copied), [gone_through(args[0])], {})


def tuple_of(place: Place, args: Sequence[Value], named: dict[str, Value]) -> Iterator[Value]:
    parts = listed(args[0]) if args else []
    if named or len(args) > 1 or parts is None:
        raise Unfit("has a compiled form for a list or a tuple of a length that is known")
    yield structure(tuple, parts)


def sorted_of(place: Place, args: Sequence[Value], named: dict[str, Value]) -> Iterator[Value]:
    """``sorted(x)``, ``sorted(x, key=…, reverse=…)``."""
    if len(args) != 1:
        raise Unfit("has a compiled form for one argument")
    key, falls = order_of(place, named)
    parts = listed(args[0])
    known = parts is not None and falls.known is not None and len(parts) <= MOST_SORTED
    if parts is not None and known and is_even(parts) and not key:
        yield listing.display(place.w, exchanged(place.w, parts, bool(falls.known)))
        return
    text = in_order if not key else in_order_by
    over = in_any_order(args[0]) if not key else gone_through(args[0])
    yield from place.entered(text_of(text), [over, falls, *key], {})


def order_of(place: Place, named: dict[str, Value]) -> tuple[list[Value], Value]:
    """What is sorted by: the key, if there is one, and whether it falls."""
    falls = named.get("reverse", number(False))
    if named.keys() - {"reverse", "key"} or falls.type not in (INT, BOOL):
        raise Unfit("has a compiled form with a key, and with a bool for reverse")
    key = [named["key"]] if named.get("key", NONE).type != NONE.type else []
    if key and place.w.seeded:
        refuse("a key has no compiled form under a seed")
    return key, falls


def is_even(parts: Sequence[Value]) -> bool:
    return len({part.type for part in parts}) <= 1 and all(
        isinstance(part.type, Number) for part in parts
    )


def exchanged(w: Writer, parts: Sequence[Value], falls: bool) -> list[Value]:
    """Numbers of one type in order: neighbours are exchanged where the right one goes first."""
    row = list(parts)
    for part in row:
        if part.type == Number("float"):
            w.give_up_if(numbers.is_nan(w, part))
    for end in range(len(row) - 1, 0, -1):
        for at in range(end):
            one, other = row[at], row[at + 1]
            wrong = numbers.compare(w, "gt" if falls else "lt", other, one).leaf
            (machine,) = machine_of(one.type)
            first = w.select(wrong, machine, other.leaf, one.leaf)
            second = w.select(wrong, machine, one.leaf, other.leaf)
            row[at], row[at + 1] = Value(one.type, (first,)), Value(one.type, (second,))
    return row


def by_text(
    text: Callable[..., Any],
    count: int,
    writes: bool,
    place: Place,
    args: Sequence[Value],
    named: dict[str, Value],
) -> Iterator[Value]:
    """A function of ``heapq`` or ``bisect``, that ``writes`` its list or only reads it."""
    if named or len(args) != count:
        raise Unfit(f"has a compiled form for {count} arguments")
    if writes and isinstance(args[0].type, Structure):
        listing.refuse_written(place.w, args[0].type)
    yield from place.entered(text_of(text), [gone_through(args[0]), *args[1:]], {})


RULES: dict[Any, Callable[..., Iterator[Value]]] = {
    heapq.heappush: partial(by_text, pushed, 2, True),
    heapq.heappop: partial(by_text, popped, 1, True),
    heapq.heapify: partial(by_text, heaped, 1, True),
    bisect.bisect_left: partial(by_text, bisected_left, 2, False),
    bisect.bisect_right: partial(by_text, bisected, 2, False),
    bisect.insort_left: partial(by_text, inserted_left, 2, True),
    bisect.insort_right: partial(by_text, inserted, 2, True),
    builtins.list: list_of,
    builtins.tuple: tuple_of,
    builtins.sorted: sorted_of,
}
