"""Measures: workload × batch size × pass × system, interleaved, against one another.

In: workloads, batch sizes, passes (``inference``, ``training``: forward and backward), names
of systems, seconds for each cell. Out: one ``Measurement`` per system and cell, with the
ratios to the problem's first hand-written way and to the plain loop. A system's result, and
in training the parameters' gradients, are checked against the plain loop's on a sample of
rows before it is timed. Where a batch is large, the plain loop runs that sample only, and its
time and its launches are scaled to the batch. A system that is expected to take more than
``longest`` seconds a run, in proportion to what it took for the batch before, is left out.

Seconds are the process's own, so what else runs on the machine counts little; on a CUDA device
they are the wall clock's, until it has finished.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor

import autobatch
from benchmarks.counting import Counting
from benchmarks.systems import (
    COMPILED,
    LOOP,
    NATIVE,
    System,
    plain_loop,
    rows_of,
    sample_rows,
    systems_of,
    total,
    trained,
)
from benchmarks.workload import Problem, Run, Workload

PASSES = ("inference", "training")
LONG = 60.0
WARMING = 8
"""Runs at most, in which a system may still record, once it has run for ``WARM``."""
WARM = 0.3
"""Seconds: of small programs a place is recorded when it has been come to some hundred times."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What its systems are measured on together."""

    workload: str
    batch: int
    kind: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds for the whole batch; ``to_hand`` and ``to_loop`` are ratios of medians.

    ``width`` is how many of the plain loop's launches one launch stands for; ``peak_bytes`` are
    those of tensors. ``analysis``: of dynamic batching, the part of its time that is not
    kernels.
    """

    workload: str
    batch: int
    kind: str
    system: str
    median: float = float("nan")
    fastest: float = float("nan")
    slowest: float = float("nan")
    rounds: int = 0
    to_hand: float | None = None
    to_loop: float | None = None
    launches: int | None = None
    width: float | None = None
    peak_bytes: int | None = None
    analysis: float | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """``peak_bytes``: None of machine code, whose memory is not torch's."""

    launches: int
    peak_bytes: int | None


def measure(
    workloads: Sequence[Workload],
    batches: Sequence[int],
    passes: Sequence[str],
    systems: Sequence[str],
    seconds: float,
    device: str = "cpu",
    longest: float = LONG,
) -> Iterator[list[Measurement]]:
    """One list of measurements for each workload, batch size and pass that fits."""
    for workload in workloads:
        known: dict[tuple[str, str], Measurement] = {}
        for batch in batches:
            if batch <= workload.largest:
                problem = workload.make(batch, device)
                chosen = systems_of(workload.name, problem, systems)
                for kind in passes:
                    if kind == "inference" or problem.parameters:
                        cell = Cell(workload.name, batch, kind)
                        long = too_long(known, cell, longest)
                        able = {name: each for name, each in chosen.items() if name not in long}
                        found = measure_cell(cell, problem, workload.tolerance, able, seconds)
                        known |= {(kind, m.system): m for m in found if not m.failure}
                        yield found + list(long.values())


def too_long(
    known: Mapping[tuple[str, str], Measurement], cell: Cell, longest: float
) -> dict[str, Measurement]:
    """The systems that a run of a cell is expected to take longer; not the loop, which is scaled.

    ``known`` are the last measurements, by pass and system.
    """
    found: dict[str, Measurement] = {}
    for (kind, name), last in known.items():
        expected = last.median * cell.batch / last.batch
        if kind == cell.kind and name != LOOP and expected > longest:
            failure = f"about {expected:.0f} s a run, by the {last.median:.1f} at {last.batch}"
            found[name] = Measurement(**_of(cell), system=name, failure=failure)
    return found


def measure_cell(
    cell: Cell,
    problem: Problem,
    tolerance: float,
    systems: Mapping[str, System],
    seconds: float,
) -> list[Measurement]:
    if cell.kind == "training":
        systems = {name: system for name, system in systems.items() if system.trains}
    with torch.set_grad_enabled(cell.kind == "training"):
        check = Check(cell, problem, tolerance)
        failures = {name: check.failure(name, system) for name, system in systems.items()}
        able = {name: system for name, system in systems.items() if not failures[name]}
        if cell.kind == "training":
            able = {name: trained(system, problem) for name, system in able.items()}
        counts: dict[str, Counts | None] = {}
        for name, system in list(able.items()):
            try:
                counts[name] = counted(system.run, name == COMPILED)
            except Exception as error:
                failures[name] = told(error)
                del able[name]
        times, shares = timed(able, seconds)
        if LOOP in able:
            times[LOOP] = [t * _scale(problem) for t in times[LOOP]]
            counts[LOOP] = loop_counts(problem, counts[LOOP])
    summary = Summary(cell, next(iter(problem.by_hand), ""), times, counts, shares)
    failed = [Measurement(**_of(cell), system=s, failure=f) for s, f in failures.items() if f]
    return [summary.of(name) for name in times] + failed


def told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _scale(problem: Problem) -> float:
    return problem.batch / len(sample_rows(problem))


def loop_counts(problem: Problem, sample: Counts | None) -> Counts | None:
    """Of the whole batch; on tensors also where the loop's numbers are Python's."""
    if problem.options.get("scalars") == "python":
        on_tensors = replace(problem, options={})
        sample = counted(lambda: plain_loop(on_tensors, sample_rows(problem)))
    return sample and Counts(round(sample.launches * _scale(problem)), sample.peak_bytes)


