"""Lists of different lengths, one for each thread, in one table.

In: the elements that all threads' lists have in common: numbers of one tag, or tensors of one
dtype, event shape and device. ``table`` is ``[k, capacity, *E]``, ``lengths`` (``[k]``, on the
host) says how many of a row's elements are the list's. The table has room to spare, and twice as
much whenever it has none left: an append costs what it appends, and a write to one element writes
that element. What lies beyond a list's end is arbitrary, for ints within ``bounds``.

    at(2)        table[:, 2]                               the same place of every list
    at(where)    table[i, where[i]] for each thread i      a place of each thread's own

Invariant: nobody else holds the table, unless it is ``lent``: then a write copies it first. The
table of tensors that gradients flow into is no tensor but ``Logged``, which copies none of them; of
numbers under a function transform a write makes a new one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from autobatch.compat import on_device, within_level
from autobatch.presence import moves
from autobatch.presence.guards import guarded_rows
from autobatch.values import logs
from autobatch.values.cells import Bounds, Column, join_bounds
from autobatch.values.logs import Logged, Place

ROOM = 4
"""Elements for which a table has room at first."""


@final
class Lists:
    """One list for each thread; see above. ``least`` and ``most`` are among the lengths."""

    __slots__ = ("bounds", "least", "lengths", "lent", "most", "table", "tag")

    def __init__(
        self,
        tag: str,
        table: Tensor | Logged,
        lengths: np.ndarray,
        bounds: Bounds | None = None,
    ) -> None:
        self.tag = tag
        self.table: Any = table
        self.bounds = bounds
        self.lent = False
        self.measured(lengths)

    def measured(self, lengths: np.ndarray) -> None:
        self.lengths = lengths
        self.least = int(lengths.min()) if len(lengths) else 0
        self.most = int(lengths.max()) if len(lengths) else 0

    @property
    def kind(self) -> Hashable:
        """Equal for lists that can meet."""
        if self.tag != "tensor":
            return self.tag
        table = self.table
        return table.kind if type(table) is Logged else (table.dtype, table.shape[2:], table.device)

    @property
    def is_logged(self) -> bool:
        return type(self.table) is Logged

    @property
    def sizes(self) -> Tensor:
        """The lengths beside the table, int64 ``[k]``."""
        return on_device(self.lengths, self.table.device)

    def element(self, rows: Tensor) -> Column:
        """One element of each list, as what the program sees."""
        bounds = self.bounds
        if bounds is not None and not self.least:  # the place of an empty list holds a zero
            bounds = join_bounds((bounds, (0, 0)))
        return Column(rows, self.tag, bounds)

    # Reading

    def at(self, where: Place) -> Tensor:
        """The elements at a place that every list has, ``[k, *E]``; a copy."""
        if type(self.table) is Logged:
            return self.table.at(where)
        if type(where) is int:
            return self.table.select(1, where).clone()  # type: ignore[no-any-return]
        return moves.taken(moves.flattened(self.table), self.flat(where))

    def flat(self, where: Tensor | int) -> Tensor:
        k, capacity = self.table.shape[:2]
        return torch.arange(0, k * capacity, capacity, device=self.table.device) + where

    def opened(self) -> list[list[Any]]:
        """Each thread's list, as Python has it."""
        sizes = self.lengths.tolist()
        if self.tag != "tensor":
            rows = self.table[:, : self.most].tolist()
            return [row[:size] for row, size in zip(rows, sizes, strict=True)]
        if type(self.table) is Logged:
            parts = iter(moves.unbound(guarded_rows(self.table.elements(self.lengths))))
            return [[next(parts).clone() for _ in range(size)] for size in sizes]
        return [
            [part.clone() for part in row[:size].unbind(0)]
            for row, size in zip(self.table.unbind(0), sizes, strict=True)
        ]

    def copy(self) -> Lists:
        """The same lists; the table is copied when either is written."""
        self.lent = True
        made = Lists(self.tag, self.table, self.lengths, self.bounds)
        made.lent = True
        return made

    def select(self, rows: np.ndarray) -> Lists:
        """The lists of some threads."""
        lengths = self.lengths[rows]
        table = self.table
        room = roomy(int(lengths.max()) if len(lengths) else 0)
        if type(table) is Logged:
            return Lists(self.tag, table.select(rows, room), lengths)
        index = on_device(rows, table.device)
        if room < table.shape[1]:
            table = table[:, :room]
        return Lists(self.tag, moves.taken(table, index), lengths, self.bounds)

    def cut(self, start: Any, lengths: np.ndarray) -> Lists:
        """``xs[a:b]``: of each list so many elements from ``start`` on."""
        longest = int(lengths.max()) if len(lengths) else 0
        room = max(1, longest)
        if type(self.table) is Logged:
            return Lists(self.tag, self.table.cut(start, room), lengths)
        if type(start) is int:
            table = wider(self.table[:, start : start + room], room)
            return Lists(self.tag, table, lengths, self.bounds)
        k, capacity = self.table.shape[:2]
        places = start[:, None] + torch.arange(room, device=self.table.device)
        places = places.clamp(max=capacity - 1) + torch.arange(
            0, k * capacity, capacity, device=self.table.device
        ).reshape(k, 1)
        table = moves.taken(moves.flattened(self.table), places.flatten())
        return Lists(self.tag, table.reshape(k, room, *table.shape[1:]), lengths, self.bounds)

    def turned(self) -> Lists:
        """``xs[::-1]``."""
        places = np.arange(max(1, self.most))
        index = (self.lengths[:, None] - 1 - places).clip(min=0)
        if type(self.table) is Logged:
            return Lists(self.tag, self.table.taken(index), self.lengths)
        flat = on_device(index, self.table.device) + self.flat(0)[:, None]
        table = moves.taken(moves.flattened(self.table), flat.flatten())
        return Lists(
            self.tag, table.reshape(*index.shape, *table.shape[1:]), self.lengths, self.bounds
        )

    # Writing

    def hold(self, other: Lists) -> None:
        """Be the lists of another one of this kind, whose table goes to this one."""
        self.table, self.lent = other.table, other.lent
        self.measured(other.lengths)

    def put(self, where: Place, item: Column) -> None:
        """Write one element of each list."""
        self.write(where, item.data)
        self.widen(item)

    def push(self, item: Column) -> None:
        """Append one element to each list."""
        if self.most == self.table.shape[1]:
            self.grow()
        self.write(self.most if self.least == self.most else self.sizes, item.data)
        self.widen(item)
        self.lengths = self.lengths + 1
        self.least += 1
        self.most += 1

    def widen(self, item: Column) -> None:
        if self.tag == "int":
            self.bounds = join_bounds((self.bounds, item.bounds))

    def pop(self) -> Tensor:
        """Take the last element of each list; none is empty."""
        last = self.most - 1 if self.least == self.most else self.sizes - 1
        taken = self.at(last)
        self.lengths = self.lengths - 1
        self.least -= 1
        self.most -= 1
        return taken

    def write(self, where: Place, rows: Tensor) -> None:
        table: Any = self.table
        if type(table) is not Logged and (rows.requires_grad or within_level()):
            table = self.log()
        if type(table) is Logged:
            self.table = table.settled(self.lengths).write(where, rows)
            return
        plain = type(where) is int
        if within_level():
            if plain:
                self.table = table.select_scatter(rows, 1, where)
            else:
                self.table = put(table, self.flat(where), rows)
            return
        if self.lent or (table.is_inference() and not torch.is_inference_mode_enabled()):
            table = self.table = table.clone()
            self.lent = False
        if plain:
            table.select(1, where).copy_(rows)
        else:
            table.flatten(0, 1).index_copy_(0, self.flat(where), rows)

    def log(self) -> Tensor | Logged:
        """The table of tensors as one over a log from now on."""
        if self.tag == "tensor" and type(self.table) is not Logged:
            self.table = Logged.over(self.table)
        return self.table  # type: ignore[no-any-return]

    def plus(self, other: Lists) -> Lists:
        """The elements of each list and then those of another one of its kind; one copy."""
        k, most = len(self.lengths), int((self.lengths + other.lengths).max(initial=0))
        room = max(roomy(most), self.table.shape[1], other.table.shape[1])
        if self.is_logged or other.is_logged:
            return self.plus_logged(other, room)
        table = wider(self.table, room)
        row = np.repeat(np.arange(k), other.lengths)
        place = np.arange(len(row)) - np.repeat(
            np.cumsum(other.lengths) - other.lengths, other.lengths
        )
        source, target = row * other.table.shape[1] + place, row * room + self.lengths[row] + place
        index, onto = (on_device(at, table.device) for at in (source, target))
        rows = moves.taken(moves.flattened(other.table), index)
        bounds = join_bounds((self.bounds, other.bounds)) if self.tag == "int" else None
        return Lists(self.tag, put(table, onto, rows), self.lengths + other.lengths, bounds)

    def plus_logged(self, other: Lists, room: int) -> Lists:
        """The same over a log; no copy of elements."""
        k, lengths = len(self.lengths), self.lengths + other.lengths
        both = logs.joined([self.log(), other.log()], room)  # type: ignore[list-item]
        slots, more = both.slots[:k], both.slots[k:]
        places = np.arange(room) - self.lengths[:, None]
        later = np.take_along_axis(more, places.clip(min=0, max=room - 1), 1)
        slots = np.where(places >= 0, later, slots)
        return Lists(self.tag, Logged(both.log, slots), lengths)

    def grow(self) -> None:
        """Make room for as many elements again."""
        self.table = wider(self.table, roomy(self.most))
        self.lent = False


def put(table: Tensor, places: Tensor, rows: Tensor) -> Tensor:
    """A table ``[k, capacity, *E]`` with other elements at some places, counted through it."""
    flat = moves.flattened(table)
    made = moves.added(flat.index_copy(0, places, rows), places, len(flat))
    return moves.grouped(made, table.shape[1])


def wider(table: Any, room: int) -> Any:
    """The table with room for so many elements; a copy, but of one over a log."""
    if type(table) is Logged:
        return table.wider(room)
    return functional.pad(table, (0, 0) * (table.dim() - 2) + (0, room - table.shape[1]))


def roomy(longest: int) -> int:
    """The capacity of a table whose longest list is so long."""
    return max(ROOM, 2 * longest)
