"""Structures that nest deep, or that hold themselves: what stacking them takes.

Python's stack has room for results that nest a few hundred deep. For those below, room is made as
they need it (``roomy``). One that holds itself has no end: it is an object, as a list of examples'
own, which does not stack; ``rings`` finds these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from autobatch.structure import are_single, form_of
from autobatch.vm.room import ROOM

T = TypeVar("T")


def roomy(call: Callable[[], T], levels: Callable[[], int]) -> T:
    """What ``call`` gives, which changes nothing: if there was no room, once more with it.

    ``levels`` tells how deep it may go at most.
    """
    try:
        return call()
    except RecursionError:
        with ROOM.raised():
            ROOM.at(levels())
            return call()


def structures(roots: Iterable[Any]) -> dict[int, tuple[Any, Sequence[Any]]]:
    """All structures that some lead to, each once, with their parts, by identity."""
    found: dict[int, tuple[Any, Sequence[Any]]] = {}
    pending = list(roots)
    while pending:
        node = pending.pop()
        form = None if id(node) in found else form_of(node)
        if form is not None:
            parts = form.parts(node)
            found[id(node)] = (node, parts)
            if not are_single(parts):
                pending += parts
    return found


def rings(roots: Iterable[Any]) -> dict[int, Any]:
    """The structures that hold themselves, or that lie between two that do, by identity."""
    found = structures(roots)
    held = {
        name: {id(part) for part in parts if id(part) in found}
        for name, (_, parts) in found.items()
    }
    left = leading_on(turned(leading_on(held)))
    return {name: found[name][0] for name in left}


def leading_on(held: dict[int, set[int]]) -> dict[int, set[int]]:
    """What is left of a graph when what leads nowhere is taken away, again and again."""
    holders = turned(held)
    counts = {name: len(parts) for name, parts in held.items()}
    pending = [name for name, count in counts.items() if not count]
    gone = set(pending)
    while pending:
        for holder in holders[pending.pop()]:
            counts[holder] -= 1
            if not counts[holder]:
                gone.add(holder)
                pending.append(holder)
    return {name: parts - gone for name, parts in held.items() if name not in gone}


def turned(held: dict[int, set[int]]) -> dict[int, set[int]]:
    """A graph with its edges the other way round."""
    holders: dict[int, set[int]] = {name: set() for name in held}
    for name, parts in held.items():
        for part in parts:
            holders[part].add(name)
    return holders
