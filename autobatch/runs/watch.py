"""How long a run takes, but for what it will not do when it runs again.

In: when its blocks begin, and which of them are cold: they record, or wait to. Out: the seconds
that this thread had a processor for the others. Each block reads the clock on the wall alone; what
part of that was the thread's is asked of the system where it matters. Where a process waits for
torch's tracing, which may be for dozens of calls, all but what a recording would spare counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter, thread_time

SPARED = 130e-6
"""Seconds at most that an operation takes less once it is replayed (see ``trace.loading``)."""


@dataclass(slots=True, eq=False, repr=False)
class Watch:
    """``warm`` seconds on the wall of ``whole``, ``began`` by the thread's time, so many ``colds``.

    ``since`` is when the block at work began, and ``is_cold`` whether it is cold; so many of its
    operations are ``waiting`` to be recorded.
    """

    began: float
    since: float = field(default_factory=perf_counter)
    warm: float = 0
    whole: float = 1e-9
    is_cold: bool = False
    waiting: int = 0
    colds: int = 0

    def tick(self) -> None:
        """A block begins, or the run ends."""
        now = perf_counter()
        took = now - self.since
        self.whole += took
        if self.is_cold or self.waiting:
            self.colds += 1
            if not self.is_cold:
                self.warm += max(0, took - SPARED * self.waiting)
            self.is_cold, self.waiting = False, 0
        else:
            self.warm += took
        self.since = now

    @property
    def seconds(self) -> float:
        """What the thread has spent on what is not cold."""
        return (thread_time() - self.began) * self.warm / self.whole

    @property
    def cold_seconds(self) -> float:
        return (thread_time() - self.began) * (1 - self.warm / self.whole)

    def leave_out(self, since: float) -> None:
        """What this thread has done from a time of its own on was no part of the run."""
        self.began += thread_time() - since
        self.since = perf_counter()
