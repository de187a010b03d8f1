"""What a run tells while it runs: steps to listeners, and counts.

A listener is a callable that receives a ``Step`` as each block execution ends. ``Counts`` are
exact and do not depend on the machine, but for those in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np

from autobatch.runs.trial import Trial
from autobatch.source import Span


@dataclass(frozen=True, slots=True)
class Step:
    """One block execution.

    ``threads`` is the input index of each row's thread, ``mask`` (bool ``[B]``) says which
    threads of the whole batch took part; in a stream, which has no whole batch, B is its width and
    the mask says which of the rows in flight did. ``pc`` is the block's program counter, ``block``
    its label, ``depth`` the number of calls that it is deep in (where threads at several depths run
    together, the largest), ``seconds`` its own time without that of callees.
    """

    function: str
    block: str
    pc: int
    threads: np.ndarray
    mask: np.ndarray
    depth: int
    seconds: float


Listener = Callable[[Step], None]
Place = tuple[str, int, str, str]
"""File, line, what ran there, and why thread by thread."""


@dataclass(slots=True)
class Counts:
    """Totals of the runs inside ``with autobatch.counts() as c``, and per block.

    ``host_reads`` are those of branches and checks; what objects' conversions, int overflow and
    the search for an exception read is counted by reason in ``other_reads``.
    ``by_block[(function, pc)]`` counts a block's executions, ``threads_by_block`` its threads, and
    ``reads_by_block``, ``traces_by_block``, ``launches_by_block`` and ``copies_by_block`` what of
    ``host_reads``, ``traces``, ``launches`` and ``row_copies`` was in or after each block.
    ``fallbacks`` are the runs thread by thread of which ``fallback="warn"`` tells, ``meant`` those
    that the program could be expected to mean (see ``batching.fallbacks``).
    Of compiled programs and loops each launch is one block execution; ``iterations`` counts its
    threads' ways back in loops and recursive calls within it, ``given_up`` the threads that went
    the general way after all, ``compilations`` the programs that were compiled, and the kernels of
    stretches (see ``batching.fused``), ``reloaded`` such kernels that torch had kept from another
    process, and ``compile_seconds`` the time that took on this machine, as ``trace_seconds`` is
    that of the recordings (``traces``), with what torch loads for the first in a process.
    ``plain`` counts the threads that ran as plain Python, each by itself, which is one block
    execution for all of them.
    ``recomputed`` are the replays and moves of rows that ran once more for a backward, and
    ``offloaded`` the bytes that went to the host, whenever that was. ``shared_writes`` are the
    writes to tensors that all threads share, of one call one for each tensor.
    """

    block_executions: int = 0
    traces: int = 0
    host_reads: int = 0
    other_reads: Counter[str] = field(default_factory=Counter)
    row_copies: int = 0
    launches: int = 0
    fallbacks: int = 0
    meant: int = 0
    recomputed: int = 0
    offloaded: int = 0
    shared_writes: int = 0
    iterations: int = 0
    given_up: int = 0
    plain: int = 0
    plain_parts: int = 0
    compilations: int = 0
    reloaded: int = 0
    compile_seconds: float = field(default=0.0, compare=False)
    trace_seconds: float = field(default=0.0, compare=False)
    by_block: Counter[tuple[str, int]] = field(default_factory=Counter)
    threads_by_block: Counter[tuple[str, int]] = field(default_factory=Counter)
    reads_by_block: Counter[tuple[str, int]] = field(default_factory=Counter)
    traces_by_block: Counter[tuple[str, int]] = field(default_factory=Counter)
    launches_by_block: Counter[tuple[str, int]] = field(default_factory=Counter)
    copies_by_block: Counter[tuple[str, int]] = field(default_factory=Counter)
    fallbacks_by_place: Counter[Place] = field(default_factory=Counter)
    meant_by_place: Counter[Place] = field(default_factory=Counter)

    @property
    def by_thread(self) -> int:
        """All operations that ran thread by thread."""
        return self.fallbacks + self.meant


_ACTIVE: ContextVar[tuple[Counts, ...]] = ContextVar("autobatch.counts", default=())


@contextmanager
def counts() -> Iterator[Counts]:
    """Counts of the runs that this host thread makes inside the ``with``."""
    collected = Counts()
    token = _ACTIVE.set((*_ACTIVE.get(), collected))
    try:
        yield collected
    finally:
        _ACTIVE.reset(token)


def is_counting() -> bool:
    """Whether anybody counts the runs of this host thread."""
    return bool(_ACTIVE.get())


class Tally:
    """Feeds the active ``Counts``, or those given; ``block`` is the function and block at work.

    ``trial`` watches whether the run is better begun again; see ``autobatch.runs.trial``. ``shown``
    is whether it has done what others can see, so that it cannot begin again.
    """

    __slots__ = ("active", "block", "shown", "trial")

    def __init__(self, counts: tuple[Counts, ...] | None = None) -> None:
        self.active = _ACTIVE.get() if counts is None else counts
        self.block: tuple[str, int] = ("", 0)
        self.trial: Trial | None = None
        self.shown = False

    @property
    def listens(self) -> bool:
        """Whether anyone is told of what it counts."""
        return bool(self.active)

    def execution(self, threads: int) -> None:
        if self.trial is not None:
            self.trial.block(threads)
        for counts in self.active:
            counts.block_executions += 1
            counts.by_block[self.block] += 1
            counts.threads_by_block[self.block] += threads

    def executions(self, number: int, threads: int, launches: int, reads: int) -> None:
        """So many of the block at work, for ``threads`` in all, with what their branches read."""
        if self.trial is not None:
            self.trial.blocks(number, threads, launches)
        for counts in self.active:
            counts.block_executions += number
            counts.by_block[self.block] += number
            counts.threads_by_block[self.block] += threads
            counts.launches += launches
            counts.launches_by_block[self.block] += launches
            counts.host_reads += reads
            counts.reads_by_block[self.block] += reads

    def by_itself(self, function: str, threads: int, rounds: int, given_up: int) -> None:
        """A launch of machine code, in which each thread went its own way."""
        self.block = (function, 0)
        self.execution(threads)
        self.launch()
        for counts in self.active:
            counts.iterations += rounds
            counts.given_up += given_up

    def went_back(self, iterations: int) -> None:
        """Ways back in loops that were no block executions of their own."""
        for counts in self.active:
            counts.iterations += iterations

    def as_plain(self, function: str, threads: int, given_up: int) -> None:
        """Threads have run as plain Python, each by itself."""
        self.block = (function, 0)
        self.execution(threads)
        for counts in self.active:
            counts.plain += threads - given_up
            counts.given_up += given_up

    def one_by_one(self) -> None:
        """An operation runs once for each thread; what is only looked up on an object does not."""
        if self.trial is not None:
            self.trial.by_thread()

    def part(self, threads: int) -> None:
        """Threads have run a part of their program as plain Python, each by itself."""
        if self.trial is not None:
            self.trial.part(threads)
        for counts in self.active:
            counts.plain_parts += threads

    def compilation(self, number: int, reloaded: int, seconds: float) -> None:
        for counts in self.active:
            counts.compilations += number
            counts.reloaded += reloaded
            counts.compile_seconds += seconds

    def host_read(self, reason: str) -> None:
        for counts in self.active:
            if reason in ("branch", "check"):
                counts.host_reads += 1
                counts.reads_by_block[self.block] += 1
            else:
                counts.other_reads[reason] += 1

    def launch(self, number: int = 1) -> None:
        if self.trial is not None:
            self.trial.launch(number)
        for counts in self.active:
            counts.launches += number
            counts.launches_by_block[self.block] += number

    def cold(self) -> None:
        """The block at work does what it will not do when it runs again."""
        if self.trial is not None:
            self.trial.watch.is_cold = True

    def waits(self, operations: int) -> None:
        """So many of the block at work wait to be recorded."""
        if self.trial is not None:
            self.trial.watch.waiting += operations

    def trace(self, seconds: float) -> None:
        self.cold()
        for counts in self.active:
            counts.traces += 1
            counts.trace_seconds += seconds
            counts.traces_by_block[self.block] += 1

    def copies(self, rows: int) -> None:
        for counts in self.active:
            counts.row_copies += rows
            counts.copies_by_block[self.block] += rows

    def again(self, calls: int) -> None:
        for counts in self.active:
            counts.recomputed += calls

    def moved(self, size: int) -> None:
        for counts in self.active:
            counts.offloaded += size

    def applied(self, writes: int) -> None:
        for counts in self.active:
            counts.shared_writes += writes

    def fallback(self, span: Span | None, what: str, why: str, meant: Callable[[], bool]) -> None:
        """What runs thread by thread; ``meant`` says whether that is no fallback."""
        if not self.active:
            return
        place = (*((span.file, span.line) if span is not None else ("", 0)), what, why)
        is_meant = meant()
        for counts in self.active:
            if is_meant:
                counts.meant += 1
                counts.meant_by_place[place] += 1
            else:
                counts.fallbacks += 1
                counts.fallbacks_by_place[place] += 1
