"""Measures: workload × batch size × system, interleaved, each against the others of its round.

In: workloads, batch sizes, names of systems, seconds for each cell of workload × batch.
Out: one ``Measurement`` per system and cell, with the ratio to the hand-written loop that
compacts at every step and to the plain loop. A system's result is checked against the
plain loop's on a sample of rows before it is timed. Where a batch is large, the plain
loop runs that sample only, and its time is scaled to the batch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import autobatch
from benchmarks import handwritten
from benchmarks.workload import Problem, Workload

SAMPLE = 32
LOOP = "loop"
BASELINE = "compacting"
Run = Callable[[], Any]

SYSTEMS: dict[str, Callable[[Problem], Run]] = {
    "autobatch": lambda p: _batched(p, {}),
    "autobatch-vmap": lambda p: _batched(p, {"executor": "vmap"}),
    LOOP: lambda p: lambda: plain_loop(p, sample_rows(p)),
    "masked": lambda p: lambda: handwritten.masked(p.loop()),
    BASELINE: lambda p: lambda: handwritten.compacting(p.loop()),
    "compacting-at-half": lambda p: lambda: handwritten.compacting_at_half(p.loop()),
}
DEFAULT_SYSTEMS = ("autobatch", LOOP, "masked", BASELINE, "compacting-at-half")


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds for the whole batch; ``to_compacting`` and ``to_loop`` are ratios of medians."""

    workload: str
    batch: int
    system: str
    median: float
    fastest: float
    slowest: float
    rounds: int
    to_compacting: float | None
    to_loop: float | None
    failure: str = ""


def _batched(problem: Problem, options: dict[str, Any]) -> Run:
    batched = autobatch.vmap(problem.function, **options)
    return lambda: batched(*problem.inputs)


def sample_rows(problem: Problem) -> list[int]:
    """At most ``SAMPLE`` rows, evenly spread."""
    batch = len(problem.inputs[0])
    return [i * batch // SAMPLE for i in range(SAMPLE)] if batch > SAMPLE else list(range(batch))


def plain_loop(problem: Problem, rows: Sequence[int]) -> Tensor:
    """The program on one row after the other, on 0-d tensors; results stacked."""
    return torch.stack(
        [torch.as_tensor(problem.function(*(x[i] for x in problem.inputs))) for i in rows]
    )


def measure(
    workloads: Sequence[Workload],
    batches: Sequence[int],
    systems: Sequence[str],
    seconds: float,
) -> Iterator[list[Measurement]]:
    """One list of measurements for each workload and batch size that fits."""
    with torch.no_grad():
        for workload in workloads:
            for batch in batches:
                if batch <= workload.largest:
                    yield measure_cell(workload, batch, systems, seconds)


def measure_cell(
    workload: Workload, batch: int, systems: Sequence[str], seconds: float
) -> list[Measurement]:
    problem = workload.make(batch)
    rows = sample_rows(problem)
    expected = plain_loop(problem, rows)
    runs: dict[str, Run] = {}
    failures: dict[str, str] = {}
    for system in systems:
        runs[system] = SYSTEMS[system](problem)
        failure = failure_of(system, runs[system], rows, expected, workload.tolerance)
        if failure:
            failures[system] = failure
            del runs[system]
    times = interleave(runs, seconds)
    if LOOP in times:
        times[LOOP] = [t * batch / len(rows) for t in times[LOOP]]
    cell = workload.name, batch
    return [_summary(cell, s, times) if s in times else _failed(cell, s, failures) for s in systems]


def failure_of(system: str, run: Run, rows: list[int], expected: Tensor, tolerance: float) -> str:
    """Why the system's result is not the plain loop's; empty if it is. Runs it twice: warm."""
    try:
        run()
        result = run()
        torch.testing.assert_close(
            result if system == LOOP else result[rows], expected, rtol=tolerance, atol=tolerance
        )
    except Exception as error:  # one system that fails must not end the others' measurement
        return f"{type(error).__name__}: {error}"
    return ""


def interleave(runs: dict[str, Run], seconds: float, most: int = 25) -> dict[str, list[float]]:
    """Rounds of all runs in rotating order, at least three and then while ``seconds`` last."""
    names = list(runs)
    times: dict[str, list[float]] = {name: [] for name in names}
    deadline = time.perf_counter() + seconds
    for number in range(most):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            start = time.perf_counter()
            runs[name]()
            times[name].append(time.perf_counter() - start)
        if number >= 2 and time.perf_counter() > deadline:
            break
    return times


def _summary(cell: tuple[str, int], system: str, times: dict[str, list[float]]) -> Measurement:
    own = times[system]
    median = statistics.median(own)

    def ratio(other: str) -> float | None:
        return median / statistics.median(times[other]) if other in times else None

    return Measurement(
        *cell, system, median, min(own), max(own), len(own), ratio(BASELINE), ratio(LOOP)
    )


def _failed(cell: tuple[str, int], system: str, failures: dict[str, str]) -> Measurement:
    nan = float("nan")
    return Measurement(*cell, system, nan, nan, nan, 0, None, None, failures[system])
