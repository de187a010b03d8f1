"""Elements of lists that gradients flow into: each stays where it was made.

A *log* has the elements in the order in which they were written, as ``chunks`` ``[n, *E]``, and is
never written: autograd, a function transform and a table of one's own in place do not go together.
``Logged`` is the table of lists over it: ``slots[i, j]`` (``[k, capacity]``, on the host) is where
in the log element ``j`` of thread ``i`` is. So an append or a write is one more chunk, which nobody
copies; threads part and meet by their slots alone; and an element that is read as it was written is
the same tensor, whose gradient goes straight to it.

Lists that come from one another share a log, whichever of them adds to it. Lists that have parted
with most of a log copy what is theirs to a new one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from autobatch.compat import on_device, on_host
from autobatch.presence import kinds, moves
from autobatch.presence.arranging import Part, arranged

Rows = np.ndarray
Place = int | Tensor
MANY = 8
"""Chunks that one read may gather from, before they are joined."""
IDLE, LEAST = 4, 1024
"""A log is copied when it has so many times the elements that are in use, and so many at least."""


@final
class Log:
    """Elements in the order in which they were written; see above. ``ends[c]`` ends chunk ``c``."""

    __slots__ = ("chunks", "ends")

    def __init__(self, chunks: Sequence[Tensor]) -> None:
        self.chunks = list(chunks)
        self.ends = np.cumsum([chunk.shape[0] for chunk in chunks])

    @property
    def size(self) -> int:
        return int(self.ends[-1])

    def add(self, rows: Tensor) -> Rows:
        """Write elements; where they are."""
        first = self.size
        self.chunks.append(rows)
        self.ends = np.append(self.ends, first + rows.shape[0])
        return np.arange(first, first + rows.shape[0])

    def rows(self, index: Rows) -> Tensor:
        """The elements at some places, ``[n, *E]``."""
        if len(np.unique(self.chunks_at(index))) > MANY:
            self.join()
        return self.gathered(index)

    def gathered(self, index: Rows) -> Tensor:
        """The same, from however many chunks."""
        chunk_of = self.chunks_at(index)
        used = np.unique(chunk_of).tolist()
        if len(used) < 2:
            return self.part(used[0], index) if used else self.chunks[0][:0]
        order = np.argsort(chunk_of, kind="stable")
        if np.array_equal(order, np.arange(len(order))):
            return moves.joined([self.part(chunk, index[chunk_of == chunk]) for chunk in used])
        targets = np.split(order, np.flatnonzero(np.diff(chunk_of[order])) + 1)
        parts = [self.named(chunk, index[at], at) for chunk, at in zip(used, targets, strict=True)]
        return arranged([self.chunks[chunk] for chunk in used], parts)

    def named(self, chunk: int, index: Rows, target: Rows) -> Part:
        """Rows of a chunk, and where they go."""
        rows = self.chunks[chunk]
        source = index - (self.ends[chunk] - rows.shape[0])
        whole = len(source) == rows.shape[0] and np.array_equal(source, np.arange(len(source)))
        device = rows.device
        own = None if whole else on_device(source, device)
        return Part(own, on_device(target, device))

    def chunks_at(self, index: Rows) -> Rows:
        return np.searchsorted(self.ends, index, side="right")

    def part(self, chunk: int, index: Rows) -> Tensor:
        rows = self.chunks[chunk]
        return reordered(rows, index - (self.ends[chunk] - rows.shape[0]))

    def join(self) -> None:
        """Make few chunks of many, each less than half of the one before: a row moves seldom."""
        made: list[list[Tensor]] = []
        sizes: list[int] = []
        for chunk in self.chunks:
            made.append([chunk])
            sizes.append(chunk.shape[0])
            while len(made) > 1 and 2 * sizes[-1] >= sizes[-2]:
                last, size = made.pop(), sizes.pop()
                made[-1] += last
                sizes[-1] += size
        self.chunks = [moves.joined(parts) if len(parts) > 1 else parts[0] for parts in made]
        self.ends = np.cumsum(sizes)


def reordered(rows: Tensor, index: Rows) -> Tensor:
    """``rows[index]``, the same tensor where that is all of them in order."""
    if len(index) == rows.shape[0] and np.array_equal(index, np.arange(len(index))):
        return rows
    return moves.taken(rows, on_device(index, rows.device))


@final
class Logged:
    """The table of lists over a log; see above."""

    __slots__ = ("log", "slots")

    def __init__(self, log: Log, slots: Rows) -> None:
        self.log = log
        self.slots = slots

    @classmethod
    def of(cls, columns: Sequence[Tensor], room: int) -> Logged:
        """Lists of the same elements in all threads, one at least: each ``[k, *E]``."""
        count, k = len(columns), columns[0].shape[0]
        slots = np.zeros((k, room), np.int64)
        slots[:, :count] = np.arange(count) * k + np.arange(k)[:, None]
        return cls(Log(columns), slots)

    @classmethod
    def over(cls, data: Tensor) -> Logged:
        """A table ``[k, capacity, *E]`` as the only chunk of a log."""
        k, capacity = data.shape[:2]
        return cls(Log([moves.flattened(data)]), np.arange(k * capacity).reshape(k, capacity))

    @property
    def kind(self) -> Hashable:
        rows = self.log.chunks[0]
        return (rows.dtype, rows.shape[1:], rows.device)

    @property
    def device(self) -> torch.device:
        return self.log.chunks[0].device

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.slots.shape, *self.log.chunks[0].shape[1:])

    def at(self, where: Place) -> Tensor:
        return self.log.rows(self.slots_at(where))

    def slots_at(self, where: Place) -> Rows:
        if type(where) is int:
            return self.slots[:, where]
        return self.slots[np.arange(len(self.slots)), on_host(where)]  # type: ignore[arg-type]

    def write(self, where: Place, rows: Tensor) -> Logged:
        """The table with one element of each list written; this one stays as it is."""
        slots, places = self.slots.copy(), self.log.add(rows)
        if type(where) is int:
            slots[:, where] = places
        else:
            slots[np.arange(len(slots)), on_host(where)] = places  # type: ignore[arg-type]
        return Logged(self.log, slots)

    def settled(self, lengths: Rows) -> Logged:
        """The same, over a log of its own if most of this one is no longer used."""
        if self.log.size <= max(LEAST, IDLE * int(lengths.sum())):
            return self
        used = np.unique(self.slots[self.used(lengths)])
        slots = np.searchsorted(used, self.slots).clip(max=max(0, len(used) - 1))
        return Logged(Log([self.log.gathered(used)]), slots)

    def used(self, lengths: Rows) -> Any:
        """Which slots are elements of lists, ``[k, capacity]``."""
        return np.arange(self.slots.shape[1]) < lengths[:, None]

    def select(self, rows: Rows, room: int) -> Logged:
        return Logged(self.log, self.slots[rows, :room])

    def wider(self, room: int) -> Logged:
        return Logged(self.log, np.pad(self.slots, ((0, 0), (0, room - self.slots.shape[1]))))

    def cut(self, start: Any, room: int) -> Logged:
        begins = start if type(start) is int else on_host(start)[:, None]
        places = (begins + np.arange(room)).clip(max=self.slots.shape[1] - 1)
        return self.taken(np.broadcast_to(places, (len(self.slots), room)))

    def taken(self, places: Rows) -> Logged:
        """The elements at some places of each list, ``[k, room]``."""
        return Logged(self.log, np.take_along_axis(self.slots, places, 1))

    def elements(self, lengths: Rows) -> Tensor:
        """The elements of one list after the other, ``[n, *E]``."""
        return self.log.gathered(self.slots[self.used(lengths)])

    def stacked(self, length: int) -> Tensor:
        """The elements of lists of one length, one at least, ``[k, length, *E]``; one copy where
        they were written side by side.
        """
        k, log = len(self.slots), self.log
        wanted = np.ascontiguousarray(self.slots[:, :length].T)
        chunks = log.chunks_at(wanted[:, 0]) if k else np.zeros(length, np.int64)
        sizes = np.array([chunk.shape[0] for chunk in log.chunks])
        whole = (log.ends - sizes)[chunks][:, None] + np.arange(k)
        if (sizes[chunks] == k).all() and np.array_equal(wanted, whole):
            rows = torch.stack([log.chunks[chunk] for chunk in chunks.tolist()], 1)
            return moves.noted(rows, kinds.Listed(length, k))
        rows = log.gathered(self.slots[:, :length].reshape(-1))
        return moves.grouped(rows, length)


def joined(tables: Sequence[Logged], room: int) -> Logged:
    """The lists of several tables, one after the other; nothing is copied but slots."""
    firsts: dict[int, int] = {}
    chunks: list[Tensor] = []
    size = 0
    for table in tables:
        if id(table.log) not in firsts:
            firsts[id(table.log)] = size
            chunks += table.log.chunks
            size += table.log.size
    log = tables[0].log if len(firsts) == 1 else Log(chunks)
    moved = [fitted(table.slots, room) + firsts[id(table.log)] for table in tables]
    return Logged(log, np.concatenate(moved))


def fitted(slots: Rows, room: int) -> Rows:
    return np.pad(slots[:, :room], ((0, 0), (0, max(0, room - slots.shape[1]))))
