"""The keys of threads and how often they have drawn: where each of them is in its random words.

``Paths`` are some rows of a ``Ledger``, which numbers the draws of a frame's rows. Drawing gives
each row's key and number, and counts it; so does opening a path, whose key is made of them. A
ledger's arrays are replaced and never changed, so what they were is a reference, and work that
is undone takes its draws back by it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))

Mark = tuple[np.ndarray, np.ndarray]


def split(keys: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """New keys from keys and numbers: the finaliser of SplitMix64 (Steele et al., 2014)."""
    mixed = keys.view(np.uint64) + (numbers.view(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
    for shift, factor in MIX:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    split_keys: np.ndarray = (mixed ^ (mixed >> np.uint64(31))).view(np.int64)
    return split_keys


def key_of(seed: int) -> int:
    """The low 64 bits of a seed, as a signed number."""
    low = seed & 2**64 - 1
    return low - 2**64 if low >= 2**63 else low


def alike(values: np.ndarray) -> np.ndarray | int:
    """One int if all are the same."""
    return int(values[0]) if len(values) and (values == values[0]).all() else values


class Drew(Exception):
    """An operation draws where nothing may: it was taken to give the same, whenever it runs."""


@dataclass(slots=True, eq=False, repr=False)
class Ledger:
    """``keys``, of 64 bits, and ``numbers`` of the next draw, int64 ``[rows]``."""

    keys: np.ndarray
    numbers: np.ndarray

    @classmethod
    def of(cls, keys: np.ndarray) -> Ledger:
        return cls(keys, np.zeros(len(keys), dtype=np.int64))

    def mark(self) -> Mark:
        return self.keys, self.numbers

    def rewind(self, mark: Mark) -> None:
        self.keys, self.numbers = mark

    def put(self, rows: np.ndarray, keys: np.ndarray | int, numbers: np.ndarray | int) -> None:
        """Let rows draw elsewhere."""
        new_keys, new_numbers = self.keys.copy(), self.numbers.copy()
        new_keys[rows], new_numbers[rows] = keys, numbers
        self.keys, self.numbers = new_keys, new_numbers


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Paths:
    """``rows`` of a ledger, for the rows of a group or a frame.

    ``flat``: no call opens a path, since for one example Python itself makes it, unseen.
    """

    ledger: Ledger
    rows: np.ndarray
    flat: bool = False

    @classmethod
    def over(cls, ledger: Ledger) -> Paths:
        return cls(ledger, np.arange(len(ledger.keys)))

    def taken(self, positions: np.ndarray) -> Paths:
        return Paths(self.ledger, self.rows[positions], self.flat)

    def flattened(self) -> Paths:
        return Paths(self.ledger, self.rows, True)

    def begin(self, positions: np.ndarray, keys: np.ndarray | int) -> None:
        """Let some of the rows draw by other keys, from the first number on."""
        self.go(positions, keys, 0)

    def go(self, positions: np.ndarray, keys: np.ndarray | int, numbers: np.ndarray | int) -> None:
        """Let some of the rows draw by these keys, from these numbers on."""
        self.ledger.put(self.rows[positions], keys, numbers)

    def here(self) -> tuple[np.ndarray, np.ndarray]:
        return self.ledger.keys.take(self.rows), self.ledger.numbers.take(self.rows)

    def drawn(self) -> tuple[np.ndarray | int, np.ndarray | int]:
        """As ``counted``, for a draw: one int where all rows have the same."""
        ledger = self.ledger
        if len(self.rows) == len(ledger.numbers):  # all of its rows, in some order
            key, number = alike(ledger.keys), alike(ledger.numbers)
            if isinstance(key, int) and isinstance(number, int):
                self.moved(number + 1)
                return key, number
        keys, numbers = self.counted()
        return alike(keys), alike(numbers)

    def counted(self) -> tuple[np.ndarray, np.ndarray]:
        """Each row's key and the number of its next draw, which is made by this."""
        keys, numbers = self.here()
        self.moved(numbers + 1)
        return keys, numbers

    def moved(self, numbers: np.ndarray | int) -> None:
        """So many draws have been made by each row."""
        ledger = self.ledger
        new = ledger.numbers.copy()
        if isinstance(numbers, int) and len(self.rows) == len(new):
            new.fill(numbers)
        else:
            new[self.rows] = numbers
        ledger.numbers = new

    def opened(self) -> Paths:
        """The paths of a call by each row."""
        if self.flat:
            return self
        return Paths.over(Ledger.of(split(*self.counted())))

    def barred(self) -> Paths:
        """The same, for operations that may run twice: they draw nothing."""
        return Barred(self.ledger, self.rows, self.flat)


class Barred(Paths):
    """Paths that nothing draws by."""

    def moved(self, numbers: np.ndarray | int) -> None:
        raise Drew
