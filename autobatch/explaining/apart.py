"""Why two groups that wait at one block are kept apart, in words, by the names of the program.

In: the variables of both. Out: one sentence about the first variable in which they differ, or, if
each by itself is alike, about which names are one; None where only what has no name differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from torch import Tensor

from autobatch.explaining.kinds import kind_of
from autobatch.values.cells import Cell, Column, Container, Uniform, Value, View, is_mutable, read
from autobatch.values.heap import likeness, walks
from autobatch.values.layouts import Layout, seen_for_all, seen_layout

SHARED = "a large tensor that some groups share and others have a row of for each thread"


def unlike(first: Mapping[str, Cell], other: Mapping[str, Cell]) -> str | None:
    """The sentence for variables ``first`` and ``other`` of two groups that are not alike."""
    names = sorted(name for name in {*first, *other} if not name.startswith("%"))
    missing = [name for name in names if (name in first) != (name in other)]
    if missing:
        return f"`{missing[0]}` is set in some, and not in others"
    for name in names:
        left, right = first[name], other[name]
        if likeness.alike([left]) != likeness.alike([right]):
            path, why = difference(left, right)
            return f"`{name}{path}` is {why}"
    for a, b in combinations(names, 2):
        if is_one(first, a, b) != is_one(other, a, b):
            return f"`{a}` and `{b}` are one object in some, and two in others"
    if any(is_tensor_of_all(env[name]) for name in names for env in (first, other)):
        return SHARED
    return None


def difference(left: Cell, right: Cell) -> tuple[str, str]:
    """Where within a variable two cells differ, as Python would say it, and how."""
    one, two = read(left), read(right)
    if isinstance(one, Container) and isinstance(two, Container) and one.type is two.type:
        if len(one.cells) != len(two.cells):
            return "", counted(one, two)
        pairs = zip(keys(one), one.children(), two.children(), strict=True)
        for key, inner, also in pairs:
            if likeness.alike([inner]) != likeness.alike([also]):
                path, why = difference(inner, also)
                return f"{key}{path}", why
    kinds = sorted({plain_kind(one), plain_kind(two)})
    if len(kinds) == 2:
        return "", f"{kinds[0]} in some, {kinds[1]} in others"
    if isinstance(left.value, View) or isinstance(right.value, View):
        return "", "a view in some, and a tensor of its own, or another view, in others"
    if lies(one) != lies(two):
        return "", f"a {kinds[0]} that lies otherwise in memory in some than in others"
    return "", f"another {kinds[0]} in some than in others"


def lies(value: Value) -> Layout:
    """How a tensor lies in memory, if the program sees that."""
    if isinstance(value, Column):
        return seen_layout(value.table)
    is_tensor = isinstance(value, Uniform) and isinstance(value.obj, Tensor)
    return seen_for_all(value.obj) if is_tensor else ()  # type: ignore[union-attr]


def counted(one: Container, two: Container) -> str:
    name = plain_kind(one).removeprefix("container ").partition(" ")[0]
    fewer, more = sorted((len(one.cells), len(two.cells)))
    return f"a {name} of length {fewer} in some, of length {more} in others"


def keys(value: Container) -> Sequence[str]:
    """How the parts of a container are written."""
    if not isinstance(value.cells, dict):
        return [f"[{place}]" for place in range(len(value.cells))]
    if value.type is dict:
        return [f"[{key!r}]" for key in value.cells]
    return [f".{name}" for name in value.cells]


def plain_kind(value: Value) -> str:
    """The kind, whether it is one for all threads or one for each; what is None is None."""
    if isinstance(value, Uniform) and value.obj is None:
        return "None"
    return kind_of(value).removeprefix("uniform ").removeprefix("column ")


def is_one(env: Mapping[str, Cell], left: str, right: str) -> bool:
    """Whether what can change behind two names is one."""
    return not {id(cell) for cell in changing(env[left])}.isdisjoint(
        id(cell) for cell in changing(env[right])
    )


def changing(cell: Cell) -> list[Cell]:
    return [each for each in walks.reached([cell]) if is_mutable(each.value)]


def is_tensor_of_all(cell: Cell) -> bool:
    value = read(cell)
    return isinstance(value, Uniform) and hasattr(value.obj, "numel")
