"""``python -m benchmarks.schedules [--batch N]``: what each schedule costs on every program.

For each program, engine and schedule: block executions, and threads in each on average. Neither
depends on the machine.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from typing import Any

import torch

import autobatch
import programs
from programs.example import Example

ENGINES = ("stackless", "program_counter")
SCHEDULES = ("earliest", "most_threads")


def examples(batch: int) -> Iterator[tuple[str, Example]]:
    """The programs that bring arguments of their own."""
    for module in sorted(pkgutil.iter_modules(programs.__path__), key=lambda each: each.name):
        found = importlib.import_module(f"programs.{module.name}")
        if module.name != "example" and hasattr(found, "example"):
            yield module.name, found.example(batch)


def counted(example: Example, **options: Any) -> autobatch.Counts:
    """The counts of one run whose threads are all kept together."""
    args = example.mapped(autobatch.objects, autobatch.ragged)
    options = {"plain": "never", "executor": "traced", **example.options(), **options}
    with autobatch.counts() as counts, torch.no_grad():
        autobatch.vmap(example.function, **options)(*args)
    return counts


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules", description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    batch = parser.parse_args(arguments).batch
    columns = [f"{engine}, {schedule}" for engine in ENGINES for schedule in SCHEDULES]
    print(f"| program | {' | '.join(columns)} |")
    print(f"| --- |{' ---: |' * len(columns)}")
    for name, example in examples(batch):
        cells = []
        for engine in ENGINES:
            for schedule in SCHEDULES:
                counts = counted(example, engine=engine, schedule=schedule)
                threads = sum(counts.threads_by_block.values()) / counts.block_executions
                cells.append(f"{counts.block_executions:,} of {threads:.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
