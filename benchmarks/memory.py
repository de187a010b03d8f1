"""``python -m benchmarks.memory [--steps …] [--rows …] [--width …] [--seconds S]``: what is saved.

A loop of two layers, whose steps nobody knows before it runs, forward and backward, under
``save="keep"`` and ``"recompute"``: the peak of the tensors' bytes, and the time. Medians of
interleaved runs, seconds of the process, one torch thread.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import autobatch
from benchmarks.counting import Counting
from benchmarks.harness import interleave
from programs.example import seeded

SAVES = ("keep", "recompute")
STEPS = (256, 1024, 4096)


def residual(x: Tensor, up: Tensor, down: Tensor, steps: int) -> Tensor:
    """``x`` after so many steps of ``x + down tanh(up x)``, held to a size."""
    for _ in range(steps):
        x = x * 0.9 + down @ torch.tanh(up @ x)
    return x


def systems(steps: int, rows: int, width: int) -> dict[str, Callable[[], Any]]:
    """Forward and backward of a loop of ``steps``, by what is saved."""
    with seeded(0):
        x = torch.randn(rows, width)
        up, down = (torch.randn(width, width) / width for _ in range(2))
    given = [each.requires_grad_() for each in (x, up, down)]

    def run(save: str) -> Callable[[], Any]:
        mapped = autobatch.vmap(residual, in_dims=(0, None, None, None), save=save)
        return lambda: torch.autograd.grad(mapped(*given, steps).sum(), given)

    return {save: run(save) for save in SAVES}


def measured(steps: int, rows: int, width: int, seconds: float) -> str:
    """A line for a number of steps."""
    runs = systems(steps, rows, width)
    peaks: dict[str, int] = {}
    for save, run in runs.items():
        run()
        with Counting() as counted:
            run()
        peaks[save] = counted.peak_bytes
    found = {save: statistics.median(times) for save, times in interleave(runs, seconds).items()}
    kept, again = (peaks[save] / 2**20 for save in SAVES)
    slower = found["recompute"] / found["keep"]
    return (
        f"{steps:>6} {kept:>10.2f} {again:>15.2f} {kept / again:>6.1f}"
        f" {found['keep']:>8.2f} {found['recompute']:>13.2f} {slower:>6.2f}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(f"{'steps':>6} {'keep, MiB':>10} {'recompute, MiB':>15} {'less':>6}", end="")
    print(f" {'keep, s':>8} {'recompute, s':>13} {'times':>6}")
    for steps in given.steps:
        print(measured(steps, given.rows, given.width, given.seconds), flush=True)


if __name__ == "__main__":
    main()
