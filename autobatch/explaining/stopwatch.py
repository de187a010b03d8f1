"""What blocks cost in a run that is looked at: seconds measured, and the least by a roofline.

In: which block runs from now on, and the operations that have run. Out: for each block, the seconds
of all its runs, without those of looking on, and what its kernels take at least on this machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from autobatch.batching.calibration import machine, work_of
from autobatch.ir.program import Op
from autobatch.values.cells import Cell

Place = tuple[int, int]
"""The id of a function, and a block of it."""


@dataclass(slots=True, eq=False, repr=False)
class Stopwatch:
    """``running`` is the block that runs, ``since`` when."""

    seconds: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    least: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    running: Place | None = None
    since: float = 0.0

    def stop(self) -> None:
        if self.running is not None:
            self.seconds[self.running] += perf_counter() - self.since
        self.running = None

    def start(self, place: Place) -> None:
        self.running, self.since = place, perf_counter()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What runs within is no block's."""
        place = self.running
        self.stop()
        yield
        if place is not None:
            self.start(place)

    def ran(self, place: Place | None, op: Op, env: Mapping[str, Cell]) -> None:
        """An operation of a block has run; each is a kernel or more by itself."""
        if place is not None:
            self.least[place] += machine().seconds(work_of(op, env))
