"""Rings: blocks that threads of a spin go round one after the other, the same ones every time.

    b2 -> b1 -> b2 -> b1 -> ...        a loop over a range, and its body

In: the laps of a spin, one by one. Out: whether they are a ring that may *glide* (``gliding``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autobatch.ir.program import Label
from autobatch.vm.laps import Lap

LONGEST = 12
"""Blocks of a ring."""
MOST_KNOWN = 16
RingKey = tuple[tuple[Label, Any], ...]
"""The blocks of a ring, each with what runs its operations."""


@dataclass(slots=True, eq=False, repr=False)
class Track:
    """The laps of a spin since its rows have last changed.

    ``path`` are those since ``ring``, which ``glides`` if it has been ``judged`` to be one, and
    ``known`` are rings that have glided, in this spin or in one before it, with other rows.
    """

    known: set[RingKey]
    path: list[Lap] = field(default_factory=list)
    ring: list[Lap] = field(default_factory=list)
    judged: bool = False
    glides: bool = False

    def note(self, lap: Lap) -> None:
        """A lap has run, and checked all that it reads."""
        path = self.path
        if path and path[0] is lap:
            if path != self.ring:
                self.judged = self.glides = False
            if not self.judged:  # what a known one's replays make has been checked before
                key = ring_key(path)
                if path == self.ring or key in self.known:
                    self.judged, self.glides = True, are_a_ring(path)
                if self.glides and key not in self.known:
                    if len(self.known) >= MOST_KNOWN:
                        self.known.clear()
                    self.known.add(key)
            self.ring, self.path = path, [lap]
        elif len(path) < LONGEST:
            path.append(lap)
        else:
            self.path = [lap]

    def comes_round(self, pc: Label) -> bool:
        """Whether the ring's first lap has just run, and ``pc`` is where its next one is."""
        if not self.glides or len(self.path) != 1 or self.path[0] is not self.ring[0]:
            return False
        return pc == self.ring[1 % len(self.ring)].pc

    def forget(self) -> None:
        """Rows have changed, or their way."""
        self.path, self.ring, self.judged, self.glides = [], [], False, False


def ring_key(laps: Sequence[Lap]) -> RingKey:
    """Equal for the same laps in the same order, wherever each begins."""
    first = min(range(len(laps)), key=lambda at: laps[at].pc)
    turned = (*laps[first:], *laps[:first])
    return tuple((lap.pc, None if lap.driver is None else lap.driver.drive) for lap in turned)


def is_hot(lap: Lap) -> bool:
    """Whether it runs what is compiled, or is to be in this lap."""
    return lap.tells is None and lap.driver is not None and lap.driver.hot is not None


def are_a_ring(laps: Sequence[Lap]) -> bool:
    """Whether the columns that some laps check, and do not leave alone, are all replays' results,
    or one another.

    What is compiled goes its own way: several laps at once.
    """
    drivers = [lap.driver for lap in laps if lap.driver is not None]
    if any(lap.launch is not None or is_hot(lap) for lap in laps):
        return False
    checked = frozenset[str]().union(*(driver.columns for driver in drivers))
    advances = [lap.turn.advance for lap in laps]
    if any(op is not None and not checked.isdisjoint(op.outs) for op in advances):
        return False
    for driver in drivers:
        others = (checked & driver.assigns) - driver.makes
        if any(driver.hands.get(name) not in checked for name in others):
            return False
    return True
