"""Whether a run does more on objects, and on keeping threads together, than on tensors.

Operations on objects run thread by thread, and a kernel takes as long for a few threads as for one:
a parser whose names stand for tensors takes hundreds of times the plain loop when its threads are
kept together. In: what a run counts. Out: ``BetterApart``, at a block's beginning, once that is
sure and nobody would see the run begin again; where a run ends first, the next begins so. Counts
decide, so that runs are the same anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

ONCE, BY_THREAD, OF_A_PART = 200, 7, 40
"""What an operation by thread costs, or a part that plain Python runs, with the threads that part
around it (300 measured), and what each of their threads does: in microseconds, on one core."""
EXECUTION, MANY = 60, 150
"""What a block execution costs without these: its queue, its checks, threads that part and meet;
and of how many on that counts."""
OF_A_BLOCK, OF_A_KERNEL = 0.25, 1
"""What plain Python takes for a thread: 0.1 to 0.3; 0.05 of a number to 4 of a tensor."""
ENOUGH = 4_000
"""The cost below which a run is none to begin again: some milliseconds."""
TIMES = 3
"""How much more it must be than what plain Python would have taken so far."""
OFTEN = 16
"""Operations by thread, and parts, after which what comes is taken to be like what has been."""


class BetterApart(BaseException):
    """A run ends, to begin again as plain Python; no exception of the program's."""


@dataclass(slots=True, eq=False, repr=False)
class Trial:
    """``may_end`` proves that the run may begin again, and notes it; it is asked once.

    ``threads`` are those of the block at work, ``objects`` what has been spent on objects, so many
    ``times``, and ``plainly`` what plain Python would have taken.
    """

    may_end: Callable[[], bool]
    threads: int = 0
    objects: int = 0
    times: int = 0
    executions: int = 0
    plainly: float = 0
    is_over: bool = False

    def block(self, threads: int) -> None:
        self.threads = threads
        self.executions += 1
        self.plainly += OF_A_BLOCK * threads

    def launch(self, number: int) -> None:
        self.plainly += OF_A_KERNEL * number * self.threads

    def by_thread(self) -> None:
        self.times += 1
        self.objects += ONCE + BY_THREAD * self.threads

    def part(self, threads: int) -> None:
        self.times += 1
        self.objects += ONCE + OF_A_PART * threads

    def judge(self) -> None:
        """End the run where that is better."""
        if self.times >= OFTEN and self.is_sure(self.objects):
            self.is_over = True
            if self.may_end():
                raise BetterApart

    def ended(self) -> None:
        """The run has come to its end."""
        apart = EXECUTION * self.executions if self.executions >= MANY else 0
        if self.is_sure(self.objects + apart):
            self.may_end()

    def is_sure(self, spent: int) -> bool:
        return not self.is_over and spent >= max(ENOUGH, TIMES * self.plainly)
