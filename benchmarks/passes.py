"""``python -m benchmarks.passes [--batch N] [--stages]``: what the passes do to every program.

For each program, as lowered and after the pipeline: operations and blocks of the text of all its
functions, and the milliseconds of processor time that the passes take for them (with the
verifier, the best of five). Then block executions and host reads of a batch once all is recorded:
as lowered, after the pipeline, and with calls forked, inlined and looped too. All but the time are
the same on any machine. ``--stages`` has instead a row for each pass of the pipeline, one after
the other.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

import autobatch
from autobatch.ir.program import Program
from autobatch.passes import PIPELINE, run_passes, stages
from benchmarks.schedules import examples
from programs.example import Example

RUNS = (
    {"passes": (), "fork": "off"},
    {"fork": "off"},
    {},
)
"""As lowered, after the pipeline, with calls judged too."""
HEAD = ("program", "operations", "blocks", "ms", "block executions", "host reads")


def text_of(program: Program) -> tuple[int, int]:
    """Operations and blocks."""
    functions = [each for function in program.functions.values() for each in function.walk()]
    blocks = [block for function in functions for block in function.blocks]
    return sum(len(block.ops) for block in blocks), len(blocks)


def pass_time(program: Program) -> float:
    """Seconds of processor time that the pipeline takes for all functions."""

    def once() -> float:
        start = time.process_time()
        for function in program.functions.values():
            run_passes(function)
        return time.process_time() - start

    return min(once() for _ in range(5))


def counted(example: Example, **options: Any) -> autobatch.Counts:
    """The counts of a run for which recordings are there, all threads kept together."""
    settings = {
        "plain": "never",
        "executor": "traced",
        **example.options(),
        "trace_after": 0,
        **options,
    }
    mapped = autobatch.vmap(example.function, **settings)
    args = example.mapped(autobatch.objects, autobatch.ragged)
    with torch.no_grad():
        for _ in range(3):
            with autobatch.counts() as counts:
                mapped(*args)
    return counts


def arrow(*values: float) -> str:
    return " → ".join(f"{value:,}" for value in values)


def summary(name: str, example: Example) -> tuple[str, ...]:
    lowered = autobatch.lower(example.function, passes=[])
    before, after = text_of(lowered), text_of(autobatch.lower(example.function))
    runs = [counted(example, **options) for options in RUNS]
    return (
        name,
        arrow(before[0], after[0]),
        arrow(before[1], after[1]),
        f"{1000 * pass_time(lowered):.1f}",
        arrow(*(run.block_executions for run in runs)),
        arrow(*(run.host_reads for run in runs)),
    )


def by_stage(name: str, example: Example) -> Iterator[tuple[str, ...]]:
    """A row for each pass: operations and blocks after it, and its milliseconds."""
    program = autobatch.lower(example.function, passes=[])
    yield (name, "as lowered", *map(str, text_of(program)), "")
    start = time.process_time()
    for each, after in stages(program, PIPELINE):
        seconds = time.process_time() - start
        yield (name, each, *map(str, text_of(after)), f"{1000 * seconds:.1f}")
        start = time.process_time()


def table(head: Sequence[str], rows: Iterator[Sequence[str]], show: Callable[[str], None]) -> None:
    show(f"| {' | '.join(head)} |")
    show(f"| --- |{' ---: |' * (len(head) - 1)}")
    for row in rows:
        show(f"| {' | '.join(row)} |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.passes", description=__doc__)
    parser.add_argument("--batch", type=int, default=64, help="threads")
    parser.add_argument("--stages", action="store_true", help="a row for each pass")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found = examples(options.batch)
    if options.stages:
        rows = (row for name, example in found for row in by_stage(name, example))
        table(("program", "after", "operations", "blocks", "ms"), rows, print)
    else:
        table(HEAD, (summary(name, example) for name, example in found), print)


if __name__ == "__main__":
    main()
