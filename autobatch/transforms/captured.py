"""What a function that a transform runs on copies of cells has written to them.

In: the cells that the function is given besides its mapped arguments: itself, with all that it has
captured, and what is the same for all rows. ``Captured`` notes how they are before the run and
says afterwards whether they hold something else. A write that a run takes back, or that leaves
what was there, is none. Objects on the host, which a copy of a cell shares with it, are refused to
be written while the function runs (``held``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CellType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.foreign import Foreign, parts
from autobatch.batching.host.rower import Rower
from autobatch.values.cells import CLOSURE, METHOD, Cell, Container, Objects, View, as_column, read
from autobatch.values.heap import copying, likeness, walks

IMMUTABLE = (str, bytes, int, float, complex, type(None), type)
CONTAINERS = (list, tuple, dict, set, frozenset, CellType)


@dataclass(slots=True, eq=False, repr=False)
class Captured:
    """``cells`` as they are to be when the run is over; ``before`` are copies from its beginning.

    A value is replaced, never changed, so a copy of the cells costs no rows.
    """

    context: Context
    cells: Sequence[Cell]
    before: list[Cell] = field(init=False)
    seen: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.before = copying.duplicated(self.cells)

    def written(self) -> list[Cell]:
        """The cells, for the function what it has captured, that lead to a change."""
        pairs = [
            pair
            for old, new in zip(self.before, self.cells, strict=True)
            for pair in pairs_of(old, new)
        ]
        return [new for old, new in pairs if not self.same(old, new)]

    def name_of(self, cell: Cell) -> str:
        """How the function calls what it has captured; nothing if it has no name for it."""
        value = self.cells[0].value
        if type(value) is not Container or value.type is not CLOSURE:
            return ""
        names = value.static[0].free
        return next((n for n, own in zip(names, value.children(), strict=False) if own is cell), "")

    def same(self, old: Cell, new: Cell) -> bool:
        key = (id(old), id(new))
        if key in self.seen:
            return True
        self.seen.add(key)
        one, other = old.value, new.value
        if type(one) is Container and type(other) is Container:
            alike = one.type == other.type and likeness.slots(one) == likeness.slots(other)
            pairs = zip(one.children(), other.children(), strict=True) if alike else ()
            return alike and all(self.same(*pair) for pair in pairs)
        if type(one) is View and type(other) is View and one.recipe.key == other.recipe.key:
            pairs = zip((one.base, *one.args), (other.base, *other.args), strict=True)
            if all(self.same(*pair) for pair in pairs):
                return True
        return self.holds_same(old, new)

    def holds_same(self, old: Cell, new: Cell) -> bool:
        """Whether two cells that are no containers both hold the same in each row that is left."""
        one, other = read(old), read(new)
        if one is other:
            return True
        rows = self.rows()
        k, device = self.context.k, self.context.device
        before, now = as_column(one, k, device), as_column(other, k, device)
        if before is not None and now is not None:
            alike = before.tag == now.tag
            return alike and equal_tensors(before.data[rows], now.data[rows])
        given, made = Rower(self.context).rows(old), Rower(self.context).rows(new)
        return all(equal(given[row], made[row], set()) for row in rows.tolist())

    def rows(self) -> Tensor:
        """The rows of threads that have not failed meanwhile."""
        lost = self.context.lost or {}
        stay = [row for row, key in enumerate(self.context.keys.tolist()) if key not in lost]
        return torch.tensor(stay, dtype=torch.int64, device=self.context.device)


def pairs_of(old: Cell, new: Cell) -> list[tuple[Cell, Cell]]:
    """A function's parts before and after; any other cell as it is."""
    one, other = old.value, new.value
    both = type(one) is Container and type(other) is Container
    if both and one.type in (CLOSURE, METHOD) and one.type == other.type:  # type: ignore[union-attr]
        return list(zip(one.children(), other.children(), strict=True))  # type: ignore[union-attr]
    return [(old, new)]


def equal_tensors(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    alike = (one == other) | ((one != one) & (other != other))
    return bool(alike.all())


def equal(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    """Whether two rows of a cell, made for one thread, stand for the same."""
    if one is other or (id(one), id(other)) in seen:
        return True
    seen.add((id(one), id(other)))
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return equal_tensors(one, other)
    if isinstance(one, IMMUTABLE):
        return bool(one == other or (one != one and other != other))
    inner = parts(one), parts(other)
    if isinstance(one, dict) and list(one) != list(other):
        return False
    if not inner[0] and not inner[1]:
        return isinstance(one, CONTAINERS) or bool(np.all(one == other))
    return len(inner[0]) == len(inner[1]) and all(
        equal(*pair, seen) for pair in zip(*inner, strict=True)
    )


@contextmanager
def held(context: Context, cells: Sequence[Cell]) -> Iterator[None]:
    """While within, objects on the host that the cells reach may not be written."""
    roots = {
        id(item): item
        for cell in walks.reached(cells)
        if type(cell.value) is Objects
        for item in cell.value.items
        if not isinstance(item, (*IMMUTABLE, np.number))
    }
    foreign = context.foreign
    outer, foreign.inner = foreign.inner, Foreign(roots, inner=foreign.inner)
    try:
        yield
    finally:
        foreign.inner = outer
