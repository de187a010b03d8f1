"""Speculation: threads that have left a loop are computed along for a while, instead of a split.

Where few threads leave at a time, a split costs more than to compute them along: it moves all rows
of all variables. Where the operations of a round are safe on any row (by the program,
``passes.if_conversion.are_safe``, or by what has been recorded of it, ``batching.trace.riding``),
rows of threads that have left may stay: what they leave with
is put aside when they do, and what becomes of them then nobody sees. They are dropped once what
they have cost comes to what dropping them costs, so that the two together are never more than
twice what the better of them would have been at every split: heavy rounds soon, cheap ones late.
Where a gradient is wanted there is
none of this: that of a row which nobody sees may be nan.

The unit of costs is one element that one cheap kernel computes (``ir.costs.ELEMENT``). The estimate
goes by shapes alone, so that counts do not depend on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from autobatch.compat import within_level
from autobatch.ir.costs import ELEMENT, PARTING
from autobatch.values.cells import RANGE_ITERATOR, Cell, Column, Container, Uniform, is_mutable
from autobatch.vm.groups import Group

SPLIT = round(6 * PARTING / ELEMENT)
"""What it costs to drop rows, however few, and to begin rounds anew: those who leave have been
picked, one by one. Of Mandelbrot, Collatz, the fixed point and the solver at 128 and 1,024 threads,
a third of it takes 3 to 20% more, two thirds or twice as much within 2%.
"""
ROW, COLUMN, MOVED = 4, 1.5, 0.5
"""What it costs for each row, for each column of that, and for each element that moves."""


@dataclass(slots=True, eq=False, repr=False)
class Riders:
    """``stays`` says which rows of a group are of threads still in the loop, ``active`` of them.

    ``spent`` is what the others have cost since the last split, and the next one costs ``split``.
    A row has up to ``largest`` elements, and moves as what costs ``moved``. ``at_once``: all have
    left together, so nobody rode.
    """

    stays: np.ndarray
    active: int
    largest: int
    moved: float
    spent: float = field(default=0.0)
    at_once: bool = False

    @classmethod
    def of(cls, group: Group) -> Riders | None:
        """For a group in a loop; None if none may ride."""
        if within_level():
            return None
        sizes: list[int] = []
        for cell in moving(group.env.values()):
            value = cell.value
            if type(value) is Uniform and not is_mutable(value):
                continue
            if type(value) is not Column or not value.is_whole or value.table.requires_grad:
                return None
            sizes.append(value.table.shape[1:].numel())
        moved = ROW + COLUMN * len(sizes) + MOVED * sum(sizes)
        return cls(np.ones(group.k, dtype=bool), group.k, max(sizes, default=1), moved)

    @property
    def split(self) -> float:
        return SPLIT + len(self.stays) * self.moved

    def again(self, k: int) -> Riders:
        """For what is left of the group, whose rows are as they were."""
        return Riders(np.ones(k, dtype=bool), k, self.largest, self.moved)

    def leave(self, seen: np.ndarray, ahead: bool) -> np.ndarray | None:
        """Those stay in the loop for which it is ``ahead``; the rows of those that have just left
        it, if any has.
        """
        left = np.greater(self.stays, seen) if ahead else np.logical_and(self.stays, seen)
        gone: np.ndarray = left.nonzero()[0]
        if not len(gone):
            return None
        self.at_once = len(gone) == len(self.stays)
        self.active -= len(gone)
        self.stays[gone] = False
        return gone

    @property
    def rows(self) -> np.ndarray:
        """The rows of threads still in the loop."""
        return np.flatnonzero(self.stays)

    def rounds(self, each: float) -> float:
        """How many rounds those who have left may ride yet, at such a cost for a row."""
        cost = each * (len(self.stays) - self.active)
        return max(0, math.ceil((self.split - self.spent) / cost) - 1) if cost else math.inf

    def may_ride(self, cost: float) -> bool:
        """Whether those who have left may ride on, which costs so much for each of them."""
        self.spent += cost * (len(self.stays) - self.active)
        return self.spent < self.split


@dataclass(slots=True, eq=False, repr=False)
class Ride:
    """Rounds that go on when threads leave them: they are ``put_aside``, and ride along, but where
    all leave at once.

    ``ahead`` is what a round's condition is for those who stay, a round costs ``each`` for a row.
    ``before`` is the condition that was met last, byte by byte; what rounds make is of ``known``
    kinds once some have been put aside. There may be ``most`` rounds. ``threads``
    is how many have gone round in the rounds ``counted``, of which those ``charged`` are paid for.
    """

    riders: Riders
    each: float
    ahead: bool
    before: bytes
    put_aside: Callable[[np.ndarray, dict[str, Cell], bool], bool]
    most: float
    known: bool = False
    threads: int = 0
    counted: int = 0
    charged: int = 1

    def __call__(self, seen: np.ndarray, now: bytes, done: int, made: dict[str, Cell]) -> float:
        """What each thread's condition is after so many rounds, and the variables that these have
        made: how many rounds there may be.
        """
        if seen.dtype != np.bool_ or seen.ndim != 1:
            return done
        riders = self.riders
        self.count(done)
        self.before = now
        gone = riders.leave(seen, self.ahead)
        if gone is not None:
            if not riders.at_once:
                self.known = self.put_aside(gone, made, self.known)
            if not riders.active:
                return done
        return self.may_go(done)

    def may_go(self, done: int) -> float:
        """How many rounds there may be, once so many are paid for."""
        return min(self.most, done + self.riders.rounds(self.each))

    def count(self, done: int) -> None:
        """So many rounds have run."""
        riders = self.riders
        self.threads += (done - self.counted) * riders.active
        riders.spent += (done - self.charged) * self.each * (len(riders.stays) - riders.active)
        self.counted = self.charged = done


def moving(cells: Iterable[Cell]) -> Iterator[Cell]:
    """What moves with rows: of an iterator over a range, where it stands and stops."""
    for cell in cells:
        value = cell.value
        if type(value) is Container and value.type is RANGE_ITERATOR:
            yield from value.cells
        else:
            yield cell
