"""``python -m benchmarks.engines [--batch N] [--repeats N]``: the engines on recursive programs.

For each program and engine: block executions, threads in each on average (neither depends on
the machine), and the median time of a run once all is recorded. Engines take turns, so that what
else the machine does falls on all of them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import autobatch
from benchmarks.schedules import examples
from programs.ackermann import ackermann
from programs.encode_stdlib import LABELS, read_functions
from programs.example import Example, seeded
from programs.fibonacci import fibonacci
from programs.treelstm import TreeLSTM, random_tree

ENGINES: dict[str, dict[str, Any]] = {
    "stackless": {},
    "stackless, fork off": {"fork": "off"},
    "program_counter": {"engine": "program_counter"},
}
OTHERS = ("child_sum_treelstm", "merge_sort", "negamax", "nuts", "quicksort")
"""Recursive programs that are run on the arguments which they bring."""
HEAD = ("program", "engine", "block executions", "threads in each", "ms")


@dataclass(frozen=True, slots=True)
class Case:
    """A program with the arguments of a batch, and the options that it needs."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    case: str
    engine: str
    executions: int
    threads: float
    milliseconds: float

    @property
    def row(self) -> tuple[str, ...]:
        counts = (f"{self.executions:,}", f"{self.threads:.1f}")
        return (self.case, self.engine, *counts, f"{self.milliseconds:.0f}")


def cases(batch: int) -> list[Case]:
    """Every recursive program, on threads that recurse unlike each other.

    Those of the main job are functions of about one size, as it batches them.
    """
    draw = torch.Generator().manual_seed(0)

    def ints(least: int, most: int) -> torch.Tensor:
        return torch.randint(least, most + 1, (batch,), generator=draw)

    with seeded(0):
        model = TreeLSTM(labels=32, hidden=128)
        trees = [random_tree(nodes, 32) for nodes in ints(19, 79).tolist()]
        encoder = TreeLSTM(LABELS, 128)
    functions = sorted(read_functions(8 * batch), key=lambda function: function.nodes)
    middle = (len(functions) - batch) // 2
    library = [function.tree for function in functions[middle : middle + batch]]
    return [
        Case("fibonacci, n up to 12", fibonacci, (ints(1, 12),)),
        Case("ackermann, m up to 2, n up to 5", ackermann, (ints(0, 2), ints(0, 5))),
        Case("treelstm, 19 to 79 nodes", model, (autobatch.objects(trees),)),
        Case("treelstm, as in the main job", encoder, (autobatch.objects(library),)),
        *(Case(name, *as_given(example)) for name, example in examples(batch) if name in OTHERS),
    ]


def as_given(example: Example) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A program on the arguments that it brings, its threads kept together."""
    args = example.mapped(autobatch.objects, autobatch.ragged)
    return example.function, tuple(args), {"plain": "never", **example.options()}


def measure(case: Case, repeats: int) -> list[Measured]:
    runs = {
        name: autobatch.vmap(case.function, **case.options, **how, executor="traced")
        for name, how in ENGINES.items()
    }
    counts: dict[str, autobatch.Counts] = {}
    times: dict[str, list[float]] = {name: [] for name in runs}
    with torch.no_grad():
        for name, run in runs.items():
            run(*case.args)
            with autobatch.counts() as counts[name]:
                run(*case.args)
        for _ in range(repeats):
            for name, run in runs.items():
                start = time.perf_counter()
                run(*case.args)
                times[name].append(time.perf_counter() - start)
    return [
        Measured(
            case.name,
            name,
            counts[name].block_executions,
            sum(counts[name].threads_by_block.values()) / counts[name].block_executions,
            1000 * statistics.median(times[name]),
        )
        for name in runs
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--batch", type=int, default=256, help="threads")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each engine")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(f"| {' | '.join(HEAD)} |\n| {' | '.join(['---'] * len(HEAD))} |", flush=True)
    for case in cases(options.batch):
        for measured in measure(case, options.repeats):
            print(f"| {' | '.join(measured.row)} |", flush=True)


if __name__ == "__main__":
    main()
