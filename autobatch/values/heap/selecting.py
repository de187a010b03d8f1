"""Some rows of a heap: what a group's threads take along when they part.

In: roots, and row numbers within the group. Out: new cells that hold these rows; the roots stay
as they are. Views move as recipes; only their base moves rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from autobatch.compat import on_device
from autobatch.presence.moves import keeping
from autobatch.presence.wide_rows import rows_at
from autobatch.values.cells import (
    RANGE_ITERATOR,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    is_mutable,
    moves_at_once,
    selected,
)
from autobatch.values.heap.copying import copied
from autobatch.values.heap.walks import plain_views
from autobatch.values.layouts import seen_layout
from autobatch.values.strides import cut, is_watched

Rows = np.ndarray
"""Row numbers within a group, int64."""
NOTHING: frozenset[int] = frozenset()


def select(roots: Sequence[Cell], rows: Rows) -> list[Cell]:
    """Cells that hold the given rows of what the roots hold; ``rows`` are row numbers.

    Views of what the roots do not reach otherwise come out plain; the roots stay as they are.
    """
    with keeping():
        flat = select_flat(roots, rows)
        return select_any(roots, rows) if flat is None else flat


def select_any(roots: Sequence[Cell], rows: Rows) -> list[Cell]:
    """The same, whatever the roots are."""
    views = plain_views(roots)
    plain = frozenset(map(id, views)) if views else NOTHING
    on_host = torch.from_numpy(rows)
    indices: dict[torch.device, Tensor] = {}
    host: list[int] = []

    def transform(value: Value) -> Value:
        if type(value) is Column:
            table = value.table
            if table.is_cpu:
                chosen = value.select(on_host)
            else:
                index = indices.get(table.device)
                if index is None:
                    index = indices[table.device] = on_device(rows, table.device)
                chosen = value.select(index)
            if value.outside is not False:
                outside = value.outside
                chosen.outside = outside[rows] if type(outside) is np.ndarray else outside
            chosen.ties = value.ties
            return chosen
        if type(value) is Objects:
            if value.lists is not None:
                return Objects([], lists=value.lists.select(rows))
            if value.stacks is not None:
                return Objects([], value.ties, stacks=value.stacks.select(rows))
            if not host:
                host.extend(rows.tolist())
            items = value.items
            return Objects([items[row] for row in host], value.ties)
        assert type(value) is Uniform
        return Uniform(value.obj, ties=value.ties)

    return copied(roots, transform, plain)


def select_flat(roots: Sequence[Cell], rows: Rows) -> list[Cell] | None:
    """The same where all roots are flat (see ``is_flat``); else None."""
    for cell in roots:
        if not is_flat(cell.value):
            return None
    picking = Picking(rows)
    return [picking.visit(cell) for cell in roots]


def is_flat(value: Value, outer: bool = True) -> bool:
    """Whether some rows of it need nothing but to be picked, or not even that: columns on the host,
    objects, what no thread can change, and tuples and iterators over ranges of these.
    """
    kind = type(value)
    if kind is Uniform:
        return value.shared or not is_mutable(value)  # type: ignore[union-attr]
    if kind is Objects:
        return value.lists is None and value.stacks is None  # type: ignore[union-attr]
    if kind is Column:
        return value.is_whole and value.table.is_cpu  # type: ignore[union-attr]
    if kind is not Container or not outer:
        return False
    if value.type is not tuple and value.type is not RANGE_ITERATOR:  # type: ignore[union-attr]
        return False
    return all(is_flat(cell.value, outer=False) for cell in value.cells)  # type: ignore[union-attr]


class Picking:
    """A walk of ``select_flat``."""

    __slots__ = ("at_once", "host", "index", "memo", "rows")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.at_once = False
        self.index: Tensor | None = None
        self.host: list[int] | None = None
        self.memo: dict[int, Cell] = {}

    def visit(self, cell: Cell) -> Cell:
        value = cell.value
        kind = type(value)
        if kind is Uniform:
            return cell
        new = self.memo.get(id(cell))
        if new is not None:
            return new
        if kind is Column:
            if self.index is None:
                self.index = torch.from_numpy(self.rows)
                self.at_once = not is_watched()
            if self.at_once and moves_at_once(value):  # type: ignore[arg-type]
                table = rows_at(value.table, self.index)  # type: ignore[union-attr]
                new = Cell(Column(table, value.tag, value.bounds))  # type: ignore[union-attr]
            else:
                new = Cell(value.select(self.index))  # type: ignore[union-attr]
        elif kind is Objects:
            if self.host is None:
                self.host = self.rows.tolist()
            items = value.items  # type: ignore[union-attr]
            new = Cell(Objects([items[row] for row in self.host], value.ties))  # type: ignore[union-attr]
        else:
            assert type(value) is Container
            parts = [self.visit(child) for child in value.cells]
            new = Cell(Container(value.type, parts, value.static))
        self.memo[id(cell)] = new
        return new


def are_plain_rows(one: Value, other: Value) -> bool:
    """Whether two values are tensors of each thread's own, or tuples of different ones, which are
    alike; a quick look, not a full one.
    """
    mine, theirs = plain_leaves(one), plain_leaves(other)
    if mine is None or theirs is None or len(mine) != len(theirs):
        return False
    if type(one) is not type(other):
        return False
    for a, b in zip(mine, theirs, strict=True):
        if a.tag != b.tag:
            return False
        x, y = a.table, b.table
        if x.dtype is not y.dtype or x.shape[1:] != y.shape[1:] or x.device != y.device:
            return False
        if seen_layout(x) != seen_layout(y):
            return False
    return True


def several(root: Cell, parts: Sequence[Rows]) -> list[Cell]:
    """Cells that hold some rows of what a cell holds, one for each of the parts."""
    value = root.value
    leaves = plain_leaves(value)
    if leaves is None:
        return [select([root], rows)[0] for rows in parts]
    device = leaves[0].table.device
    with keeping():
        found = selected(leaves, [on_device(rows, device) for rows in parts])
    if type(value) is Column:
        return [Cell(column) for (column,) in found]
    return [Cell(Container(tuple, list(map(Cell, columns)))) for columns in found]


def plain_leaves(value: Value) -> list[Column] | None:
    """The tensors that plain rows are made of; None where they are not plain, or there are none."""
    if type(value) is Column:
        return [value] if value.is_whole else None
    if type(value) is not Container or value.type is not tuple or not value.cells:
        return None
    leaves = [cell.value for cell in value.cells]
    for leaf in leaves:
        if type(leaf) is not Column or not leaf.is_whole:
            return None
    return leaves if len(set(map(id, value.cells))) == len(leaves) else None  # type: ignore[return-value]


def divided(root: Cell, rows: Rows, sizes: Sequence[int]) -> list[Cell] | None:
    """Parts of some rows, which are of these sizes and share memory, so they are to be read only.

    None where the root holds anything but tensors of each thread's own. Each part by itself would
    have a gradient of the size of the whole.
    """
    value = root.value
    leaves = plain_leaves(value)
    if leaves is None:
        return None
    turns = runs(rows, sizes) if len(rows) == len(leaves[0].table) else None
    if turns is None:
        turns = list(range(len(sizes)))
        leaves = [leaf.select(on_device(rows, leaf.table.device)) for leaf in leaves]
    if not all(leaf.is_whole and leaf.table.is_contiguous() for leaf in leaves):
        return None
    places = sorted(turns, key=turns.__getitem__)
    lying = [sizes[turn] for turn in turns]
    tables = [cut(leaf.table, lying) for leaf in leaves]
    columns = [
        [Column(cuts[place], leaf.tag, leaf.bounds) for place in places]
        for leaf, cuts in zip(leaves, tables, strict=True)
    ]
    if type(value) is Column:
        return [Cell(column) for column in columns[0]]
    return [Cell(value.rebuilt(map(Cell, parts))) for parts in zip(*columns, strict=True)]  # type: ignore[union-attr]


def runs(rows: Rows, sizes: Sequence[int]) -> list[int] | None:
    """Which part comes first, and so on, where each is a run of rows and these are all; else
    None.
    """
    ends = np.cumsum(sizes)
    steps = np.diff(rows) != 1
    steps[ends[:-1][(ends[:-1] > 0) & (ends[:-1] < len(rows))] - 1] = False
    if steps.any():
        return None
    begins = [int(rows[end - size]) if size else -1 for end, size in zip(ends, sizes, strict=True)]
    turns = sorted(range(len(sizes)), key=begins.__getitem__)
    end = 0
    for turn in turns:
        if sizes[turn] and begins[turn] != end:
            return None
        end += sizes[turn]
    return turns
