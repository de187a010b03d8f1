"""Memory of objects, of numpy's arrays mostly, that tensors of whole groups stand for as well.

``t = torch.from_numpy(a)`` stacks the threads' arrays: a copy, where for one example a write to
either is seen in both. So it is refused while both have names, whichever array has that memory
(``a[1:]``, ``a.T``) and whichever function holds it. The tensor bears marks (``Ties``); for the
arrays their memory does. Arrays of such a tensor's own memory (``t.numpy()``) are what it is, a
copy of the first ones: a write to it is refused while these have names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import numpy as np
from torch import Tensor

from autobatch.batching.foreign import memory_of
from autobatch.values.cells import NO_TIES, Cell, Objects, Ties, ties_of

LENDERS = np.ndarray | Tensor | bytearray | np.flatiter


@dataclass(slots=True, eq=False, repr=False)
class Lent:
    """``marks`` are by where the memory begins, each with what says whether it is gone.

    ``copies`` are those of tensors that stand for other memory.
    """

    marks: dict[int, tuple[Callable[[], Any], Ties]] = field(default_factory=dict)
    copies: set[int] = field(default_factory=set)
    limit: int = 64

    def note(self, items: Iterable[Any], marks: Ties, copies: bool = False) -> None:
        """Tensors that bear these marks were made of objects, or these of them (``copies``)."""
        for item in items:
            place = memory_of(item) if isinstance(item, LENDERS) else 0
            if place:
                known = self.at(place)
                if copies:
                    self.copies.add(place)
                elif not known:
                    self.copies.discard(place)  # of what was there before
                self.marks[place] = keeper(item), known | marks
        if len(self.marks) > self.limit:
            self.marks = {at: kept for at, kept in self.marks.items() if kept[0]() is not None}
            self.copies &= self.marks.keys()
            self.limit = 2 * len(self.marks) + 64

    def at(self, place: int) -> Ties:
        kept, marks = self.marks.get(place, (None, NO_TIES))
        return marks if kept is not None and kept() is not None else NO_TIES

    def places(self, cell: Cell) -> set[int]:
        """Where the memory begins that the objects of a cell have."""
        value = cell.value
        if not self.marks or type(value) is not Objects:
            return set()
        if value.lists is not None or value.stacks is not None:
            return set()
        return {memory_of(item) for item in value.items if isinstance(item, LENDERS)}

    def of(self, cell: Cell) -> Ties:
        """The marks of the memory that the objects of a cell have."""
        return NO_TIES.union(*map(self.at, self.places(cell)))

    def tied(self, cells: Iterable[Cell], others: Iterable[Cell]) -> list[Cell]:
        """Those of some others that a write to some cells would have to be seen in."""
        own, memory = NO_TIES, set[int]()
        for cell in cells:
            own, memory = own | ties_of(cell), memory | self.places(cell)
        marks = own.union(*map(self.at, memory))
        if not marks:
            return []
        return [
            c
            for c in others
            if ties_of(c) & marks or (own and own & self.of(c)) or self.parted(memory, c)
        ]

    def parted(self, memory: set[int], cell: Cell) -> bool:
        """Whether some memory and that of a cell's objects are one, copied, to the loop."""
        if not self.copies:
            return False
        pairs = ((mine, place) for place in self.places(cell) - memory for mine in memory)
        return any(
            (mine in self.copies or place in self.copies) and bool(self.at(mine) & self.at(place))
            for mine, place in pairs
        )


def keeper(item: Any) -> Callable[[], Any]:
    """Gives the owner of some memory while there is one: nothing else is there meanwhile."""
    while isinstance(item, np.flatiter) or (isinstance(item, np.ndarray) and item.base is not None):
        item = item.base
    return ref(item) if type(item) is np.ndarray else lambda: item
