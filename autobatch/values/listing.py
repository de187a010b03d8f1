"""How cells become lists in one table (``lists``): which can, and how those of several groups meet.

In: a list's elements as cells, which all threads have, or the lists of several groups; out: one
``Lists``. Elements have a *kind* in common, a number's tag or a tensor's dtype, event shape and
device; a list of none has none, and goes with any.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.compat import within_level
from autobatch.presence import moves
from autobatch.values import logs
from autobatch.values.cells import (
    NUMBER_TAGS,
    Bounds,
    Cell,
    Column,
    Uniform,
    expand,
    fits_column,
    join_bounds,
    read,
)
from autobatch.values.layouts import seen_for_all, seen_layout
from autobatch.values.lists import Lists, roomy, wider
from autobatch.values.logs import Logged
from autobatch.values.repeated import is_shared

LONG = 16
"""Elements from which a tensor that all threads share is not made a row for each."""


def kind_of(cells: Sequence[Cell], blind: bool) -> Hashable:
    """The ``kind`` of lists with these elements: None if they have none, False if it is no one's.

    ``blind``: the program sees not which of its names mean one tensor; else tensors have no kind.
    """
    found: Hashable = None
    for cell in cells:
        kind = element_kind(cell, blind)
        if kind is None or (found is not None and kind != found):
            return False
        found = kind
    return found


def element_kind(cell: Cell, blind: bool) -> Hashable:
    value = cell.value
    if type(value) is Uniform and fits_column(value.obj):
        return NUMBER_TAGS[type(value.obj)]
    if type(value) is Column and value.tag != "tensor":
        return value.tag
    return tensor_kind(cell) if blind else None


def tensor_kind(cell: Cell) -> Hashable:
    """That of a tensor of the program's own."""
    value = read(cell)
    if type(value) is Column:
        table, shape, own = value.table, value.event_shape, value.is_whole
    elif type(value) is Uniform and isinstance(value.obj, Tensor):
        table, shape = value.obj, value.obj.shape
        own = not value.shared and not value.ties and table.numel() < LONG
    else:
        return None
    if not own or type(table) is not Tensor or table.layout is not torch.strided:
        return None
    if is_shared(table):
        return None
    if seen_layout(table) if type(value) is Column else seen_for_all(table):
        return None
    return (table.dtype, shape, table.device)


def column(cell: Cell, k: int, device: torch.device) -> Column:
    """An element as a column of its own."""
    value = read(cell)
    if type(value) is Column:
        return value
    assert type(value) is Uniform
    return expand(value.obj, k, device)


def of_cells(cells: Sequence[Cell], k: int, device: torch.device) -> Lists:
    """Lists whose elements are these in every thread, one at least."""
    columns = [column(cell, k, device) for cell in cells]
    tag, count = columns[0].tag, len(columns)
    rows = [each.data for each in columns]
    if tag == "tensor" and (within_level() or any(each.requires_grad for each in rows)):
        return Lists(tag, Logged.of(rows, roomy(count)), np.full(k, count, dtype=np.int64))
    table = wider(torch.stack(rows, 1), roomy(count))
    bounds = join_bounds(each.bounds for each in columns) if tag == "int" else None
    return Lists(tag, table, np.full(k, count, dtype=np.int64), bounds)


def joined(
    parts: Sequence[Lists | Sequence[Cell]], sizes: Sequence[int], device: torch.device
) -> Lists:
    """The lists of several groups: of one kind, or cells that each thread of a group has."""
    made = [
        part if isinstance(part, Lists) else of_cells(part, size, device) if part else None
        for part, size in zip(parts, sizes, strict=True)
    ]
    known = [part for part in made if part is not None]
    longest = max(part.most for part in known)
    room, like = roomy(longest), known[0]
    if any(part.is_logged for part in known):
        return joined_logs(made, sizes, room)
    tables: list[Tensor] = []
    lengths: list[np.ndarray] = []
    for part, size in zip(made, sizes, strict=True):
        if part is None:
            tables.append(like.table.new_zeros(size, room, *like.table.shape[2:]))
            lengths.append(np.zeros(size, dtype=np.int64))
            continue
        table = part.table
        tables.append(table[:, :room] if table.shape[1] >= room else wider(table, room))
        lengths.append(part.lengths)
    bounds = join_bounds(part.bounds for part in known) if like.tag == "int" else None
    return Lists(like.tag, moves.joined(tables), np.concatenate(lengths), bounds)


def joined_logs(made: Sequence[Lists | None], sizes: Sequence[int], room: int) -> Lists:
    """The same where gradients flow into some; no copy of elements."""
    tables: list[Any] = [part and part.log() for part in made]
    like = next(table for table in tables if table)
    parts = [
        table or Logged(like.log, np.zeros((size, room), np.int64))
        for table, size in zip(tables, sizes, strict=True)
    ]
    lengths = [
        part.lengths if part else np.zeros(size, dtype=np.int64)
        for part, size in zip(made, sizes, strict=True)
    ]
    return Lists("tensor", logs.joined(parts, room), np.concatenate(lengths))


def repeated(cells: Sequence[Cell], counts: np.ndarray, device: torch.device) -> Lists:
    """``[a, b] * n`` with a thread's own ``n``."""
    k, period = len(counts), len(cells)
    counts = counts.clip(min=0)
    times = int(counts.max()) if k else 0
    first = of_cells(cells, k, device)
    lengths, room = counts * period, max(1, times) * period
    if isinstance(first.table, Logged):
        slots = np.tile(first.table.slots[:, :period], (1, max(1, times)))
        return Lists(first.tag, Logged(first.table.log, slots), lengths)
    once = first.table[:, :period]
    table = once.repeat(1, room // period, *[1] * (once.dim() - 2))
    return Lists(first.tag, table, lengths, first.bounds)


def counted(start: Column, counts: np.ndarray) -> Lists:
    """``list(range(a, b))``: of each thread so many ints from its ``start`` on."""
    counts = counts.clip(min=0)
    longest = int(counts.max()) if len(counts) else 0
    first = start.data
    table = first[:, None] + torch.arange(max(1, longest), device=first.device)
    bounds: Bounds | None = None
    if start.bounds is not None:
        bounds = (start.bounds[0], start.bounds[1] + longest)
    return Lists("int", table, counts, bounds)
