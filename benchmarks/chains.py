"""``python -m benchmarks.chains [--chains …] [--transitions N]``: NUTS by leapfrog steps.

On the workload ``nuts``, for each number of chains and system: leapfrog steps a second (the same
steps for all, those of every chain), evaluations of the gradient for a batch, and how full one
is: the chains that need it, over all chains, on average. ``gradients_last`` is autobatch where
chains do not wait for each other's transitions, and no gradient is computed while anything else
can run: as few evaluations as the longest chain has steps, for more block executions. numpyro,
where it is installed, draws otherwise and makes steps of its own, as many on average.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import autobatch
from benchmarks.extras import NUMPYRO, numpyro_sampler
from benchmarks.harness import interleave
from benchmarks.systems import COMPILED, LOOP, sample_rows, systems_of
from benchmarks.workload import Problem
from benchmarks.workloads import nuts

GRADIENTS_LAST = "gradients_last"
SYSTEMS = ("autobatch", COMPILED, "synchronised", LOOP)
LEAPFROG = ("NUTS.leapfrog", 0)


def leapfrog_last(waiting: Sequence[autobatch.WaitingBlock]) -> int:
    """A schedule: the earliest block but for those of a leapfrog step."""
    places = enumerate(waiting)
    return next((place for place, block in places if block.function != LEAPFROG[0]), 0)


LAST: dict[str, Any] = {"engine": "program_counter", "schedule": leapfrog_last}


@dataclass(frozen=True, slots=True)
class Evaluations:
    """Of a gradient: for single chains in a run that is timed, and for batches in one of all."""

    steps: int
    batches: int


class Counted(nuts.Chains):
    """Chains by hand that count their evaluations, those at a transition's start left out."""

    evaluations = 0

    def leapfrog(self, point: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        self.evaluations += 1
        return super().leapfrog(point, step)


def evaluations(problem: Problem) -> dict[str, Evaluations]:
    """By system, those of a run."""
    with autobatch.counts() as counts:
        autobatch.vmap(problem.function, **problem.options, executor="traced")(*problem.mapped())
    with autobatch.counts() as last:
        autobatch.vmap(problem.function, **LAST, executor="traced")(*problem.mapped())
    by_hand = nuts.chains(Counted, problem)
    by_hand.run(problem.inputs[0], problem.function.transitions)
    steps = counts.threads_by_block[LEAPFROG]
    alone = steps_of_rows(problem, sample_rows(problem))
    return {
        "autobatch": Evaluations(steps, counts.by_block[LEAPFROG]),
        "synchronised": Evaluations(steps, by_hand.evaluations),
        LOOP: Evaluations(alone, steps),
        COMPILED: Evaluations(steps, steps),
        GRADIENTS_LAST: Evaluations(steps, last.by_block[LEAPFROG]),
    }


def steps_of_rows(problem: Problem, rows: Sequence[int]) -> int:
    some = tuple(argument[list(rows)] for argument in problem.inputs)
    with autobatch.counts() as counts:
        autobatch.vmap(problem.function, executor="traced")(*some)
    return counts.threads_by_block[LEAPFROG]


def measured(chains: int, transitions: int, seconds: float) -> list[str]:
    """A line for each system."""
    problem = nuts.make(chains, transitions=transitions)
    found = evaluations(problem)
    last = autobatch.vmap(problem.function, **LAST, executor="traced")
    runs = {name: system.run for name, system in systems_of("nuts", problem, SYSTEMS).items()}
    runs[GRADIENTS_LAST] = lambda: last(*problem.mapped())
    if sampler := numpyro_sampler(problem):
        steps = sampler()
        found[NUMPYRO] = Evaluations(int(steps.sum()), int(steps.max(axis=1).sum()))
        runs[NUMPYRO] = sampler
    times = interleave(runs, seconds)
    lines = []
    for name in runs:
        speed = found[name].steps / statistics.median(times[name])
        batches = found[name].batches
        full = "" if name in (LOOP, COMPILED) else f"{found[name].steps / batches / chains:>6.0%}"
        lines.append(f"{chains:>6} {name:<14} {speed:>12,.0f} {batches:>11} {full}")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chains", description=__doc__)
    parser.add_argument("--chains", nargs="+", type=int, default=(16, 256))
    parser.add_argument("--transitions", type=int, default=nuts.TRANSITIONS, help="of each chain")
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(f"{'chains':>6} {'system':<14} {'steps/s':>12} {'evaluations':>11} {'full':>6}")
    with torch.no_grad():
        for chains in options.chains:
            print("\n".join(measured(chains, options.transitions, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
