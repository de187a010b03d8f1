"""Which of the waiting blocks runs next: a policy looks at them and picks one.

The default, ``"earliest"``, needs no look: the queue keeps the smallest program counter at its
head. ``"most_threads"`` picks the block that most threads wait at; among those with as many,
and before any block that needs a host read, one that needs none goes first, since it holds no one
up. A policy of the user's own is a callable; see ``Schedule``. Whatever the policy, a frame
returns, and forked calls join, when nothing else waits in it, and results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from autobatch.errors import OptionError
from autobatch.ir.program import Branch, Function, Join, Label

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class WaitingBlock:
    """A block of ``function`` that ``threads`` wait at; ``reads`` if its end is a branch on data.

    ``pc`` is its program counter, ``block`` its label. Blocks are handed to a policy in the order
    of ``"earliest"``.
    """

    function: str
    block: str
    pc: int
    threads: int
    reads: bool


Schedule = Callable[[Sequence[WaitingBlock]], int]
"""Takes the blocks that wait, at least two, and gives the index of the one to run next."""


def most_threads(waiting: Sequence[WaitingBlock]) -> int:
    """The block that most threads wait at, of those that need no host read if there are any."""
    free = [index for index, block in enumerate(waiting) if not block.reads]
    return max(free or range(len(waiting)), key=lambda index: waiting[index].threads)


SCHEDULES: dict[str, Schedule | None] = {"earliest": None, "most_threads": most_threads}


@dataclass(frozen=True, slots=True)
class Choice(Generic[P]):
    """A policy at work for one queue; ``block_of`` gives a place's function and label.

    ``last`` is the place at which threads wait until all have come there.
    """

    schedule: Schedule
    block_of: Callable[[P], tuple[Function, Label]]
    last: P

    def __call__(self, waiting: list[tuple[P, int]]) -> P:
        open_ = [(place, threads) for place, threads in waiting if not self.holds(place)]
        if len(open_) < 2:
            return (open_ or waiting)[0][0]
        blocks = [self.describe(place, threads) for place, threads in open_]
        index = self.schedule(blocks)
        if isinstance(index, np.integer):
            index = int(index)
        if type(index) is not int or not 0 <= index < len(blocks):
            raise OptionError(
                f"The schedule chose {index!r} of {len(blocks)} waiting blocks; "
                "it must give the index of one of them."
            )
        return open_[index][0]

    def holds(self, place: P) -> bool:
        """Whether threads wait at a place until no others can come: at the end, and at joins."""
        if place == self.last:
            return True
        function, pc = self.block_of(place)
        return isinstance(function.blocks[pc].terminator, Join)

    def describe(self, place: P, threads: int) -> WaitingBlock:
        function, pc = self.block_of(place)
        reads = isinstance(function.blocks[pc].terminator, Branch)
        return WaitingBlock(function.name, f"b{pc}", pc, threads, reads)
