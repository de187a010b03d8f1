"""Whether a run is better begun again as plain Python, one thread after another.

Operations on objects run thread by thread, a kernel takes as long for a few threads as for one, and
so does a block: a parser whose names stand for tensors takes hundreds of times the plain loop when
its threads are kept together, and threads that each go a way of their own take some times it. In:
what a run counts, and how long it takes. Out: ``BetterApart``, at a block's beginning, once that is
sure and nobody would see the run begin again; where a run ends first, the next begins so.

Counts tell early: what runs thread by thread is dear. All else is measured: the time of block
executions, but for those that record or wait to (they come once), against what plain Python takes
for some of the threads. ``with measuring(False):`` leaves the clock out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import thread_time
from typing import Protocol

from autobatch.runs.watch import Watch

ONCE, BY_THREAD, OF_A_PART = 200, 7, 40
"""What an operation by thread costs, or a part that plain Python runs, with the threads that part
around it (300 measured), and what each of their threads does: in microseconds, on one core."""
OF_A_BLOCK, OF_A_KERNEL = 0.25, 1
"""What plain Python takes for a thread: 0.1 to 0.3; 0.05 of a number to 4 of a tensor."""
ENOUGH = 4_000
"""The cost below which a run is none to begin again: some milliseconds."""
TIMES = 3
"""How much more it must be than what plain Python would have taken so far."""
OFTEN = 16
"""Operations by thread, and parts, after which what comes is taken to be like what has been."""
WORTH_MEASURING = 0.02
"""Seconds of such calls in all after which what plain Python takes is measured."""
SURELY, BETTER = 2, 1.5
"""How many times that a run has taken when it is ended, and when the next is to be plain."""
SHORT = 0.1
"""Seconds of a run below which it takes two to tell: some milliseconds of some threads, measured
once, made Fibonacci on 64 threads plain in one process of five, at 1.5 times what it took together.
"""
COLD = 4
"""Seconds of what comes once that count as one, for a run that is to be ended."""
AGAIN = 1.25
"""How much longer it has taken when it is looked at again."""

NEVER = float("inf")

_MEASURES: ContextVar[bool] = ContextVar("autobatch.measures", default=True)


@contextmanager
def measuring(on: bool) -> Iterator[None]:
    """Within, the runs of this host thread are measured, or only counted: the same anywhere."""
    token = _MEASURES.set(on)
    try:
        yield
    finally:
        _MEASURES.reset(token)


def is_measuring() -> bool:
    """Whether the clock of this host thread's runs is looked at."""
    return _MEASURES.get()


class BetterApart(BaseException):
    """A run ends, to begin again as plain Python; no exception of the program's."""


class Call(Protocol):
    """What is known of calls like the one that runs."""

    def may_end(self) -> bool:
        """Whether it is proved that the run may begin again: noted then, and asked once."""

    def plain_seconds(self, spent: float) -> float | None:
        """What plain Python takes, measured in less than a part of what a run has ``spent``.

        None where plain Python may not run it, or was not much better when it was measured before.
        """

    def in_all(self, spent: float) -> float:
        """The seconds of all such runs, this last one among them."""

    def counts_anew(self) -> None:
        """The seconds of all such runs are none: measuring is to take a small part of them."""

    def again(self, slower: bool) -> bool:
        """Whether it is the slower way, as the last such run that was measured has been."""

    def stays(self) -> None:
        """Plain Python is not better: noted, for as many threads or more."""


@dataclass(slots=True, eq=False, repr=False)
class Trial:
    """``threads`` are those of the block at work, ``objects`` what has been spent on objects.

    So many ``times``; ``plainly`` is what plain Python would have taken, by counts. ``watch`` tells
    what the run has taken; when that is as much as is ``due``, it is looked at again.
    """

    call: Call
    threads: int = 0
    objects: int = 0
    times: int = 0
    plainly: float = 0
    is_over: bool = False
    watch: Watch = field(default_factory=lambda: Watch(0))
    due: float = NEVER

    @classmethod
    def measured(cls, call: Call) -> Trial:
        """One that measures too, unless it must not."""
        if not is_measuring():
            return cls(call)
        return cls(call, watch=Watch(thread_time()), due=WORTH_MEASURING)

    def block(self, threads: int) -> None:
        self.threads = threads
        self.plainly += OF_A_BLOCK * threads
        if self.due < NEVER:
            self.watch.tick()

    def blocks(self, number: int, threads: int, launches: int) -> None:
        """So many of one block, for ``threads`` in all."""
        self.block(threads // number)
        self.plainly += OF_A_BLOCK * (threads - threads // number)
        self.plainly += OF_A_KERNEL * launches * (threads / number)

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
        if self.is_over:
            return
        if self.times >= OFTEN and self.is_sure():
            self.end()
        elif self.watch.warm >= self.due:
            spent = self.watch.seconds
            plain = self.plain_seconds(spent)
            if plain is None:
                self.due = NEVER
            elif spent >= plain and spent + self.watch.cold_seconds / COLD >= SURELY * plain:
                self.end()
            else:
                self.due = AGAIN * self.watch.warm

    def end(self) -> None:
        self.is_over = True
        if self.call.may_end():
            raise BetterApart

    def ended(self) -> None:
        """The run has come to its end."""
        if self.is_over:
            return
        if self.is_sure():
            self.call.may_end()
            return
        if self.due == NEVER:
            return
        self.watch.tick()
        if self.call.in_all(self.watch.warm) >= WORTH_MEASURING:
            spent = self.watch.seconds
            plain = self.plain_seconds(spent)
            if plain is None:
                return
            slower = spent >= BETTER * plain
            if self.call.again(slower) or (slower and spent >= SHORT):
                self.call.may_end()
            elif not slower:
                self.call.counts_anew()
                if not self.watch.colds:
                    self.call.stays()

    def plain_seconds(self, spent: float) -> float | None:
        begin = thread_time()
        try:
            return self.call.plain_seconds(spent)
        finally:
            self.watch.leave_out(begin)

    def is_sure(self) -> bool:
        return self.objects >= max(ENOUGH, TIMES * self.plainly)
