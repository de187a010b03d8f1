"""``python -m benchmarks.first_calls [--batch N]``: what the first call of every program takes.

For each program: milliseconds of the plain loop, of the first call, and of the first call that
keeps its threads together, each in a process of its own in which nothing has run before.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch._dynamo  # what loads it is not the program's

import autobatch
from benchmarks.schedules import examples
from programs.example import Example

WAYS: dict[str, dict[str, Any] | None] = {"loop": None, "first": {}, "together": {"plain": "never"}}


def measure(example: Example, options: dict[str, Any] | None, found: Connection) -> None:
    torch.set_num_threads(1)
    if options is None:
        began = time.perf_counter()
        for index in range(example.batch):
            example.function(*example.row(index))
    else:
        args = example.mapped(autobatch.objects, autobatch.ragged)
        batched = autobatch.vmap(example.function, **{**example.options(), **options})
        began = time.perf_counter()
        batched(*args)
    found.send(1e3 * (time.perf_counter() - began))


def in_a_process(example: Example, options: dict[str, Any] | None) -> float:
    context = multiprocessing.get_context("fork")
    gc.collect()
    gc.freeze()  # else the first collection of the new process copies all that is there
    found, sent = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(example, options, sent))
    process.start()
    sent.close()
    milliseconds: float = found.recv()
    process.join()
    return milliseconds


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_calls", description=__doc__)
    parser.add_argument("--batch", type=int, default=7)
    batch = parser.parse_args(arguments).batch
    print("| program | loop, ms | first call | together |\n| --- | ---: | ---: | ---: |")
    for name, example in examples(batch):
        row = [in_a_process(example, options) for options in WAYS.values()]
        print(f"| {name} | {' | '.join(f'{each:,.0f}' for each in row)} |", flush=True)


if __name__ == "__main__":
    main()
