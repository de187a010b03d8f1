"""From a draw to the counters of its blocks, and the key: what ``philox`` takes.

Word 0 of a counter is the number of the block within the draw, word 1 the number of the draw, word
2 the thread's index, and word 3 has what is above 32 bits of either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autobatch.random.paths import alike
from autobatch.random.philox import MASK

LANES = 4
"""Words of a block."""
Words = tuple[np.ndarray | int, ...]
"""Of threads: each an int, or an int64 array ``[k]`` where they differ."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Draw:
    """A draw of ``k`` threads: ``key`` and ``number`` are ints, or arrays ``[k]``, of 64 bits.

    ``threads`` are the threads' indices, an array.
    """

    key: Any
    number: Any
    threads: np.ndarray

    @property
    def k(self) -> int:
        return len(self.threads)

    def words(self) -> Words:
        """Words 1 to 3 of the counters, and the halves of the key."""
        near = isinstance(self.number, int)
        near = near and self.number | int(self.threads.max(initial=0)) <= MASK
        rest = 0 if near else alike(above(self.threads, self.number))
        index = self.threads if near else self.threads & MASK
        return self.number & MASK, index, rest, self.key & MASK, self.key >> 32 & MASK


def above(thread: Any, number: Any) -> Any:
    """What is above 32 bits."""
    return thread >> 32 | number >> 32 << 16
