"""``python -m benchmarks.objects [--batch N …] [--repeats N] [--together]``: objects alone.

For each program of ``host_programs`` and batch size the time of the batch over that of the plain
loop, the least of some runs of each, which take turns; ``--together`` has what it takes with the
threads kept together (``plain="never"``), and ``alone`` the threads that ran as plain Python.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import autobatch
from benchmarks.host_programs import PROGRAMS, examples

BATCHES = (64, 512)


def least(runs: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """The least seconds of each, in turns."""
    found = [float("inf")] * len(runs)
    for _ in range(repeats):
        for at, run in enumerate(runs):
            begin = time.perf_counter()
            run()
            found[at] = min(found[at], time.perf_counter() - begin)
    return found


def measured(name: str, size: int, repeats: int, together: bool) -> str:
    """A line: the ratios for a program at a batch size."""
    function, items = PROGRAMS[name][0], examples(name, size)
    batched = autobatch.vmap(function)
    apart = autobatch.vmap(function, plain="never")
    with autobatch.counts() as counts:
        batched(autobatch.objects(items))
    loop, ours = least(
        [lambda: [function(item) for item in items], lambda: batched(autobatch.objects(items))],
        repeats,
    )
    line = f"{name:<14} {size:>6} {loop * 1e3:>10.2f} {ours / loop:>12.1f} {counts.plain:>6}"
    if together:
        (other,) = least([lambda: apart(autobatch.objects(items))], 1)
        line += f" {other / loop:>12.0f}"
    return line


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.objects", description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--program", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    head = f"{'program':<14} {'batch':>6} {'loop, ms':>10} {'batch / loop':>12} {'alone':>6}"
    print(head + (f" {'together':>12}" if args.together else ""))
    for name in args.program:
        for size in args.batch:
            print(measured(name, size, args.repeats, args.together), flush=True)


if __name__ == "__main__":
    main()
