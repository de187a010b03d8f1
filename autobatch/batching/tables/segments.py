"""The rows of packed values as segments: what each thread's rows come to, all threads at once.

Floats are added up in float64, so that a long sequence loses nothing against torch's own order. No
thread's row meets another one's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from autobatch.batching.tables.padding import padded
from autobatch.presence import kinds, moves
from autobatch.values.packs import Order


@dataclass(frozen=True, slots=True)
class Segments:
    """Rows ``[N, *E]``, so many for each thread; or all elements of so many rows, one by one.

    ``size`` is how many elements a row of the ``order`` has that stand for themselves, else 1.
    """

    rows: Tensor
    order: Order
    size: int = 1

    @classmethod
    def of(cls, table: Tensor, order: Order, whole: bool) -> Segments:
        """The rows of a table, or all that they hold, one element after another."""
        if not whole or table.dim() == 1:
            return cls(table, order)
        size = table.shape[1:].numel()
        return cls(moves.noted(table.flatten(), kinds.Spread(size)), order, size)

    @property
    def owners(self) -> Tensor:
        """Whose each element is, ``[N]``."""
        owners = self.order.owners
        return owners if self.size == 1 else owners.repeat_interleave(self.size)

    @property
    def counts(self) -> Tensor:
        return self.order.lengths * self.size

    @property
    def begins(self) -> Tensor:
        return self.order.begins * self.size

    @property
    def sizes(self) -> list[int]:
        return [n * self.size for n in self.order.sizes]

    @property
    def k(self) -> int:
        return len(self.order.sizes)

    def by_row(self, elements: Tensor) -> Tensor:
        """Elements ``[N]`` as the rows ``[n, size]`` that have them."""
        rows = elements.reshape(self.order.total, self.size)
        return moves.noted(rows, kinds.Grouped(self.size))

    def index(self) -> Tensor:
        """Whose each element is, in the shape of the rows."""
        return self.beside(self.owners).expand_as(self.rows)

    def beside(self, numbers: Tensor) -> Tensor:
        """A number of each row, or thread, as it meets rows."""
        return numbers.reshape(-1, *[1] * (self.rows.dim() - 1))

    def spread(self, of_thread: Tensor) -> Tensor:
        """What each thread has, for each of its rows."""
        return moves.taken(of_thread, self.owners)

    def sum(self, rows: Tensor) -> Tensor:
        wide = rows.to(torch.float64 if rows.dtype.is_floating_point else torch.int64)
        if self.size != 1:
            wide = self.by_row(wide).sum(1)
        none, owners = wide.new_zeros(self.k, *wide.shape[1:]), self.order.owners
        return moves.added(none.index_add(0, owners, wide), owners, self.k)

    def extreme(self, largest: bool) -> Tensor:
        """The largest or smallest row of each thread, NaN if it has one; arbitrary if it has none.

        Rows that are as large share the gradient. It begins with NaN, which equals none of them.
        """
        floats = self.rows.dtype.is_floating_point
        first = self.rows.new_full((self.k, *self.rows.shape[1:]), torch.nan if floats else 0)
        how = "amax" if largest else "amin"
        found = first.scatter_reduce(0, self.index(), self.rows, how, include_self=False)
        return moves.added(found, self.owners, self.k)

    def first(self, found: Tensor) -> Tensor:
        """Which of its rows is the first that is what a thread has found, ``[k, *E]``."""
        wanted = self.spread(found)
        hit = (self.rows == wanted) | ((self.rows != self.rows) & (wanted != wanted))
        places = torch.arange(len(self.rows), device=self.rows.device)
        places = self.beside(places - self.begins[self.owners])
        behind = torch.where(hit, places, max(self.sizes, default=0))
        start = behind.new_full(found.shape, max([1, *self.sizes]) - 1)
        return start.scatter_reduce(0, self.index(), behind, "amin")


def added(part: Segments) -> Tensor:
    return part.sum(part.rows)


def product(part: Segments) -> Tensor:
    """Padding is one for all: it changes no product."""
    rows = part.rows
    if rows.dtype.is_floating_point and rows.dtype.itemsize < 4:
        rows = rows.float()
    if part.size != 1:
        rows = part.by_row(rows).prod(1)
    return padded(rows, part.order, 1).prod(1)


def logsumexp(part: Segments) -> Tensor:
    with torch.no_grad():
        top = part.extreme(True)
        top = torch.where(top.isinf() | (part.beside(part.counts) == 0), 0, top)
    return part.sum((part.rows - part.spread(top)).exp()).log() + top


def mean(part: Segments) -> Tensor:
    return part.sum(part.rows) / part.beside(part.counts)


def var(part: Segments, correction: float = 1) -> Tensor:
    wide = part.rows.double()
    centre = part.sum(wide) / part.beside(part.counts).clamp(min=1)
    squares = part.sum((wide - part.spread(centre)).square())
    return squares / part.beside(part.counts - correction).clamp(min=0)


def std(part: Segments, correction: float = 1) -> Tensor:
    return root(var(part, correction))


def norm(part: Segments) -> Tensor:
    squares = part.sum(part.rows.double().square())
    return root(squares, squares * 0.0)


def root(squares: Tensor, zero: Tensor | float = 0.0) -> Tensor:
    """Its square root; no gradient flows into a zero, as none does from torch's own norms.

    ``zero`` has what does: of a norm zero times the gradient that comes, which may be infinite.
    """
    is_zero = squares == 0
    return torch.where(is_zero, zero, torch.where(is_zero, 1.0, squares).sqrt())


def has_any(part: Segments) -> Tensor:
    return part.sum(part.rows != 0) > 0


def has_all(part: Segments) -> Tensor:
    return part.sum(part.rows == 0) == 0


def extreme(part: Segments, largest: bool) -> Tensor:
    return part.extreme(largest)


def place(part: Segments, largest: bool) -> Tensor:
    with torch.no_grad():
        return part.first(part.extreme(largest))


def picked(part: Segments, largest: bool) -> tuple[Tensor, Tensor]:
    """``x.max(0)``: the first of the largest, to which alone the gradient flows, and its place."""
    at, rows = place(part, largest), part.rows
    if not rows.shape[0]:
        return rows.new_zeros(at.shape), at
    where = (at + part.beside(part.begins)).clamp(max=rows.shape[0] - 1)
    return moves.noted(rows.gather(0, where), kinds.Taken(where, rows.shape[0])), at
