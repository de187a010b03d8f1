"""Whether kernels are worth making: what they may spare of a replay, against what making takes.

In: a recording, rows of it, and what compiling has taken in this process. Out: how long replays of
it are to have taken before it is compiled: as long as the part of them that kernels may spare is
what compiling takes. So a job never takes more than about twice what it would have by the better
choice, whichever comes to be that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from autobatch.batching.fused.inductor import Unfusible, missing
from autobatch.batching.fused.regions import Part, cut
from autobatch.batching.trace.bindings import Example
from autobatch.batching.trace.codegen import compile_graph
from autobatch.batching.trace.graph import Graph

FIRST = 4.0
"""Seconds that a kernel is taken to need until one has been made."""
LEAST = 0.05
"""What of a replay's time kernels must hold: of less, not enough can be spared."""
ROUNDS = 5


@dataclass(slots=True, eq=False, repr=False)
class Prices:
    """What ``kernels`` kernels have taken to be made: ``seconds``, those out of a cache too."""

    kernels: int = 0
    seconds: float = 0.0

    def add(self, kernels: int, seconds: float) -> None:
        self.kernels += kernels
        self.seconds += seconds

    @property
    def kernel(self) -> float:
        """Seconds that the next one is expected to take."""
        return self.seconds / self.kernels if self.kernels else FIRST


def after(
    graph: Graph, numbers: Mapping[int, int | float], prices: Prices, k: int, values: Sequence[Any]
) -> float:
    """The seconds of replays after which kernels pay; ``Unfusible`` if they never do."""
    if missing():
        raise Unfusible(missing())
    graph, parts = cut(graph, numbers)
    share = spared(graph, parts, numbers, k, values)
    if share < LEAST:
        raise Unfusible(f"kernels could hold only {share:.0%} of what it takes")
    return prices.kernel * sum(part.is_region for part in parts) / share


def spared(
    graph: Graph,
    parts: Sequence[Part],
    numbers: Mapping[int, int | float],
    k: int,
    values: Sequence[Any],
) -> float:
    """Which part of a replay's time the regions take, measured part by part."""
    env: dict[int, Any] = {**graph.literals, **dict(enumerate(values))}
    taken = {True: 0.0, False: 0.0}
    for part in parts:
        known = {i: numbers[v] for i, v in enumerate(part.ins) if v in numbers}
        run, _ = compile_graph(part.graph, Example(211, known), (), False)
        given = [env[value] for value in part.ins]
        env.update(zip(part.outs, run(k, *given), strict=True))
        taken[part.is_region] += fastest(run, k, given)
    return taken[True] / max(sum(taken.values()), 1e-9)


def fastest(run: Callable[..., Any], k: int, values: Sequence[Any]) -> float:
    """Seconds of the fastest of some replays."""
    found = []
    for _ in range(ROUNDS):
        begin = perf_counter()
        run(k, *values)
        found.append(perf_counter() - begin)
    return min(found)
