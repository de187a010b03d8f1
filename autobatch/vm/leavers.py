"""Threads that leave rounds of a loop a few at a time: picked at once, and one group in the end.

In: what variables hold after a round, and which rows leave. Out: a group of all of them. Only what
is plain: tensors and numbers on the host whose rows are nothing but copied, each by itself and of
one kind from round to round, numbers that all threads have in a round (how many it is, say), and
what is the same thing in all rounds. No two names mean one thing.
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
    fits_column,
    is_mutable,
    join_bounds,
    moves_at_once,
)
from autobatch.values.heap.likeness import leaf_key
from autobatch.values.heap.merging import merged
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

    def fits(self, cell: Cell | None) -> bool:
        value = None if cell is None else cell.value
        return type(value) is Column and is_plain(value) and leaf_key(value) == self.key

    def column(self) -> Column:
        tag = self.now.tag
        bounds = join_bounds(self.bounds) if tag == "int" else None
        return Column(torch.cat(self.tables), tag, bounds)


@dataclass(slots=True, eq=False, repr=False)
class Told:
    """A number of a variable in each round, of those who leave then; it is ``now`` the last one."""

    name: str
    now: Uniform
    values: list[Uniform] = field(default_factory=list)

    def takes(self, cell: Cell | None) -> bool:
        """Whether what a variable is now is a number of the same type."""
        value = self.now if cell is None else cell.value
        if type(value) is not Uniform or type(value.obj) is not type(self.now.obj):
            return False
        self.now = value
        return fits_column(value.obj)


@dataclass(slots=True, eq=False, repr=False)
class Leavers:
    """Those that ``lap`` has sent to block ``out``, with rows of the variables ``own``, the
    ``numbers`` of rounds, and what all threads share. They are those at the places ``gone`` of
    ``rows``, each time.
    """

    lap: Lap
    out: Label
    own: list[Picked] = field(default_factory=list)
    numbers: list[Told] = field(default_factory=list)
    shared: dict[str, Cell] = field(default_factory=dict)
    rows: list[np.ndarray] = field(default_factory=list)
    gone: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def of(
        cls, lap: Lap, out: Label, held: Mapping[str, Cell], made: Mapping[str, Cell]
    ) -> Leavers | None:
        """For variables, some of which rounds have made; None where they are not so plain."""
        if is_watched() or len(set(map(id, held.values()))) < len(held):
            return None
        found = cls(lap, out)
        for name, cell in held.items():
            value = cell.value
            if type(value) is Column and is_plain(value):
                found.own.append(Picked(name, value, leaf_key(value)))
            elif type(value) is not Uniform or is_mutable(value):
                return None
            elif name in made and fits_column(value.obj):
                found.numbers.append(Told(name, value))
            else:
                found.shared[name] = cell
        return found

    def fits(self, held: Mapping[str, Cell]) -> bool:
        """Whether columns are of the kinds that they have been, and there are no others."""
        if len(set(map(id, held.values()))) < len(held):
            return False
        if len(held) != len(self.own) + len(self.numbers) + len(self.shared):
            return False
        return all(each.fits(held.get(each.name)) for each in self.own)

    def take(self, made: Mapping[str, Cell], rows: np.ndarray, gone: np.ndarray) -> bool:
        """Pick who leaves at the places ``gone`` of a group with such ``rows``; whether it did.

        ``made`` are variables that may have changed; columns have not in kind.
        """
        for name, cell in self.shared.items():
            if made.get(name, cell) is not cell:
                return False
        for number in self.numbers:
            if not number.takes(made.get(number.name)):
                return False
        index = torch.from_numpy(gone)
        for each in self.own:
            if each.name in made:
                each.now = made[each.name].value  # type: ignore[assignment]
            column = each.now
            each.tables.append(rows_at(column.table, index))
            each.bounds.append(column.bounds)
        for number in self.numbers:
            number.values.append(number.now)
        self.rows.append(rows)
        self.gone.append(gone)
        return True

    def group(self, device: torch.device) -> Group:
        """All of them; ``device`` is where numbers live."""
        env = self.shared | {each.name: Cell(each.column()) for each in self.own}
        sizes = list(map(len, self.gone))
        for number in self.numbers:
            env[number.name] = Cell(merged(number.values, sizes, device))
        rows = [rows[gone] for rows, gone in zip(self.rows, self.gone, strict=True)]
        return Group(np.concatenate(rows), env)


def is_plain(column: Column) -> bool:
    return column.is_whole and column.table.is_cpu and moves_at_once(column)
