"""Threads that leave rounds of a loop a few at a time: picked at once, and one group in the end.

In: what variables hold after a round, and which rows leave. Out: a group of all of them. Only what
is plain: tensors and numbers on the host whose rows are nothing but copied, each by itself and of
one kind from round to round, and things that all threads share. No two names mean one thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from autobatch.ir.program import Label
from autobatch.presence.wide_rows import rows_at
from autobatch.values.cells import (
    Bounds,
    Cell,
    Column,
    Uniform,
    is_mutable,
    join_bounds,
    moves_at_once,
)
from autobatch.values.heap.likeness import leaf_key
from autobatch.values.strides import is_watched
from autobatch.vm.groups import Group
from autobatch.vm.laps import Lap


@dataclass(slots=True, eq=False, repr=False)
class Picked:
    """Rows of a variable, as picked round by round; ``key`` tells columns of its kind."""

    first: Column
    key: object
    tables: list[Tensor] = field(default_factory=list)
    bounds: list[Bounds | None] = field(default_factory=list)

    def column(self) -> Column:
        known = join_bounds(self.bounds) if self.first.tag == "int" else None
        return Column(torch.cat(self.tables), self.first.tag, known)


@dataclass(slots=True, eq=False, repr=False)
class Leavers:
    """Those that ``lap`` has sent to block ``out``, where ``names`` are alive: they are ``rows``.

    ``held`` are variables' rows, or cells of what all threads share.
    """

    lap: Lap
    out: Label
    names: list[str]
    held: list[Picked | Cell]
    rows: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def of(cls, lap: Lap, out: Label, cells: Mapping[str, Cell]) -> Leavers | None:
        """None where variables are not so plain."""
        if is_watched():
            return None
        held: list[Picked | Cell] = []
        for cell in cells.values():
            value = cell.value
            if type(value) is Column and is_plain(value):
                held.append(Picked(value, leaf_key(value)))
            elif type(value) is Uniform and not is_mutable(value):
                held.append(cell)
            else:
                return None
        return cls(lap, out, list(cells), held)

    def take(self, held: Mapping[str, Cell], rows: np.ndarray, gone: np.ndarray) -> bool:
        """Pick what leaves at the places ``gone`` of a group with such ``rows``; whether it did."""
        if list(held) != self.names or len(set(map(id, held.values()))) < len(held):
            return False
        cells = list(held.values())
        for each, cell in zip(self.held, cells, strict=True):
            value = cell.value
            if type(each) is not Picked:
                if cell is not each:
                    return False
            elif type(value) is not Column or not is_plain(value) or leaf_key(value) != each.key:
                return False
        index = torch.from_numpy(gone)
        for each, cell in zip(self.held, cells, strict=True):
            if type(each) is Picked:
                value = cell.value
                each.tables.append(rows_at(value.table, index))  # type: ignore[union-attr]
                each.bounds.append(value.bounds)  # type: ignore[union-attr]
        self.rows.append(rows[gone])
        return True

    def group(self) -> Group:
        """All of them."""
        cells = [each if type(each) is Cell else Cell(each.column()) for each in self.held]  # type: ignore[union-attr]
        return Group(np.concatenate(self.rows), dict(zip(self.names, cells, strict=True)))


def is_plain(column: Column) -> bool:
    return column.is_whole and column.table.is_cpu and moves_at_once(column)
