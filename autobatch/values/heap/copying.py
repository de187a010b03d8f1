"""New cells for all that roots reach, leaves passed through a function.

Each cell is copied once, so aliases survive: two names for one list or tensor still are one.
Views are copied as recipes; only their base is passed through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from autobatch.values.cells import (
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    View,
    is_mutable,
    read,
)
from autobatch.values.heap.walks import REFERRING


def duplicated(roots: Sequence[Cell]) -> list[Cell]:
    """New cells for all that the roots reach, which hold what those hold now."""
    made: list[Cell] = []
    memo: dict[int, Cell] = {}
    for cell in roots:
        value = cell.value
        kind = type(value)
        if kind in REFERRING or (kind is Objects and value.lists is not None):  # type: ignore[union-attr]
            return copied(roots, as_it_is)
        if kind is Uniform and (value.shared or not is_mutable(value)):  # type: ignore[union-attr]
            made.append(cell)
            continue
        new = memo.get(id(cell))
        if new is None:
            new = memo[id(cell)] = Cell(value)
        made.append(new)
    return made


def as_it_is(value: Value) -> Value:
    return value


def copied(
    roots: Iterable[Cell],
    transform: Callable[[Value], Value],
    plain: frozenset[int] = frozenset(),
) -> list[Cell]:
    """New cells for all that the roots reach, leaves passed through ``transform`` once each.

    ``plain`` are the ids of views to copy as what they hold now (see ``plain_views``).
    """
    copying = Copying(transform, plain)
    return [copying.visit(root) for root in roots]


class Copying:
    """A walk of ``copied``; no function within a function, whose cycle would keep rows alive."""

    __slots__ = ("memo", "moved", "plain", "transform")

    def __init__(self, transform: Callable[[Value], Value], plain: frozenset[int]) -> None:
        self.transform = transform
        self.plain = plain
        self.memo: dict[int, Cell] = {}
        self.moved: dict[int, Value] = {}

    def visit(self, cell: Cell) -> Cell:
        key = id(cell)
        new = self.memo.get(key)
        if new is not None:
            return new
        value = cell.value
        kind = type(value)
        if kind is Column:
            new = self.memo[key] = Cell(self.transform(value))
            return new
        if kind is Uniform and (value.shared or not is_mutable(value)):  # type: ignore[union-attr]
            self.memo[key] = cell
            return cell
        new = self.memo[key] = Cell(value)
        visit = self.visit
        if type(value) is Container:
            new.value = value.rebuilt(map(visit, value.children()))
        elif type(value) is View and key not in self.plain:
            new.value = self.view(value)
        else:
            content = read(cell)
            if type(content) is Container:  # a part of a packed value
                new.value = content.rebuilt(visit(child) for child in content.children())
            elif type(content) is Objects and content.lists is not None:
                new.value = self.lists(content)
            else:
                new.value = self.transform(content)
        return new

    def view(self, value: View) -> View:
        """The view of the new base; what it shows of a large one need not be looked up again."""
        base = self.visit(value.base)
        new = View(base, value.recipe, tuple(map(self.visit, value.args)))
        old, shown = value.base.value, value.cache
        if type(old) is Column and type(shown) is Column and value.seen is old:
            new.cache, new.seen = self.transform(shown), base.value
        return new

    def lists(self, value: Objects) -> Value:
        """Lists are written in place: cells that share them share what they become."""
        known = self.moved.get(id(value))
        if known is None:
            known = self.transform(value)
            if known is value:
                known = Objects([], lists=value.lists.copy())
            self.moved[id(value)] = known
        return known
