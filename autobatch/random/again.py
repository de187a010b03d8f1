"""Where threads are in their random words, kept for a run that is to draw the same once more.

The pullback that ``vjp`` gives runs its function again: what that draws is what it drew then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from autobatch.random.drawing import SOURCE
from autobatch.random.paths import Paths
from autobatch.random.sources import Thread


@dataclass(frozen=True, slots=True)
class Place:
    """The key of a thread's path, and the number of its next draw."""

    key: int
    number: int

    @contextmanager
    def again(self) -> Iterator[None]:
        """The thread at work draws from here on, and afterwards from where it was."""
        source = SOURCE.get()
        assert type(source) is Thread
        before = source.key, source.number
        source.key, source.number = self.key, self.number
        try:
            yield
        finally:
            source.key, source.number = before


def places_of(paths: Paths) -> list[Place]:
    """Where the threads of some rows are."""
    keys, numbers = paths.here()
    return [Place(*each) for each in zip(keys.tolist(), numbers.tolist(), strict=True)]


def apart(places: Iterable[Place]) -> tuple[np.ndarray, np.ndarray]:
    """Their keys, and their numbers."""
    pairs = [(place.key, place.number) for place in places]
    keys, numbers = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return keys, numbers


@contextmanager
def drawing_from(paths: Paths, keys: np.ndarray, numbers: np.ndarray) -> Iterator[None]:
    """The threads of some rows draw from there on, and afterwards from where they were."""
    rows, before = np.arange(len(paths.rows)), paths.here()
    paths.go(rows, keys, numbers)
    try:
        yield
    finally:
        paths.go(rows, *before)
