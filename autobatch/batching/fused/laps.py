"""Several laps of a loop to one launch: a lap that is one kernel, as it is made for several.

The first result of the kernel is held to that of launches of one lap each, by the recording. Where
it cannot be made, or computes something else, ``why`` says why, and the loop goes on lap by lap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from time import perf_counter
from typing import Any

from torch import Tensor

from autobatch.batching.fused.elements import LONGEST, Whole, event_of
from autobatch.batching.fused.inductor import Unfusible
from autobatch.batching.fused.pure import without_writes
from autobatch.batching.fused.replays import FusedReplay, fused
from autobatch.batching.fused.unrolling import Loop, one_by_one, refusal, unrolled
from autobatch.batching.trace.codegen import Replay
from autobatch.batching.trace.graph import Graph
from autobatch.batching.trace.recorder import outside
from autobatch.compat import within_duals

LAPS = 4
"""To one launch. Of eight, a kernel's values no longer fit into a machine's registers."""

Holds = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Any]], bool]


@dataclass(slots=True, eq=False, repr=False)
class Laps:
    """``LAPS`` laps of a loop whose lap is ``lap``, by the recording of ``graph``.

    Called as a replay is; it gives its results, and how often each thread went back in between.
    ``left`` laps make it hot, or ``seconds`` of them where that is said.
    """

    graph: Graph
    lap: Replay
    loop: Loop
    numbers: Mapping[int, int | float]
    left: int
    seconds: float | None
    why: str = ""
    made: FusedReplay | None = None
    slow: Replay = field(init=False)
    lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.slow = one_by_one(self.lap, self.loop, LAPS)

    def is_due(self, laps: int, seconds: float) -> bool:
        """Whether to go by it from now on, after so many more laps, which took so long."""
        if self.made is not None or self.why:
            return not self.why
        self.left -= laps
        if self.seconds is None:
            return self.left <= 0
        self.seconds -= seconds
        return self.seconds <= 0

    def __call__(self, k: int, *values: Any) -> Sequence[Tensor]:
        return self.slow(k, *values) if self.made is None else self.made.replay(k, *values)

    def make(self, holds: Holds, k: int, values: Sequence[Any]) -> tuple[int, int, float] | None:
        """Make the kernel, unless another host thread does.

        The kernels that were compiled, those that torch had kept, and the seconds that it took.
        """
        if k < 2 or within_duals() or not self.lock.acquire(blocking=False):
            return None
        try:
            return None if self.why or self.made is not None else self.heat(holds, k, values)
        finally:
            self.lock.release()

    def heat(self, holds: Holds, k: int, values: Sequence[Any]) -> tuple[int, int, float]:
        begin = perf_counter()
        made = None
        try:
            graph = several(self.graph, self.loop)
            made = outside(lambda: fused(graph, self.slow, self.numbers))
            if not made.is_whole:
                raise Unfusible("several laps are not one kernel")
            values = [v.contiguous() if isinstance(v, Tensor) else v for v in values]
            if not holds(self.slow(k, *values), made.replay(k, *values), values):
                raise Unfusible("several laps in one kernel gave another result than torch")
            self.made = made
        except Exception as error:  # of the compiler, or what it has made
            self.why = str(error) if isinstance(error, Unfusible) else f"{error!r}"
        fresh = 0 if made is None else made.compilations
        return fresh, (0 if made is None else made.fused - fresh), perf_counter() - begin


def several(graph: Graph, loop: Loop) -> Graph:
    """The graph of several laps, of which a kernel computes each element by itself."""
    graph = without_writes(graph)
    why = refusal(graph, loop)
    if why:
        raise Unfusible(why)
    made = unrolled(graph, loop, LAPS)
    try:
        total = sum(elements(made, out) for node in made.nodes for out in node.outs)
    except Whole:
        raise Unfusible("threads have many numbers each") from None
    if total > LONGEST:
        raise Unfusible("a lap is long")
    return made


def elements(graph: Graph, value: int | None) -> int:
    """How many numbers each thread has of a value."""
    total = 1
    for size in () if value is None else event_of(graph.metas[value]):
        total *= size
    return total
