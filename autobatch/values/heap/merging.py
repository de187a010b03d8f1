"""One heap for the threads of several alike ones: groups that meet.

In: the roots of each (see ``likeness``), and how many threads it has. Out: cells with all rows, in
the order of the heaps. Each tuple of cells that stand at one place is merged once, so aliases
survive.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.compat import on_device
from autobatch.presence import moves
from autobatch.presence.moves import keeping
from autobatch.values import listing, matrices, stacks
from autobatch.values.cells import (
    NO_TIES,
    NUMBER_TAGS,
    PACKED,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    View,
    expand,
    is_mutable,
    join_bounds,
    shown_memory,
)
from autobatch.values.heap.likeness import NAMED, identity
from autobatch.values.matrices import Matrices
from autobatch.values.repeated import is_shared
from autobatch.values.strides import joined

NUMPY_DTYPES = {"bool": np.bool_, "int": np.int64, "float": np.float64}


def merge(
    pieces: Sequence[Sequence[Cell]], sizes: Sequence[int], device: torch.device
) -> list[Cell]:
    """One heap for the threads of several alike ones, rows in the order of the pieces.

    ``device`` is where number columns live.
    """
    if len(pieces) == 1:
        return list(pieces[0])
    merging = Merging(sizes, device)
    with keeping():
        return [merging.visit(cells) for cells in zip(*pieces, strict=True)]


class Merging:
    """A walk of ``merge``, over the cells of all pieces at once."""

    __slots__ = ("device", "joint", "kept", "memo", "moved", "sizes")

    def __init__(self, sizes: Sequence[int], device: torch.device) -> None:
        self.sizes = sizes
        self.device = device
        self.memo: dict[tuple[int, ...], Cell] = {}
        self.joint: dict[tuple[int, ...], Tensor] = {}
        self.moved: dict[tuple[int, ...], Value] = {}
        self.kept: list[Container] = []

    def visit(self, cells: tuple[Cell, ...]) -> Cell:
        key = tuple(map(id, cells))
        new = self.memo.get(key)
        if new is not None:
            return new
        values: list[Any] = [cell.value for cell in cells]  # where one is no leaf, none is
        first = values[0]
        kind = type(first)
        if kind is Uniform and values.count(first) == len(values) and not is_mutable(first):
            self.memo[key] = cells[0]
            return cells[0]
        new = self.memo[key] = Cell(first)
        visit = self.visit
        if kind in NAMED and parted_lists(values):
            new.value = self.lists(values)
        elif kind is Container:
            if first.type is PACKED:
                values = aligned(values, self.joint)
                first = values[0]
                self.kept += values  # so that no other cell gets the place of one of theirs
            columns = zip(*(value.children() for value in values), strict=True)
            new.value = first.rebuilt(visit(children) for children in columns)
        elif kind is View:
            base = visit(tuple(view.base for view in values))
            args = zip(*(view.args for view in values), strict=True)
            new.value = View(base, first.recipe, tuple(map(visit, args)))
        else:
            new.value = merged(values, self.sizes, self.device)
            ties = NO_TIES.union(*(value.ties for value in values))
            if ties:
                new.value.ties = ties  # type: ignore[union-attr]
        return new

    def lists(self, values: Sequence[Any]) -> Value:
        """Lists that are written in place; those that groups share they share from now on."""
        key = tuple(map(id, values))
        known = self.moved.get(key)
        if known is None:
            parts = [v.lists if type(v) is Objects else v.cells for v in values]
            known = Objects([], lists=listing.joined(parts, self.sizes, self.device))
            self.moved[key] = known
        return known


def plain_rows(values: Sequence[Any]) -> Value:
    """The same of plain rows, which are alike (see ``selecting.are_plain_rows``)."""
    first = values[0]
    if type(first) is Container:
        columns = zip(*(value.cells for value in values), strict=True)
        return Container(tuple, [Cell(plain_rows([c.value for c in cells])) for cells in columns])
    bounds = join_bounds(value.bounds for value in values) if first.tag == "int" else None
    with keeping():
        table = joined([value.table for value in values])
    return Column(table, first.tag, bounds)


def parted_lists(values: Sequence[Value]) -> bool:
    """Whether these are lists of one kind of elements, and some differ in length."""
    lengths: set[int] = set()
    kinds: set[Hashable] = set()
    for value in values:
        if type(value) is Objects and value.lists is not None:
            lengths.add(-1)
            kinds.add(value.lists.kind)
        elif type(value) is Container and value.type is list:
            lengths.add(len(value.cells))
        else:
            return False
    return len(kinds) < 2 and (len(lengths) > 1 or -1 in lengths)


def merged(values: Sequence[Value], sizes: Sequence[int], device: torch.device) -> Value:
    """The leaf that stands for the threads of all the given alike leaves."""
    first = values[0]
    if type(first) is Column:
        tables = [value.table for value in values if type(value) is Column and value.is_whole]
        if len(tables) == len(values):
            known = join_bounds(v.bounds for v in values) if first.tag == "int" else None  # type: ignore[union-attr]
            return Column(joined(tables), first.tag, known)
    if type(first) is Objects:
        held = [value.stacks for value in values]  # type: ignore[union-attr]
        apart = [part for part in held if part is not None]
        padded = [part for part in apart if type(part) is Matrices]
        if len(padded) == len(held) and len({(p.data.dtype, p.data.device) for p in padded}) == 1:
            return Objects([], stacks=matrices.joined(padded))
        if len(apart) == len(held):
            return Objects([], stacks=stacks.joined(apart))
        return Objects([item for value in values for item in value.items])  # type: ignore[union-attr]
    if all(type(value) is Uniform for value in values) and same_uniforms(values):
        return Uniform(first.obj, any(value.shared for value in values))  # type: ignore[union-attr]
    numbers = repeated_numbers(values, sizes, device)
    if numbers is not None:
        return numbers
    columns = [
        value if type(value) is Column else expand(value.obj, size, device)  # type: ignore[union-attr]
        for value, size in zip(values, sizes, strict=True)
    ]
    tag, table = columns[0].tag, columns[0].table
    outside = outside_rows(values, sizes)
    rows = [indices(c) for c in columns if c.table is table and is_indexed(c)]
    if len(rows) == len(columns):
        return Column(table, tag, None, torch.cat(rows), outside)
    data = joined([column.data for column in columns])
    bounds = join_bounds(column.bounds for column in columns) if tag == "int" else None
    return Column(data, tag, bounds, None, outside)


def repeated_numbers(
    values: Sequence[Value], sizes: Sequence[int], device: torch.device
) -> Column | None:
    """The column of numbers of one kind, each for so many threads; None if they are not that."""
    if any(type(value) is not Uniform for value in values):
        return None
    objs = [value.obj for value in values]  # type: ignore[union-attr]
    kinds = set(map(type, objs))
    tag = NUMBER_TAGS.get(kinds.pop()) if len(kinds) == 1 else None
    if tag is None:
        return None
    data = on_device(np.repeat(np.array(objs, NUMPY_DTYPES[tag]), sizes), device)
    return Column(data, tag, (min(objs), max(objs)) if tag == "int" else None)


def is_indexed(column: Column) -> bool:
    """Whether its rows are looked up in a table that other columns look up theirs in."""
    return column.rows is not None or is_shared(column.table)


def indices(column: Column) -> Tensor:
    table, rows = column.table, column.rows
    return torch.arange(table.shape[0], device=table.device) if rows is None else rows


def aligned(packs: Sequence[Container], joint: dict[tuple[int, ...], Tensor]) -> list[Container]:
    """Packed values over one table, which has the rows of all their tables; ``joint`` keeps it."""
    tables: dict[int, Tensor] = {id(pack.static): pack.static for pack in packs}
    if len(tables) == 1:
        return list(packs)
    firsts: dict[int, int] = {}
    size = 0
    for key, table in tables.items():
        firsts[key] = size
        size += table.shape[0]
    whole = joint.get(tuple(tables))
    if whole is None:
        whole = joint[tuple(tables)] = moves.joined(list(tables.values()))
    moved: list[Container] = []
    for pack in packs:
        begins, *rest = pack.children()
        column = begins.value
        assert type(column) is Column
        begins = Cell(Column(column.data + firsts[id(pack.static)], "int"))
        moved.append(Container(PACKED, [begins, *rest], whole))
    return moved


def outside_rows(values: Sequence[Value], sizes: Sequence[int]) -> np.ndarray | int:
    """Which rows of a merged column stand for tensors that existed before the call, and which."""
    shown = [value.outside if type(value) is Column else shown_memory(value) for value in values]
    if all(each is False for each in shown):
        return False
    if not any(type(each) is np.ndarray for each in shown):
        return np.repeat(np.array(shown, np.int64), sizes)
    return np.concatenate([np.broadcast_to(s, size) for s, size in zip(shown, sizes, strict=True)])


def same_uniforms(values: Sequence[Value]) -> bool:
    first = values[0].obj  # type: ignore[union-attr]
    if all(value.obj is first for value in values):  # type: ignore[union-attr]
        return True
    if isinstance(first, Tensor):
        return False
    key = identity(first)
    return all(identity(value.obj) == key for value in values)  # type: ignore[union-attr]
