"""Inner rows: the rows of one call that runs for several rows of each thread's own.

``vmap``, ``pfor`` and ``map_fn`` inside a program run their function once, for all inner rows of
all threads, those of one thread side by side. In: how many each thread of a group has, one number
for all or each its own. Out: whose each row is, what it draws by, and whose failure its is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.context import Context, RowsFail
from autobatch.compat import on_device
from autobatch.random.paths import Ledger, Paths, split
from autobatch.values.cells import Cell, Column


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class InnerRows:
    """``counts[i]`` rows of thread ``i``; ``common`` is their number where all share it."""

    counts: np.ndarray
    common: int | None
    device: torch.device

    @classmethod
    def of(cls, common: int, context: Context) -> InnerRows:
        return cls(np.full(context.k, common), common, context.device)

    @property
    def owners(self) -> np.ndarray:
        """The thread's row of each inner row."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def numbers(self) -> np.ndarray:
        """The index of each inner row within its thread."""
        starts = np.cumsum(self.counts) - self.counts
        numbers: np.ndarray = np.arange(self.counts.sum()) - np.repeat(starts, self.counts)
        return numbers

    @property
    def longest(self) -> int:
        return int(self.counts.max(initial=0))

    def taken(self, kept: np.ndarray) -> InnerRows:
        return InnerRows(self.counts[kept], self.common, self.device)

    def on_device(self, numbers: np.ndarray) -> Tensor:
        return on_device(numbers, self.device)

    def index(self) -> Cell:
        """Each row's index, an int."""
        bounds = (0, max(self.longest - 1, 0))
        return Cell(Column(self.on_device(self.numbers), "int", bounds))

    def within(self, context: Context, draws: str | None) -> Context:
        """Where the function runs for the inner rows, whose ``randomness`` is ``draws``.

        Under a seed they draw by keys of their own, made of their threads', or by that of the first
        where all draw the same. Their calls open no paths: for one example Python itself makes them
        (``seeding.row_by_row``).
        """
        part = context.restricted(self.owners.tolist())
        if context.paths is not None:
            part.paths = self.paths(context.paths, draws == "same")
        return part

    def paths(self, paths: Paths, alike: bool) -> Paths:
        keys, numbers = split(*paths.counted()), self.numbers
        inner = split(keys[self.owners], np.zeros_like(numbers) if alike else numbers)
        return Paths.over(Ledger.of(inner)).flattened()

    def outer(
        self,
        context: Context,
        failure: RowsFail,
        regrouped: Callable[[Context, Cell, InnerRows], Cell],
    ) -> RowsFail:
        """A failure of an inner row as one of its thread; ``regrouped`` is its results by thread.

        It is given the rows that are left and where they ran.
        """
        row = int(self.owners[failure.row])
        if failure.partial is None or failure.kept is None:
            return RowsFail(row, failure.error, span=failure.span)
        kept = np.unique(self.owners[failure.kept])
        less = self.taken(kept)
        part = context.restricted(kept[less.owners].tolist())
        partial = regrouped(part, failure.partial, less)
        return RowsFail(row, failure.error, partial, failure.span, kept)
