"""What a program does with lists and tuples: their methods and operators, ``sorted``, ``list``.

Of lists in memory most is Python text that means the same.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from autobatch.compiled import listing, numbers, tensors
from autobatch.compiled.functions import Unfit
from autobatch.compiled.sequences import Place, gone_through, listed, text_of, told
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


# The text


def extended(owner: Any, items: Any) -> None:
    for item in items:
        owner.append(item)


def extended_by_list(owner: Any, items: Any) -> None:
    for at in range(len(items)):
        owner.append(items[at])


def added(owner: Any, items: Any) -> Any:
    made: list[Any] = []
    for item in owner:
        made.append(item)
    for item in items:
        made.append(item)
    return made


def repeated(items: Any, count: Any) -> Any:
    made: list[Any] = []
    for _ in range(count):
        for item in items:
            made.append(item)
    return made


def copied(items: Any) -> Any:
    made: list[Any] = []
    for item in items:
        made.append(item)
    return made


def ends(many: Any, start: Any, stop: Any, step: Any) -> Any:
    """What ``slice.indices`` gives."""
    if step is None:
        step = 1
    if step == 0:
        raise ValueError
    least, most = (0, many) if step > 0 else (-1, many - 1)
    if start is None:
        start = least if step > 0 else most
    else:
        if start < 0:
            start += many
        start = least if start < least else most if start > most else start
    if stop is None:
        stop = most if step > 0 else least
    else:
        if stop < 0:
            stop += many
        stop = least if stop < least else most if stop > most else stop
    return start, stop, step


def sliced(items: Any, start: Any, stop: Any, step: Any) -> Any:
    start, stop, step = ends(len(items), start, stop, step)
    made: list[Any] = []
    while start < stop if step > 0 else start > stop:
        made.append(items[start])
        start += step
    return made


def put(items: Any, start: Any, stop: Any, step: Any, others: Any) -> None:
    whole = step is None or step == 1
    start, stop, step = ends(len(items), start, stop, step)
    made = copied(others)
    if whole and stop < start:
        stop = start
    many = len(range(start, stop, step))
    if many == len(made):
        for item in made:
            items[start] = item
            start += step
        return
    if not whole:
        raise ValueError
    for at in range(stop, len(items)):
        made.append(items[at])
    while len(items) > start:
        items.pop()
    for item in made:
        items.append(item)


def cut(items: Any, start: Any, stop: Any, step: Any) -> None:
    start, stop, step = ends(len(items), start, stop, step)
    many, left = len(range(start, stop, step)), 0
    if step < 0:
        start, step = start + (many - 1) * step, -step
    for at in range(len(items)):
        if many and at == start:
            start += step
            many -= 1
        else:
            items[left] = items[at]
            left += 1
    while len(items) > left:
        items.pop()


def is_it(item: Any, other: Any) -> Any:
    if item == other:
        return True
    if item != item and other != other:
        raise ValueError
    return False


def index(items: Any, other: Any) -> Any:
    at = 0
    for item in items:
        if is_it(item, other):
            return at
        at += 1  # noqa: SIM113
    raise ValueError


def count(items: Any, other: Any) -> Any:
    found = 0
    for item in items:
        if is_it(item, other):
            found += 1
    return found


def contained(items: Any, other: Any) -> Any:
    for item in items:  # noqa: SIM110
        if is_it(item, other):
            return True
    return False


def not_contained(items: Any, other: Any) -> Any:
    return not contained(items, other)


def without(items: Any, other: Any) -> None:
    items.pop(index(items, other))


def turned(items: Any) -> None:
    low, high = 0, len(items) - 1
    while low < high:
        one, other = items[low], items[high]
        items[low] = other
        items[high] = one
        low, high = low + 1, high - 1


def in_order(items: Any, falls: Any) -> Any:
    """A merge sort: as stable as Python's, so they are the same where no item is nan."""
    made: list[Any] = []
    other: list[Any] = []
    for item in items:
        if item != item:
            raise ValueError
        made.append(item)
        other.append(item)
    many, width = len(made), 1
    while width < many:
        start = 0
        while start < many:
            middle, end = min(start + width, many), min(start + 2 * width, many)
            left, right, at = start, middle, start
            while at < end:
                if right >= end:
                    first = True
                elif left >= middle:
                    first = False
                elif falls:
                    first = not made[left] < made[right]
                else:
                    first = not made[right] < made[left]
                if first:
                    other[at] = made[left]
                    left += 1
                else:
                    other[at] = made[right]
                    right += 1
                at += 1
            start = end
        made, other = other, made
        width *= 2
    return made


def put_in_order(items: Any, falls: Any) -> None:
    ordered = in_order(items, falls)
    for at in range(len(items)):
        items[at] = ordered[at]


def numbers_of(rows: Any) -> Any:
    made: list[Any] = []
    for row in rows:
        made.append(row.tolist())
    return made


# Methods

WRITING = frozenset(
    {"append", "pop", "insert", "clear", "extend", "remove", "reverse", "sort", "__setitem__"}
)
READING: dict[str, Callable[..., Any]] = {"index": index, "count": count}


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
    elif name == "sort" and not given and not named.keys() - {"reverse"}:
        falls = named.get("reverse", number(False))
        yield from place.entered(text_of(put_in_order), [owner, falls], {})
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
    """``+``, ``*`` and ``in`` of lists and tuples; None for other operands."""
    one, other = args
    if name in ("in", "not_in"):
        if not isinstance(other.type, Listed):
            return None
        text = contained if name == "in" else not_contained
        return place.entered(text_of(text), [other, one], {})
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
    """``sorted(x)``, or ``sorted(x, reverse=…)``."""
    w = place.w
    if len(args) != 1 or named.keys() - {"reverse"}:
        raise Unfit("has a compiled form without a key")
    falls = named.get("reverse", number(False))
    if falls.type not in (INT, BOOL):
        raise Unfit(f"has no compiled form for {falls.type}")
    parts = listed(args[0])
    known = parts is not None and falls.known is not None and len(parts) <= MOST_SORTED
    if parts is not None and known and is_even(parts):
        yield listing.display(w, exchanged(w, parts, bool(falls.known)))
        return
    yield from place.entered(text_of(in_order), [gone_through(args[0]), falls], {})


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


RULES: dict[Any, Callable[..., Iterator[Value]]] = {
    builtins.list: list_of,
    builtins.tuple: tuple_of,
    builtins.sorted: sorted_of,
}
