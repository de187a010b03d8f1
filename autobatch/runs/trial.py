"""Whether a run does more on objects than on tensors, found out while it runs.

Operations on objects run thread by thread, and a kernel takes as long for a few threads as for one:
a parser whose names stand for tensors takes hundreds of times the plain loop when its threads are
kept together. In: what a run counts. Out: ``BetterApart``, at a block's beginning, once that is
sure and nobody would see the run begin again. Counts decide, so that runs are the same anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BY_THREAD, OF_A_PART = 7, 40
"""What one thread of an operation by thread costs, and of a part that plain Python runs, where what
plain Python takes for a block or a kernel of a thread is about 1: microseconds, on one CPU core."""
ENOUGH = 4_000
"""The cost below which a run is none to begin again: some milliseconds."""
TIMES = 3
"""How much more it must be than what plain Python would have taken so far."""


class BetterApart(BaseException):
    """A run ends, to begin again as plain Python; no exception of the program's."""


@dataclass(slots=True, eq=False, repr=False)
class Trial:
    """``may_end`` proves that the run may begin again; it is asked once.

    ``threads`` are those of the block at work, ``objects`` what has been spent on objects and
    ``plainly`` what plain Python would have taken.
    """

    may_end: Callable[[], bool]
    threads: int = 0
    objects: int = 0
    plainly: int = 0
    is_over: bool = False

    def block(self, threads: int) -> None:
        self.threads = threads
        self.plainly += threads

    def launch(self, number: int) -> None:
        self.plainly += number * self.threads

    def by_thread(self) -> None:
        self.objects += BY_THREAD * self.threads

    def part(self, threads: int) -> None:
        self.objects += OF_A_PART * threads

    def judge(self) -> None:
        """End the run where that is better."""
        if self.is_over or self.objects < max(ENOUGH, TIMES * self.plainly):
            return
        self.is_over = True
        if self.may_end():
            raise BetterApart
