"""``python -m benchmarks.draws [--threads …] [--seconds S]``: normal numbers under a seed.

For each number of threads: the time in which every thread draws one normal number of its own, by
the operation ``torch.randn(())`` of a program, run untraced, and by the generator alone; and an
eighth of the time of a whole call of a program that adds up eight of them, under
``executor="compiled"``. Each over that of ``torch.randn`` of as many numbers. Medians of
interleaved runs, one torch thread. Before, so much is drawn that machine code makes the numbers, if
``llvmlite`` is there, but with ``--numpy``.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import autobatch
from autobatch.batching.context import Context
from autobatch.batching.foreign import Foreign
from autobatch.batching.tensors import torch_ops
from autobatch.random import host_code, host_words, transforms
from autobatch.random.counters import Draw
from autobatch.random.paths import Ledger, Paths, key_of
from autobatch.random.sources import Threads
from autobatch.values.cells import Cell, Container
from autobatch.vm.library import Library
from autobatch.vm.stackless import Machine
from autobatch.vm.state import RunState, Settings
from benchmarks.harness import interleave

THREADS = (1, 1024, 32768)
EIGHT = 8


def eight(x: Tensor) -> Tensor:
    """Eight draws and nothing else, without a loop: LLVM makes vectors over the threads."""
    a, b = torch.randn(()) + torch.randn(()), torch.randn(()) + torch.randn(())
    c, d = torch.randn(()) + torch.randn(()), torch.randn(()) + torch.randn(())
    return x + a + b + c + d


def systems(threads: int) -> dict[str, Callable[[], Any]]:
    paths = Paths.over(Ledger.of(np.full(threads, key_of(0))))
    source = Threads(paths, np.arange(threads))
    state = RunState(Library(), Settings(torch.device("cpu"), threads, "different", seed=0))
    machine = Machine(state)
    machine.lend(Foreign.of([]))
    context = Context(machine.state.services, np.arange(threads), paths=paths)
    size = Cell(Container(tuple, []))

    def operation() -> Cell:
        return torch_ops.apply(context, torch.randn, [size], {}, True)

    def generator() -> Tensor:
        return transforms.normal(source, 1, torch.float32, torch.device("cpu"))

    compiled = autobatch.vmap(eight, seed=0, executor="compiled")
    given = torch.zeros(threads)
    return {
        "torch.randn": lambda: torch.randn(threads),
        "an operation": operation,
        "the generator": generator,
        "compiled": lambda: compiled(given),
    }


def drawn_much() -> None:
    draw = Draw(0, 0, np.arange(max(THREADS)))
    for _ in range(-(-host_code.MANY // max(THREADS)) + 1):
        host_words.on_the_host(draw, 1, 2)


def measured(threads: int, seconds: float) -> str:
    """A line for a number of threads."""
    times = interleave(systems(threads), seconds)
    found = {name: statistics.median(each) for name, each in times.items()}
    found["compiled"] /= EIGHT
    base = found["torch.randn"]
    parts = [f"{threads:>8} {base * 1e6:>12.1f}"]
    parts += [
        f"{found[name] * 1e6:>14.1f} {found[name] / base:>6.1f}"
        for name in ("an operation", "the generator", "compiled")
    ]
    return " ".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=THREADS)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--numpy", action="store_true", help="without machine code")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if given.numpy:
        host_code.CODE = host_code.Code(most=math.inf)
    else:
        drawn_much()
    print(f"{'threads':>8} {'randn, us':>12} {'operation, us':>14} {'times':>6} ", end="")
    print(f"{'generator, us':>14} {'times':>6} {'compiled, us':>14} {'times':>6}")
    for threads in given.threads:
        print(measured(threads, given.seconds))


if __name__ == "__main__":
    main()
