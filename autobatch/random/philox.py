"""Philox 4x32-10, a counter-based generator: random words are a function of a counter and a key.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). There is
no state: whoever wants other words gives another counter.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
MASK = 0xFFFFFFFF

Word = int | Tensor
"""32 bits: an int, or many in an int64 tensor, each in 0 to 2**32 - 1."""
Counter = tuple[Word, Word, Word, Word]
Key = tuple[Word, Word]


def philox(counter: Counter, key: Key) -> Counter:
    """The four random words of a counter; of each, where words are tensors of one shape.

    A word that is the same for all may be an int. Words that come out as tensors have the right
    low 32 bits only: what is above is to be masked, or shifted out, by who uses them.
    """
    a, b, c, d = counter
    low, high = key
    for _ in range(ROUNDS):
        first, second = product(a, 0), product(c, 1)
        # In place where these are tensors: they are new, and of the full shape.
        left: Any = second >> 32
        right: Any = first >> 32
        left ^= b
        left ^= low
        left &= MASK
        right ^= d
        right ^= high
        right &= MASK
        a, b, c, d = left, low_bits(second), right, low_bits(first)
        low, high = (low + WEYL[0]) & MASK, (high + WEYL[1]) & MASK
    return a, b, c, d


def product(word: Word, place: int) -> Any:
    """A word times a multiplier, 64 bits; as a signed number where it is a tensor."""
    return word * MULTIPLIERS[place]


def low_bits(word: Word) -> Word:
    return word & MASK if isinstance(word, int) else word
