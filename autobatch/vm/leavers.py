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
    Value,
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
class Told:
    """A number of a variable in each round, of those who leave then; it is ``now`` the last one."""

    name: str
    now: Uniform
    values: list[Uniform] = field(default_factory=list)

    def fits(self, value: Value) -> bool:
        same = type(value) is Uniform and type(value.obj) is type(self.now.obj)
        return same and fits_column(value.obj)  # type: ignore[union-attr]


@dataclass(slots=True, eq=False, repr=False)
class Leavers:
    """Those that ``lap`` has sent to block ``out``: they are ``rows``, with rows of the variables
    ``own``, the ``numbers`` of rounds, and what all threads share.
    """

    lap: Lap
    out: Label
    own: list[Picked] = field(default_factory=list)
    numbers: list[Told] = field(default_factory=list)
    shared: dict[str, Cell] = field(default_factory=dict)
    rows: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def of(
        cls, lap: Lap, out: Label, held: Mapping[str, Cell], made: Mapping[str, Cell]
    ) -> Leavers | None:
        """For variables, of which rounds make some; None where they are not so plain."""
        if is_watched():
            return None
        found = cls(lap, out)
        for name, cell in held.items():
            value = cell.value
            if type(value) is Column and is_plain(value):
                found.own.append(Picked(name, value, leaf_key(value)))
            elif type(value) is not Uniform or is_mutable(value):
                return None
            elif name not in made:
                found.shared[name] = cell
            elif fits_column(value.obj):
                found.numbers.append(Told(name, value))
            else:
                return None
        return found

    def fit(self, held: Mapping[str, Cell]) -> bool:
        """Whether variables are of the kinds that they have been; they are the ones now."""
        if len(set(map(id, held.values()))) < len(held):
            return False
        if len(held) != len(self.own) + len(self.numbers) + len(self.shared):
            return False
        if any(held.get(name) is not cell for name, cell in self.shared.items()):
            return False
        for each in self.own:
            cell = held.get(each.name)
            value = None if cell is None else cell.value
            if type(value) is not Column or not is_plain(value) or leaf_key(value) != each.key:
                return False
            each.now = value
        return all(number.name in held for number in self.numbers)

    def take(self, made: Mapping[str, Cell], rows: np.ndarray, gone: np.ndarray) -> bool:
        """Pick who leaves at the places ``gone`` of a group with such ``rows``; whether it did.

        ``made`` are variables that have changed; columns have not in kind.
        """
        for number in self.numbers:
            value = made[number.name].value
            if not number.fits(value):
                return False
            number.now = value  # type: ignore[assignment]
        index = torch.from_numpy(gone)
        for each in self.own:
            cell = made.get(each.name)
            if cell is not None:
                each.now = cell.value  # type: ignore[assignment]
            each.take(index)
        for number in self.numbers:
            number.values.append(number.now)
        self.rows.append(rows[gone])
        return True

    def group(self, device: torch.device) -> Group:
        """All of them; ``device`` is where numbers live."""
        env = self.shared | {each.name: Cell(each.column()) for each in self.own}
        sizes = list(map(len, self.rows))
        for number in self.numbers:
            env[number.name] = Cell(merged(number.values, sizes, device))
        return Group(np.concatenate(self.rows), env)


def is_plain(column: Column) -> bool:
    return column.is_whole and column.table.is_cpu and moves_at_once(column)
