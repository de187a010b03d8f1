"""Speculation: threads that have left a loop are computed along for a while, instead of a split.

In a loop of cheap operations a split costs more than the round does: it moves all rows of all
variables, for the few threads that leave. Where the operations of a round are safe on any row
(``passes.if_conversion.are_safe``), rows of threads that have left may stay: what they leave with
is put aside when they do, and what becomes of them then nobody sees. They are dropped once what
they have cost comes to what dropping them costs, so that the two together are never more than
twice what the better of them would have been at every split. Where a gradient is wanted there is
none of this: that of a row which nobody sees may be nan.

The unit of costs is one element that one cheap kernel computes (``ir.costs.ELEMENT``). The estimate
goes by shapes alone, so that counts do not depend on the machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from autobatch.compat import within_level
from autobatch.ir.costs import ELEMENT, PARTING
from autobatch.values.cells import Column, Uniform, is_mutable
from autobatch.vm.groups import Group

SPLIT = round(PARTING / ELEMENT)
"""What a split costs however small."""
ROW, MOVED = 4, 2
"""What it costs for each row, and for each element that moves."""


@dataclass(slots=True, eq=False, repr=False)
class Riders:
    """``stays`` says which rows of a group are of threads still in the loop, ``active`` of them.

    Each other row costs ``each`` a round, ``spent`` is what they have cost since the last split,
    and the next one costs ``split``.
    """

    stays: np.ndarray
    active: int
    each: float
    split: float
    spent: float = field(default=0.0)

    @classmethod
    def of(cls, group: Group, price: int) -> Riders | None:
        """For a group in a loop whose round costs so many kernels; None if none may ride."""
        if within_level():
            return None
        total, largest = 0, 1
        for cell in group.env.values():
            value = cell.value
            if type(value) is Uniform and not is_mutable(value):
                continue
            if type(value) is not Column or not value.is_whole or value.table.requires_grad:
                return None
            size = value.table.shape[1:].numel()
            total, largest = total + size, max(largest, size)
        split = SPLIT + group.k * (ROW + MOVED * total)
        return cls(np.ones(group.k, dtype=bool), group.k, price * largest, split)

    def leave(self, stays: np.ndarray) -> np.ndarray | None:
        """Say who stays in the loop; the rows of the threads that have just left it, if any has."""
        stays = stays & self.stays
        active = int(np.count_nonzero(stays))
        if active == self.active:
            return None
        gone: np.ndarray = (self.stays ^ stays).nonzero()[0]
        self.stays, self.active = stays, active
        return gone

    @property
    def rows(self) -> np.ndarray:
        """The rows of threads still in the loop."""
        return np.flatnonzero(self.stays)

    @property
    def rounds(self) -> float:
        """How many rounds those who have left may ride yet."""
        cost = self.each * (len(self.stays) - self.active)
        return max(0, math.ceil((self.split - self.spent) / cost) - 1) if cost else math.inf

    def may_ride(self, laps: int) -> bool:
        """Whether those who have left may ride so many more rounds, which is charged to them."""
        self.spent += laps * self.each * (len(self.stays) - self.active)
        return self.spent < self.split
