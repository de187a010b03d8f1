"""When a stream's free places are filled again.

An admission may wait for a tenth of the width; but where most threads go on for long, or for ever,
as many may never be free. So fewer are filled, too, once their waiting has cost as much as all in
flight lose by ``PRICE`` block executions (as for the stages of a stream, see ``vm.stages``).

An iterable that is slow is asked again once results have come, or threads have run ``SHARE`` times
as long as it took: it hardly holds them up, and they do not hold it up for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

PRICE = 32
"""Block executions. An admission takes the time of 4 to 8 at a width of 64, and those that come in
few run what leads to a loop by themselves: at 8, a loop in a closure within another took 11,917
executions for 7,756 at a width of 32, and at 32 as many as where only a tenth is filled.
"""
SHARE = 8
"""How much longer threads run than a slow iterable takes."""
SLICE = 64
"""Block executions between two looks at the clock."""


@dataclass(slots=True, eq=False, repr=False)
class Vacancies:
    """``enough`` free places of ``width`` are filled at once; ``waited`` is for how many block
    executions fewer have waited, all together; ``again`` is when a slow iterable may be asked.
    """

    width: int
    enough: int
    waited: int = 0
    again: float | None = None

    def are_to_fill(self, room: int) -> bool:
        """Whether to draw examples now for so many free places."""
        if self.again is not None and monotonic() < self.again:
            return False
        return room >= self.enough or (room > 0 and self.waited >= self.price(room))

    def price(self, room: int) -> int:
        return PRICE * (self.width - room)

    def due(self, room: int) -> int | None:
        """After how many block executions they may be to fill; None: none is free."""
        if not room:
            return None
        if self.again is not None:
            return SLICE
        return max(1, -((self.waited - self.price(room)) // room))

    def passed(self, room: int, steps: int) -> None:
        """So many were free for so many block executions."""
        self.waited += room * steps

    def filled(self, slow: float | None) -> None:
        """Examples have been drawn; ``slow`` are the seconds that one took, if that was long."""
        self.waited = 0
        self.again = None if slow is None else monotonic() + SHARE * slow

    def left(self) -> None:
        """Threads have left: an iterable may be asked again, however slow."""
        self.again = None
