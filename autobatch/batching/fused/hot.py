"""``Hot``: a recording that is replayed as it stands until it is hot, and by fused kernels then.

The first result of the kernels is held to that of the recording on the same rows, so the caller
gets the recording's until then. Where kernels cannot be made, or compute something else, the
recording goes on for good, and ``why`` says why.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor

from autobatch.batching.closeness import are_close
from autobatch.batching.fused.inductor import Unfusible
from autobatch.batching.fused.laps import LAPS, Laps
from autobatch.batching.fused.paying import Prices, after, fastest
from autobatch.batching.fused.replays import FusedReplay, fused
from autobatch.batching.fused.unrolling import Loop
from autobatch.batching.trace import Trace, Untraceable
from autobatch.batching.trace.recorder import outside
from autobatch.compat import storage_id, within_duals, within_level
from autobatch.source import Span

LOG = logging.getLogger("autobatch")
IN_A_LOOP = 0.85
"""What kernels beside torch's own must take, of what a recording does that a loop replays: its
rounds glide no more then, keep nothing, and write over nothing. Kernels that took 0.93 of the
replay made 1.07 of the time of the LSTM at 1,024 threads, 0.88 made 1.10 of the fixed point at 64.
"""
CHEAPER = 8
"""How many operations inside a kernel cost what one costs that is a kernel."""


class Tally(Protocol):
    """Where compilations are counted."""

    def compilation(self, number: int, reloaded: int, seconds: float) -> None: ...


@dataclass(slots=True, eq=False, repr=False, weakref_slot=True)
class Hot:
    """``now`` is what runs; ``left`` replays until it is hot, or as many ``seconds`` of them where
    that is said: then it is measured when it pays to compile it, at ``prices``, and which of the
    two is faster. ``numbers`` are examples of
    the inputs that are numbers, ``tally`` makes what counts for the runs that are at work, ``span``
    is where the stretch begins. ``loops`` are several laps of it, where it is a loop's. ``replays``
    that were timed have ``spent`` seconds. ``without`` some of its last results, by how many, are
    those where checks are known to hold. ``looped``: a loop has replayed its recording.
    """

    trace: Trace
    numbers: Mapping[int, int | float]
    left: int
    tally: Callable[[], Tally]
    span: Span | None = None
    seconds: float | None = None
    prices: Prices = field(default_factory=Prices)
    weighed: bool = False
    replays: int = 0
    spent: float = 0.0
    loops: dict[Loop, Laps] = field(default_factory=dict)
    begun: int = field(init=False)
    why: str = ""
    made: FusedReplay | None = None
    now: Callable[..., Sequence[Tensor]] = field(init=False)
    lock: Lock = field(default_factory=Lock)
    without: dict[int, Hot] = field(default_factory=dict)
    looped: bool = False

    def __post_init__(self) -> None:
        self.begun = self.left * max(self.trace.kernels, 1)
        self.now = self.counted if self.seconds is None else self.timed

    def rest(self, why: str) -> None:
        """Stay with the recording, if there is a reason to."""
        if why:
            self.why, self.now = why, self.trace.replay

    @property
    def recording(self) -> Trace | None:
        """What a loop may replay in its stead, which tells it how often (``ran``); None where the
        next call of it is to be its own.
        """
        return self.trace if self.made is None and self.room > 0 else None

    @property
    def room(self) -> float:
        """How many replays, about, before it is due to be compiled."""
        if self.why:
            return math.inf
        if self.seconds is None:
            return self.left - 1
        return self.seconds * self.replays / self.spent if self.spent else 0

    def ran(self, times: int) -> None:
        """The recording has been replayed so many times elsewhere, each of them as ever."""
        if self.why or self.made is not None:
            return
        self.looped = True
        if self.seconds is None:
            self.left -= times
        elif self.replays:
            took = times * self.spent / self.replays
            self.seconds -= took
            self.spent += took
            self.replays += times

    def sure(self, masks: int) -> Hot:
        """The same of its recording where so many of its last results are known to be false."""
        found = self.without.get(masks)
        if found is None:
            trace, left = self.trace.sure(masks), self.left
            rest = (self.span, self.seconds, self.prices)
            found = Hot(trace, self.numbers, left, self.tally, *rest)
            found.rest(self.why)
            self.without[masks] = found
        return found

    @property
    def told(self) -> str:
        """What has become of it, for people."""
        for other in self.without.values():
            if other.made is not None:
                return other.told
        if self.why:
            return f"not compiled: {self.why}"
        if self.made is None:
            return "not compiled: it has not run often enough"
        kernels = f"{self.made.fused} kernel{'s' if self.made.fused > 1 else ''}"
        laps = any(each.made is not None for each in self.loops.values())
        together = f", {LAPS} laps to a launch" if laps else ""
        return f"compiled: {self.made.operations} operations in {kernels}{together}"

    @property
    def measured(self) -> str:
        """What a replay of the recording has taken in the runs so far, where that was timed."""
        if not self.replays:
            return ""
        each = 1e6 * self.spent / self.replays
        return f"{each:,.0f} µs a replay as recorded, on average of {self.replays:,} earlier"

    def __call__(self, k: int, *values: Any) -> Sequence[Tensor]:
        return self.now(k, *values)

    @property
    def kernels(self) -> int:
        return self.trace.kernels if self.made is None else self.made.kernels

    @property
    def price(self) -> int:
        """How many kernels of one operation it costs as much as, where rows are many."""
        made = self.made
        return self.kernels if made is None else made.kernels + made.operations // CHEAPER

    @property
    def is_whole(self) -> bool:
        """Whether kernels are all of it: they hold nothing that fails on any row."""
        return self.made is not None and self.made.is_whole

    @property
    def is_safe(self) -> bool:
        """Whether it may run for rows of threads that are not there."""
        return self.is_whole or self.trace.is_safe

    @property
    def row_cost(self) -> float | None:
        """What the recording costs for one row more; None where it is kernels, see ``price``."""
        return None if self.is_whole else self.trace.row_cost

    def counted(self, k: int, *values: Any) -> Sequence[Tensor]:
        """A replay of the recording, and the kernels once there have been enough."""
        outs = self.trace.replay(k, *values)
        self.left -= 1
        if self.left <= 0:
            self.once(outs, k, values)
        return outs

    def timed(self, k: int, *values: Any) -> Sequence[Tensor]:
        """The same, by the time that replays have taken."""
        begin = perf_counter()
        outs = self.trace.replay(k, *values)
        assert self.seconds is not None
        took = perf_counter() - begin
        self.replays += 1
        self.spent += took
        self.seconds -= took
        if self.seconds <= 0:
            self.once(outs, k, values)
        return outs

    def once(self, outs: Sequence[Tensor], k: int, values: Sequence[Any]) -> None:
        """Make the kernels, where sizes are not special, in one host thread."""
        if k > 1 and not within_duals() and self.lock.acquire(blocking=False):
            try:
                if not self.why and self.made is None and self.pays(k, values):
                    self.heat(outs, k, values)
            finally:
                self.lock.release()

    def pays(self, k: int, values: Sequence[Any]) -> bool:
        """Whether replays have taken long enough; the first time, what is long is measured."""
        if self.seconds is None or self.weighed:
            return True
        self.weighed = True
        try:
            more = after(self.trace.graph, self.numbers, self.prices, k, values)
        except Unfusible as refused:
            self.rest(str(refused))
            return False
        self.seconds += more
        return self.seconds <= 0

    def heat(self, outs: Sequence[Tensor], k: int, values: Sequence[Any]) -> None:
        """Make the kernels and hold them to ``outs``, which the recording has made."""
        begin = perf_counter()
        made = None
        try:
            made = outside(lambda: fused(self.trace.graph, self.trace.replay, self.numbers))
            self.check(made, outs, k, values)
        except (Unfusible, Untraceable) as refused:
            self.rest(str(refused))
        except Exception as error:  # of the compiler, or what it has made
            self.rest(f"{type(error).__name__}: {error}")
        if self.why:
            LOG.info("%s: not compiled: %s", self.span, self.why)
        if made is not None:
            fresh = made.compilations
            took = perf_counter() - begin
            self.tally().compilation(fresh, made.fused - fresh, took)
            self.prices.add(made.fused, took)
            if not self.why:
                self.made, self.now = made, made.replay

    def laps(self, loop: Loop) -> Laps:
        """Several laps of the loop whose lap this is, which is one kernel."""
        found = self.loops.get(loop)
        if found is None:
            wait = None if self.seconds is None else self.prices.kernel
            graph, lap = self.trace.graph, self.trace.replay
            made = Laps(graph, lap, loop, self.numbers, self.begun, wait)
            found = self.loops.setdefault(loop, made)
        return found

    def launched(self, laps: Laps, k: int, *values: Any) -> Sequence[Tensor]:
        """The results of several laps, which makes their kernel the first time."""
        if laps.made is None:
            told = laps.make(alike, k, values)
            if told is not None:
                self.tally().compilation(*told)
                self.prices.add(1, told[2])
        return laps(k, *values)

    def check(
        self, made: FusedReplay, outs: Sequence[Tensor], k: int, values: Sequence[Any]
    ) -> None:
        """Hold the kernels to what the recording gives; they want some of the inputs dense."""
        if not all(values[place].is_contiguous() for place in made.dense):
            values = [v.contiguous() if i in made.dense else v for i, v in enumerate(values)]
            outs = self.trace.replay(k, *values)
        if not alike(outs, made.replay(k, *values), values):
            raise Unfusible("its kernels gave another result than torch")
        if self.seconds is not None:
            old, new = (fastest(run, k, values) for run in (self.trace.replay, made.replay))
            limit = IN_A_LOOP if self.looped and not made.is_whole else 1
            if new > limit * old:
                raise Unfusible("its kernels are slower than torch's")


def alike(outs: Sequence[Tensor], others: Sequence[Tensor], inputs: Sequence[Any]) -> bool:
    """Whether kernels gave the same, laid out alike, in memory of its own or of the same inputs."""
    if [places(out, outs, inputs) for out in outs] != [
        places(out, others, inputs) for out in others
    ]:
        return False
    pairs = zip(outs, others, strict=True)
    return all(one.stride() == other.stride() and are_close(one, other) for one, other in pairs)


def places(out: Tensor, outs: Sequence[Tensor], inputs: Sequence[Any]) -> list[int]:
    """Which results and inputs a result shares its memory with."""
    shared = storage_id(out)
    others = [*outs, *(value if isinstance(value, Tensor) else None for value in inputs)]
    return [i for i, o in enumerate(others) if o is not None and storage_id(o) == shared]


def reason_against(inputs: Sequence[Any]) -> str:
    """Why a stretch that is recorded now is not to be compiled; empty if it may be."""
    tensors = [each.value for each in inputs if isinstance(each.value, Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "gradients flow through it"
    if within_level():
        return "a transform is at work"
    if any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")):
        return "autocast is on"
    if any(tensor.device.type != "cpu" for tensor in tensors):
        return "it does not run on the CPU"
    return ""
