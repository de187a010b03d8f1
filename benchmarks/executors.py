"""``python -m benchmarks.executors [--workload …] [--batch N …] [--seconds S]``: one against all.

For each workload and batch size: milliseconds of a warm run under each fixed executor and under
``executor="auto"``, and what the latter takes over the best of the others: medians of turns, in
each of which an executor runs for some milliseconds, and then as long again, timed. Each is warmed
for ``--warm`` seconds, and until nothing is recorded or compiled any more; what that took of
compiling is the last column. So that it is warm soon, ``auto`` is told that compiling costs
nothing. Seconds are the process's own.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from time import process_time

import torch

import autobatch
from autobatch.batching.stretches.executors import COMPILING
from benchmarks.workload import Run, Workload
from benchmarks.workloads import WORKLOADS

FIXED = ("vmap", "traced", "compiled")
EXECUTORS = (*FIXED, "auto")
HEAD = ("workload", "batch", *EXECUTORS, "auto over the best", "seconds of compiling")
HOPELESS = 3.0
"""Where the simple reference takes so many times longer, it is measured no further."""
BATCHES = (1, 64, 1024)
TURN = 0.005
"""Seconds that a turn takes before it is timed."""
LEAST = 3
"""Timed turns of each."""
QUIET = 3
"""Runs on end in which nothing is made."""


def runs_of(workload: Workload, batch: int) -> dict[str, Run]:
    problem = workload.make(batch)
    inputs = problem.mapped()
    batched = {
        name: autobatch.vmap(problem.function, **problem.options, executor=name)
        for name in EXECUTORS
    }
    return {name: partial(run, *inputs) for name, run in batched.items()}


def warmed(run: Run, seconds: float) -> tuple[float, float]:
    """The seconds of the fastest run of a warming up, and those of compiling."""
    began, quiet, times, compiling = process_time(), 0, [], 0.0
    while quiet < QUIET or process_time() - began < seconds:
        start = process_time()
        with autobatch.counts() as made:
            run()
        times.append(process_time() - start)
        compiling += made.compile_seconds
        quiet = 0 if made.traces or made.compilations or made.reloaded else quiet + 1
    return min(times), compiling


def measured(
    runs: Mapping[str, Run], warm: float, seconds: float
) -> tuple[dict[str, float], float]:
    """Milliseconds of each executor, and the seconds that the last one compiled."""
    compiling, able, fastest = 0.0, dict(runs), {}
    for name, run in runs.items():
        fastest[name], compiling = warmed(run, warm if name in ("compiled", "auto") else 0.0)
    if fastest["vmap"] > HOPELESS * fastest["traced"]:
        del able["vmap"]
    times: dict[str, list[float]] = {name: [] for name in able}
    began = process_time()
    while len(times["auto"]) < LEAST or process_time() - began < seconds:
        for name, run in able.items():
            number = max(1, round(TURN / fastest[name]))
            repeated(run, number)
            times[name].append(repeated(run, number) / number)
    return {name: 1000 * statistics.median(each) for name, each in times.items()}, compiling


def repeated(run: Run, number: int) -> float:
    """The seconds of so many runs."""
    start = process_time()
    for _ in range(number):
        run()
    return process_time() - start


def row(workload: Workload, batch: int, found: Mapping[str, float], compiling: float) -> str:
    best = min(found[name] for name in FIXED if name in found)
    cells = [f"{found[name]:.2f}" if name in found else "" for name in EXECUTORS]
    ratio = f"{found['auto'] / best:.2f}"
    return f"| {' | '.join((workload.name, f'{batch:,}', *cells, ratio, f'{compiling:.1f}'))} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.executors", description=__doc__)
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--workload", nargs="+", choices=names, default=names)
    parser.add_argument("--batch", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--warm", type=float, default=5.0, help="seconds, for what compiles")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each row")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    COMPILING["auto", False].prices.add(1_000_000, 0.0)
    print(f"| {' | '.join(HEAD)} |\n| {' | '.join(['---'] * 2 + ['---:'] * 6)} |", flush=True)
    for workload in WORKLOADS:
        for batch in options.batch:
            if workload.name in options.workload and batch <= workload.largest:
                with torch.no_grad():
                    found, compiling = measured(
                        runs_of(workload, batch), options.warm, options.seconds
                    )
                print(row(workload, batch, found, compiling), flush=True)


if __name__ == "__main__":
    main()
