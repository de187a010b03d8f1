"""Python text of dicts and sets: a list of entries in their order, and an index by open addressing.

An entry is a tuple that begins with the key. The index holds how many entries have been taken out,
then the places of entries, each where its key's hash says or, if that is taken, on from there; what
is free holds -1. It is a power of two long but for the first, and never more than half full.
"""

from __future__ import annotations

from typing import Any

from autobatch.compiled.hashing import scattered

LEAST_SEATS = 8


def place_of(entries: Any, index: Any, key: Any) -> int:
    """Where the entry of a key is, or -1."""
    many = len(index) - 1
    if many == 0:
        return -1
    at = scattered(key) & (many - 1)
    while index[1 + at] >= 0:
        place = index[1 + at]
        if entries[place][0] == key:
            return place  # type: ignore[no-any-return]
        at = (at + 1) & (many - 1)
    return -1


def seat(index: Any, key: Any, place: Any) -> None:
    many = len(index) - 1
    at = scattered(key) & (many - 1)
    while index[1 + at] >= 0:
        at = (at + 1) & (many - 1)
    index[1 + at] = place


def reseat(entries: Any, index: Any, many: Any) -> None:
    """Make an index anew, with so many seats."""
    for at in range(1, len(index)):
        index[at] = -1
    while len(index) <= many:
        index.append(-1)
    for place in range(len(entries)):
        seat(index, entries[place][0], place)


def seated(entries: Any, index: Any) -> None:
    """Note the last entry, which is new."""
    many = len(index) - 1
    if 2 * len(entries) > many:
        reseat(entries, index, max(2 * many, LEAST_SEATS))
    else:
        seat(index, entries[-1][0], len(entries) - 1)


def store(entries: Any, index: Any, key: Any, value: Any) -> None:
    place = place_of(entries, index, key)
    if place >= 0:
        entries[place] = (entries[place][0], value)
    else:
        entries.append((key, value))
        seated(entries, index)


def add(entries: Any, index: Any, key: Any) -> None:
    if place_of(entries, index, key) < 0:
        entries.append((key,))
        seated(entries, index)


def add_all(entries: Any, index: Any, keys: Any) -> None:
    for key in keys:
        add(entries, index, key)


def taken(entries: Any, index: Any, place: Any) -> Any:
    """The entry at a place, which is taken out."""
    entry = entries.pop(place)
    index[0] += 1
    reseat(entries, index, len(index) - 1)
    return entry


def discard(entries: Any, index: Any, key: Any) -> None:
    place = place_of(entries, index, key)
    if place >= 0:
        taken(entries, index, place)


def contained(entries: Any, index: Any, key: Any) -> bool:
    return place_of(entries, index, key) >= 0


def not_contained(entries: Any, index: Any, key: Any) -> bool:
    return place_of(entries, index, key) < 0


def get(entries: Any, index: Any, key: Any, default: Any) -> Any:
    place = place_of(entries, index, key)
    return entries[place][1] if place >= 0 else default


def setdefault(entries: Any, index: Any, key: Any, default: Any) -> Any:
    place = place_of(entries, index, key)
    if place >= 0:
        return entries[place][1]
    entries.append((key, default))
    seated(entries, index)
    return default


def pop_or(entries: Any, index: Any, key: Any, default: Any) -> Any:
    place = place_of(entries, index, key)
    return taken(entries, index, place)[1] if place >= 0 else default


def clear(entries: Any, index: Any) -> None:
    index[0] += len(entries)
    entries.clear()
    reseat(entries, index, len(index) - 1)
