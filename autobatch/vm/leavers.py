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
    """Rows of a variable, as picked round by round of what it is ``now``; ``key`` tells columns of
    its kind.
    """

    name: str
    now: Column
    key: object
    tables: list[Tensor] = field(default_factory=list)
    bounds: list[Bounds | None] = field(default_factory=list)

    def take(self, index: Tensor) -> None:
        column = self.now
        self.tables.append(rows_at(column.table, index))
        self.bounds.append(column.bounds)

    def column(self) -> Column:
        tag = self.now.tag
        return Column(
            torch.cat(self.tables), tag, join_bounds(self.bounds) if tag == "int" else None
        )


@dataclass(slots=True, eq=False, repr=False)
class Leavers:
    """Those that ``lap`` has sent to block ``out``: they are ``rows``, with rows of the variables
    ``own``, and what all threads share.
    """

    lap: Lap
    out: Label
    own: list[Picked]
    shared: dict[str, Cell]
    rows: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def of(cls, lap: Lap, out: Label, held: Mapping[str, Cell]) -> Leavers | None:
        """None where variables are not so plain."""
        if is_watched():
            return None
        made = cls(lap, out, [], {})
        for name, cell in held.items():
            value = cell.value
            if type(value) is Column and is_plain(value):
                made.own.append(Picked(name, value, leaf_key(value)))
            elif type(value) is Uniform and not is_mutable(value):
                made.shared[name] = cell
            else:
                return None
        return made

    def fit(self, held: Mapping[str, Cell]) -> bool:
        """Whether variables are of the kinds that they have been; they are the ones now."""
        if len(set(map(id, held.values()))) < len(held) != len(self.own) + len(self.shared):
            return False
        if any(held.get(name) is not cell for name, cell in self.shared.items()):
            return False
        for each in self.own:
            cell = held.get(each.name)
            value = None if cell is None else cell.value
            if type(value) is not Column or not is_plain(value) or leaf_key(value) != each.key:
                return False
            each.now = value
        return True

    def take(self, made: Mapping[str, Cell], rows: np.ndarray, gone: np.ndarray) -> None:
        """Pick who leaves at the places ``gone`` of a group with such ``rows``.

        ``made`` are variables that have changed, not in kind.
        """
        index = torch.from_numpy(gone)
        for each in self.own:
            cell = made.get(each.name)
            if cell is not None:
                each.now = cell.value  # type: ignore[assignment]
            each.take(index)
        self.rows.append(rows[gone])

    def group(self) -> Group:
        """All of them."""
        env = self.shared | {each.name: Cell(each.column()) for each in self.own}
        return Group(np.concatenate(self.rows), env)


def is_plain(column: Column) -> bool:
    return column.is_whole and column.table.is_cpu and moves_at_once(column)
