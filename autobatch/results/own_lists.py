"""Lists that hold no number and no tensor are each example's own, and come back in a list of B.

So are words, as many as an example has: of one length in all examples or not, they do not stack.
What a list holds in lists, tuples, dicts and records counts; an object of another class is one
object. Where all examples have an empty list it is a structure without parts.

Under ``ragged_out="list"`` every list is each example's own, and some examples may have what comes
back in a list anyway in its place (``may_be_listed``).

A list that does hold what stacks is noted (``holding``), as are those on the way to it, so that
one that nests deep is gone through once. What holds itself is seen once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from autobatch.structure import (
    form_of,
    is_collection,
    is_record_type,
    is_structure,
    is_tuple_type,
)
from autobatch.values.cells import PACKED, Column, Container, Uniform, read
from autobatch.values.numbers import is_stacking_number

Holding = dict[int, Any]
"""Structures that are known to hold what stacks, by identity."""


def are_own(items: Sequence[Any], holding: Holding) -> bool:
    """Whether values, one for each thread, are lists that hold nothing which stacks."""
    if not any(type(item) is list and item for item in items):
        return False
    if any(type(item) is not list or id(item) in holding for item in items):
        return False
    return holds_no(stacks, items, parts_of, holding)


def may_be_own(value: Container, holding: Holding) -> bool:
    """Whether a program's list may be so: real values tell, where it holds objects."""
    if not value.cells or id(value) in holding:
        return False
    return holds_no(must_stack, [value], values_in, holding)


def may_be_listed(items: Sequence[Any]) -> bool:
    """Whether values, one for each thread, are lists, or come back in a list of B as they are."""
    return any(type(item) is list for item in items) and all(map(is_by_itself, items))


def is_by_itself(item: Any) -> bool:
    if isinstance(item, Tensor):
        return item.dim() > 0
    if type(item) is list:
        return True
    return not (is_structure(item) or is_collection(item) or is_stacking_number(item))


def holds_no(
    wanted: Callable[[Any], bool],
    roots: Iterable[Any],
    parts: Callable[[Any], Iterable[Any] | None],
    holding: Holding,
) -> bool:
    way = way_to(wanted, roots, parts)
    holding.update({} if way is None else {id(node): node for node in way})
    return way is None


def way_to(
    wanted: Callable[[Any], bool],
    roots: Iterable[Any],
    parts: Callable[[Any], Iterable[Any] | None],
) -> list[Any] | None:
    """The structures from a root down to the first leaf that is wanted; None if there is none.

    ``parts`` gives None for a leaf.
    """
    seen: dict[int, Any] = {}  # by identity, and kept: no other may have its place meanwhile
    way: list[Any] = []
    pending = [iter(roots)]
    while pending:
        for node in pending[-1]:
            inner = parts(node)
            if inner is None and wanted(node):
                return way
            if inner is not None and id(node) not in seen:
                seen[id(node)] = node
                way.append(node)
                pending.append(iter(inner))
                break
        else:
            pending.pop()
            del way[len(pending) - 1 :]
    return None


def parts_of(obj: Any) -> Iterable[Any] | None:
    form = form_of(obj)
    return None if form is None else form.parts(obj)


def stacks(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) or is_stacking_number(leaf) or is_collection(leaf)


def values_in(value: Any) -> Iterable[Any] | None:
    made = type(value) is Container and is_made(value.type)
    return map(read, value.children()) if made else None


def must_stack(value: Any) -> bool:
    if type(value) is Uniform:
        return stacks(value.obj)
    return type(value) is Column or (type(value) is Container and value.type is PACKED)


def is_made(kind: Any) -> bool:
    """Whether a container of the program's is a structure."""
    return kind in (list, dict) or is_tuple_type(kind) or is_record_type(kind)
