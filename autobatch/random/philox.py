"""Philox 4x32-10, a counter-based generator: random words are a function of a counter and a key.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). There is
no state: whoever wants other words gives another counter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
MASK = 0xFFFFFFFF

Word = int | np.ndarray | Tensor
"""32 bits: an int, or many in a uint64 array or an int64 tensor, each in 0 to 2**32 - 1."""
Counter = tuple[Word, Word, Word, Word]
Key = tuple[Word, Word]


ROOM = 6
"""As many arrays hold all that rounds compute."""


def philox(counter: Counter, key: Key, room: np.ndarray | None = None) -> Counter:
    """The four random words of a counter; of each, where words are arrays or tensors of one shape.

    A word that is the same for all may be an int. Words that come out as arrays or tensors have
    the right low 32 bits only: what is above is to be masked, or shifted out, by who uses them.
    ``room`` is what words that are arrays are computed in, ``[ROOM, *shape]``: new memory for each
    step would take longer than the step.
    """
    a, b, c, d = counter
    low, high = key
    for now in range(ROUNDS):
        place = now % 2 * 2  # what the round before has made is read
        first, second = product(a, 0, room, place), product(c, 1, room, place + 1)
        a, c = mixed(second, b, low, room, 4), mixed(first, d, high, room, 5)
        b, d = low_bits(second), low_bits(first)
        low, high = (low + WEYL[0]) & MASK, (high + WEYL[1]) & MASK
    return a, b, c, d


def product(word: Word, which: int, room: np.ndarray | None, place: int) -> Any:
    """A word times a multiplier, 64 bits; as a signed number where it is a tensor."""
    if room is None or isinstance(word, int):
        return word * MULTIPLIERS[which]
    return np.multiply(word, MULTIPLIERS[which], out=room[place])


def mixed(product: Any, word: Word, key: Word, room: np.ndarray | None, place: int) -> Any:
    """What is above 32 bits of a product, with a word and a part of the key."""
    if room is None or isinstance(product, int):
        found = product >> 32
    else:
        found = np.right_shift(product, 32, out=room[place])
    both = (word ^ key,) if isinstance(word, int) and isinstance(key, int) else (word, key)
    for each in both:
        found ^= each  # in place where it is no int: it is new, and of the full shape
    found &= MASK
    return found


def low_bits(word: Word) -> Word:
    return word & MASK if isinstance(word, int) else word
