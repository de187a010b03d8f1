"""What a program of numbers works on, which tells how many threads plain Python is better for.

Numbers of all threads are columns, and one kernel does what a loop does for each of them: the more
threads, the better. A list of numbers takes a gather for each read, and threads that go different
ways take turns; a dict, a string, an instance is read thread by thread anyway.
"""

from __future__ import annotations

from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

from autobatch.batching import known_arrays as arrays
from autobatch.batching import known_library as library
from autobatch.ir.program import Function, Op

LISTS_OF_NUMBERS = 512
"""Threads up to which plain Python takes less time for lists of numbers."""
DISPLAYS = frozenset({"dict", "set", "to_set", "format"})
LIBRARY = library.READS | library.LENDS | arrays.FUNCTIONS | arrays.GENERATORS
MADE = frozenset(
    {dict, set, frozenset, str, deque, defaultdict, Counter, OrderedDict, ChainMap, Random}
)


@dataclass(slots=True, eq=False, repr=False)
class Scale:
    """``lists``: it makes some; ``objects``: it makes others, whose kernels there are none for."""

    lists: bool = False
    objects: bool = False
    called: dict[int, set[int]] = field(default_factory=dict)

    def note(self, op: Op) -> None:
        self.lists |= op.name == "list"
        self.objects |= op.name in DISPLAYS

    def made(self, kind: Any) -> None:
        """A function of Python's has made something."""
        self.lists |= kind in (list, sorted)
        self.objects |= kind in MADE or kind in LIBRARY

    def calls(self, caller: Function, callee: Function) -> None:
        self.called.setdefault(id(caller), set()).add(id(callee))

    def recurs(self) -> bool:
        """Whether a function calls itself, by whatever way."""
        left = dict(self.called)
        while left:
            ends = [at for at, to in left.items() if left.keys().isdisjoint(to)]
            if not ends:
                return True
            for at in ends:
                del left[at]
        return False

    def most_threads(self) -> int | None:
        """Up to how many threads plain Python is better; None: for any number."""
        if self.objects or (self.lists and self.recurs()):
            return None
        return LISTS_OF_NUMBERS if self.lists else 0
