"""``python -m benchmarks.objects [--batch N …] [--repeats N] [--together]``: objects.

For each program of ``host_programs``, ``mixed_programs``, ``number_programs`` and ``leaf_programs``
and batch size the time of the batch over that of the plain loop, the least of some runs of each,
which take turns; ``--together`` has what it takes with the threads kept together
(``plain="never"``), and ``alone`` the threads that ran as plain Python, or how often threads ran a
part of their program so.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch

import autobatch
from benchmarks import leaf_programs, mixed_programs, number_programs
from benchmarks.harness import least
from benchmarks.host_programs import PROGRAMS, examples

BATCHES = (64, 512)
OTHERS = (mixed_programs, number_programs, leaf_programs)
NAMES = [*PROGRAMS, *(name for each in OTHERS for name in each.PROGRAMS)]


def given(name: str, size: int) -> tuple[Callable[..., Any], list[tuple[Any, ...]]]:
    """A program, and the arguments of each example."""
    if name in PROGRAMS:
        return PROGRAMS[name][0], [(item,) for item in examples(name, size)]
    programs = next(each for each in OTHERS if name in each.PROGRAMS)
    return programs.PROGRAMS[name][0], programs.examples(name, size)


def stacked(rows: list[tuple[Any, ...]]) -> list[Any]:
    """The arguments of a batch: tensors stacked, all else as objects."""
    return [
        torch.stack(column) if isinstance(column[0], torch.Tensor) else autobatch.objects(column)
        for column in zip(*rows, strict=True)
    ]


def measured(name: str, size: int, repeats: int, together: bool) -> str:
    """A line: the ratios for a program at a batch size."""
    function, rows = given(name, size)
    batched, args = autobatch.vmap(function), stacked(rows)
    apart = autobatch.vmap(function, plain="never")
    for _ in range(4):  # until what is hot has been recorded
        batched(*args)
    with autobatch.counts() as counts:
        batched(*args)
    loop, ours = least([lambda: [function(*row) for row in rows], lambda: batched(*args)], repeats)
    alone = counts.plain + counts.plain_parts
    line = f"{name:<22} {size:>6} {loop * 1e3:>10.2f} {ours / loop:>12.1f} {alone:>6}"
    if together:
        (other,) = least([lambda: apart(*args)], 1)
        line += f" {other / loop:>12.0f}"
    return line


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.objects", description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--program", nargs="+", choices=NAMES, default=NAMES)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    head = f"{'program':<22} {'batch':>6} {'loop, ms':>10} {'batch / loop':>12} {'alone':>6}"
    print(head + (f" {'together':>12}" if args.together else ""))
    with torch.no_grad():
        for name in args.program:
            for size in args.batch:
                print(measured(name, size, args.repeats, args.together), flush=True)


if __name__ == "__main__":
    main()
