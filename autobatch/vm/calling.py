"""What crosses a call: the caller's cells that the callee may write, out and back.

A callee's threads part and meet, which copies cells; so what both the caller and the callee can
see and change (lists, tensors) is *carried* with the callee's threads, and when they return the
caller's cells take over the content, so that every name of the caller's sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from autobatch.batching.lent import Lent
from autobatch.ir.program import Call
from autobatch.values.cells import (
    PACKED,
    Cell,
    Column,
    Container,
    Objects,
    Value,
    View,
    is_mutable,
)
from autobatch.values.heap import selecting, walks
from autobatch.vm.groups import Group
from autobatch.vm.ways import Marks, picked

KEPT = "%kept"
"""Holds the originals of carried cells while a caller's group is divided."""


@dataclass(slots=True, eq=False, repr=False)
class Returned:
    """A group that has returned: ``rows`` of the caller's, its result, its carried cells.

    ``originals`` are the caller's cells for ``carried``, once there is a caller; ``ways`` says
    which ``return`` gave each row. Where the threads ``raised``, ``value`` are their exceptions.
    ``at`` are the positions of the rows in ``value``, where that has rows of other frames too; it
    is of forked calls, which carry nothing.
    """

    rows: np.ndarray
    value: Cell
    carried: list[Cell] = field(default_factory=list)
    originals: list[Cell] = field(default_factory=list)
    ways: Marks = None
    raised: bool = False
    at: np.ndarray | None = None

    def part(self, rows: np.ndarray, positions: np.ndarray) -> Returned:
        """Some of its threads, which are ``rows`` of a frame; nothing is copied."""
        return Returned(rows, self.value, at=positions if self.at is None else self.at[positions])

    def settle(self, originals: Sequence[Cell]) -> None:
        """Let the caller's cells take over what the carried ones hold."""
        known = {
            id(new): old for new, old in zip(self.carried, originals, strict=True) if new is not old
        }
        if known:
            for new in self.carried:
                if id(new) in known:
                    known[id(new)].value = relinked_value(new, known)
            self.value = relinked(self.value, known, {})
        self.carried = self.originals = list(originals)

    def kept_cell(self, original: Cell) -> Cell:
        """What stands for one of the caller's cells in this group."""
        for mine, theirs in zip(self.carried, self.originals, strict=True):
            if theirs is original:
                return mine
        raise AssertionError("the cell was not carried")


def after_call(group: Group, kept: dict[str, Cell], call: Call, result: Cell) -> Group:
    """The caller's threads after a call that has run for all of them at once."""
    return Group(group.rows, {**kept, call.out: result})


def relinked(cell: Cell, known: dict[int, Cell], memo: dict[int, Cell]) -> Cell:
    """``cell`` with references to carried cells led back to the caller's."""
    found = known.get(id(cell))
    if found is not None:
        return found
    value = cell.value
    kind = type(value)
    if (kind is not Container and kind is not View) or id(cell) in memo:
        return cell
    memo[id(cell)] = cell
    if type(value) is Container:
        cell.value = value.rebuilt(relinked(c, known, memo) for c in value.children())
    elif type(value) is View:
        cell.value = relinked_value(cell, known)
    return cell


def relinked_value(cell: Cell, known: dict[int, Cell]) -> Value:
    value = cell.value
    memo: dict[int, Cell] = {}
    if type(value) is Container:
        return value.rebuilt(relinked(child, known, memo) for child in value.children())
    if type(value) is View:
        base = relinked(value.base, known, memo)
        return View(base, value.recipe, tuple(relinked(arg, known, memo) for arg in value.args))
    return value


def reach(roots: Iterable[Cell]) -> dict[int, Cell]:
    """The cells that can be changed among those that the roots reach, in a fixed order."""
    found: dict[int, Cell] = {}
    waiting = list(roots)
    waiting.reverse()
    while waiting:
        cell = waiting.pop()
        value = cell.value
        kind = type(value)
        if kind is Column:
            if value.tag == "tensor":  # type: ignore[union-attr]
                found[id(cell)] = cell
        elif kind is Container or kind is View:
            if id(cell) in found:
                continue
            if is_mutable(value):
                found[id(cell)] = cell
            inner = [*value.children()] if kind is Container else [value.base]  # type: ignore[union-attr]
            waiting += inner[::-1]
        elif is_mutable(value):
            found[id(cell)] = cell
    return found


def carry(
    args: Iterable[Cell], kept: Iterable[Cell], lent: Lent, blind: Callable[[], bool]
) -> list[Cell]:
    """What a callee can change and its caller still needs, and what that may be (``Lent``).

    ``blind``: whether nobody can tell a tensor of the caller's from a copy (see ``aliasing``);
    asked where there is such a tensor. Then only what holds others is carried.
    """
    args, kept = list(args), list(kept)
    mine = reach(args)
    if not mine and not lent.marks:
        return []
    theirs = reach(kept)
    found = [cell for key, cell in mine.items() if key in theirs]
    if lent.marks:  # a tensor changes with an array, whatever is written
        own = {id(cell): cell for cell in walks.reached(args)}
        others = (cell for cell in walks.reached(kept) if id(cell) not in own)
        return found + lent.tied(own.values(), others)
    found += lent.tied(mine.values(), (c for key, c in theirs.items() if key not in mine))
    holding = [cell for cell in found if is_holder(cell.value)]
    return holding if len(holding) < len(found) and blind() else found


def is_holder(value: Value) -> bool:
    """Whether it changes without a write to a tensor."""
    kind = type(value)
    return kind is Objects or (kind is Container and value.type is not PACKED)  # type: ignore[union-attr]


def settled(pieces: list[Returned], originals: list[Cell], k: int) -> list[Returned]:
    """Returned groups with rows in ascending order; a single whole one takes effect at once."""
    for piece in pieces:
        piece.originals = originals
        if len(piece.rows) > 1 and (piece.rows[1:] < piece.rows[:-1]).any():
            order = np.argsort(piece.rows)
            piece.rows, piece.ways = piece.rows[order], picked(piece.ways, order)
            piece.value, *piece.carried = selecting.select([piece.value, *piece.carried], order)
    if len(pieces) == 1 and len(pieces[0].rows) == k:
        pieces[0].settle(originals)
    return pieces