@dataclass(frozen=True)
class Check:
    """Holds a system against the plain loop, on a sample of rows."""

    cell: Cell
    problem: Problem
    tolerance: float

    @cached_property
    def expected(self) -> tuple[Any, Sequence[Tensor]]:
        """The loop's result, and in training its gradients."""
        result = plain_loop(self.problem, sample_rows(self.problem))
        trains = self.cell.kind == "training"
        return result, _scaled(self._gradients(result)) if trains else ()

    def failure(self, name: str, system: System) -> str:
        """Why the result is not the plain loop's; empty if it is. It is warm then."""
        rows = sample_rows(self.problem)
        try:
            result = warmed(system.run)
            self._compare(system, result if name == LOOP else rows_of(result, rows))
        except Exception as error:  # one system that fails must not end the others' measurement
            return told(error)
        return ""

    def _compare(self, system: System, result: Any) -> None:
        rows = sample_rows(self.problem)
        expected, gradients = self.expected
        self._close(result, expected)
        if self.cell.kind != "training":
            return
        if system.other is None:
            self._close(_scaled(self._gradients(result)), gradients)
        elif len(rows) == self.problem.batch:  # it trains on the whole batch, never on a sample
            assert system.other.train is not None
            self._close(_scaled(system.other.train()), gradients)

    def _gradients(self, result: Any) -> Sequence[Tensor]:
        return torch.autograd.grad(total(result), self.problem.parameters, materialize_grads=True)

    def _close(self, actual: Any, expected: Any) -> None:
        rtol = atol = self.tolerance
        # The loop's numbers lie on no device.
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, check_device=False)


def warmed(run: Run) -> Any:
    """The result of a run that recorded nothing, after one at least."""
    run()
    began = clock()
    for number in count():
        with autobatch.counts() as counts:
            result = run()
        if not counts.block_executions:
            break
        if clock() - began >= WARM and (not counts.traces or number >= WARMING):
            break
    return result


def _scaled(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Sums over many examples and steps: relative to the largest, as rounding is."""
    return [gradient / (gradient.abs().max() + 1e-12) for gradient in gradients]


def counted(run: Run, compiles: bool = False) -> Counts | None:
    """None of a system that launches nothing through torch.

    Under a mode nothing runs as machine code; where it ``compiles``, that is counted as it runs.
    """
    if compiles:
        with autobatch.counts() as own:
            run()
        if own.iterations:
            return Counts(own.launches, None)
    with Counting() as found:
        run()
    return Counts(found.launches, found.peak_bytes) if found.launches else None


def clock() -> float:
    """Seconds: of the process, or of the wall where work that was given to a CUDA device ends."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        return perf_counter()
    return process_time()


Times = dict[str, list[float]]


def timed(systems: Mapping[str, System], seconds: float) -> tuple[Times, dict[str, float]]:
    """The systems' times, dynamic batching's at native prices too, and its analysis share."""
    native: Times = {name + NATIVE: [] for name, system in systems.items() if system.dynamic}
    shares: dict[str, float] = {}

    def after(name: str, took: float) -> None:
        dynamic = systems[name].dynamic
        if dynamic:
            native[name + NATIVE].append(systems[name].native(took))
            shares[name] = (dynamic.phases.building + dynamic.phases.analysis) / took

    times = interleave({name: system.run for name, system in systems.items()}, seconds, after)
    return times | native, shares


def least(
    runs: Sequence[Run], repeats: int, clock: Callable[[], float] = perf_counter
) -> list[float]:
    """The least seconds of each, in turns."""
    found = [float("inf")] * len(runs)
    for _ in range(repeats):
        for at, run in enumerate(runs):
            begun = clock()
            run()
            found[at] = min(found[at], clock() - begun)
    return found


def interleave(
    runs: Mapping[str, Run],
    seconds: float,
    after: Callable[[str, float], None] = lambda name, took: None,
    most: int = 25,
) -> Times:
    """Rounds of all runs in rotating order, at least three and then while ``seconds`` last.

    Where a round takes minutes, one is enough.
    """
    names = list(runs)
    times: Times = {name: [] for name in names}
    began = clock()
    for number in range(most if names else 0):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            start = clock()
            runs[name]()
            times[name].append(clock() - start)
            after(name, times[name][-1])
        if clock() - began > (seconds if number >= 2 else max(seconds, LONG)):
            break
    return times


@dataclass(frozen=True, slots=True)
class Summary:
    """A cell's times and counts, and what they are held against."""

    cell: Cell
    by_hand: str
    times: Times
    counts: Mapping[str, Counts | None]
    shares: dict[str, float]

    def of(self, system: str) -> Measurement:
        own = self.times[system]
        counts = self.counts.get(system.removesuffix(NATIVE))
        loop = self.counts.get(LOOP)
        width = loop.launches / counts.launches if loop and counts else None
        return Measurement(
            **_of(self.cell),
            system=system,
            median=statistics.median(own),
            fastest=min(own),
            slowest=max(own),
            rounds=len(own),
            to_hand=self._ratio(own, self.by_hand),
            to_loop=self._ratio(own, LOOP),
            launches=counts.launches if counts else None,
            width=width,
            peak_bytes=counts.peak_bytes if counts else None,
            analysis=self.shares.get(system),
        )

    def _ratio(self, own: list[float], other: str) -> float | None:
        if other not in self.times:
            return None
        return statistics.median(own) / statistics.median(self.times[other])


def _of(cell: Cell) -> dict[str, Any]:
    return {"workload": cell.workload, "batch": cell.batch, "kind": cell.kind}
