"""``python -m benchmarks.memory [--loop lstm] [--steps …] [--rows …] [--width …]``: what is saved.

A loop whose steps nobody knows before it runs, forward and backward, under each ``save=``: the peak
of the tensors' bytes, and the time, also as parts of those of the same loop on batched torch by
hand. ``residual`` is a loop of two layers, ``lstm`` one of LSTM cells, each with an input of its
own (512 units, 512 rows and 100 to 1,000 steps in Yu et al., EuroSys 2018, section 6.2). Tensors on
the CPU stay where they are, so ``offload`` is measured with ``--device cuda`` only. Medians of
interleaved runs, seconds of the process, one torch thread.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import autobatch
from benchmarks.counting import Counting
from benchmarks.harness import interleave
from programs.example import seeded

BY_HAND = "by hand"
STEPS = (256, 1024, 4096)


def residual(x: Tensor, up: Tensor, down: Tensor, steps: int) -> Tensor:
    """``x`` after so many steps of ``x + down tanh(up x)``, held to a size."""
    for _ in range(steps):
        x = x * 0.9 + down @ torch.tanh(up @ x)
    return x


def residual_by_hand(x: Tensor, up: Tensor, down: Tensor, steps: int) -> Tensor:
    """The same of rows ``[B, width]``."""
    for _ in range(steps):
        x = x * 0.9 + torch.tanh(x @ up.T) @ down.T
    return x


def residual_loops(steps: int, rows: int, width: int, device: str) -> dict[str, Callable[[], Any]]:
    with seeded(0):
        x = torch.randn(rows, width)
        up, down = (torch.randn(width, width) / width for _ in range(2))
    given = [each.to(device).requires_grad_() for each in (x, up, down)]

    def run(save: str) -> Any:
        if save == BY_HAND:
            return residual_by_hand(*given, steps)
        return autobatch.vmap(residual, in_dims=(0, None, None, None), save=save)(*given, steps)

    return backwards(run, given, device)


class Recurrent(nn.Module):
    """``x`` ``[T, width]`` to the last state; ``rows`` ``[B, T, width]`` of them by hand."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(self.cell.hidden_size)
        c = x.new_zeros(self.cell.hidden_size)
        for now in x:
            h, c = self.cell(now, (h, c))
        return h

    def by_hand(self, rows: Tensor) -> Tensor:
        h = c = rows.new_zeros(len(rows), self.cell.hidden_size)
        for now in rows.unbind(1):
            h, c = self.cell(now, (h, c))
        return h


def recurrent_loops(steps: int, rows: int, width: int, device: str) -> dict[str, Callable[[], Any]]:
    with seeded(0):
        model = Recurrent(width).to(device)
        x = torch.randn(rows, steps, width).to(device)

    def run(save: str) -> Any:
        return model.by_hand(x) if save == BY_HAND else autobatch.vmap(model, save=save)(x)

    return backwards(run, list(model.parameters()), device)


def backwards(
    run: Callable[[str], Tensor], given: list[Tensor], device: str
) -> dict[str, Callable[[], Any]]:
    """Forward and backward, by hand and by what is saved."""
    saves = (BY_HAND, "keep", "recompute", *(("offload",) if device == "cuda" else ()))

    def both(save: str) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(run(save).sum(), given)

    return {save: both(save) for save in saves}


LOOPS = {"residual": residual_loops, "lstm": recurrent_loops}


def peak_of(run: Callable[[], Any]) -> int:
    """The peak of a run's bytes: on a CUDA device of what is allocated there, else of tensors."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    with Counting() as counted:
        run()
    return counted.peak_bytes


def measured(runs: dict[str, Callable[[], Any]], steps: int, seconds: float) -> list[str]:
    """A line for each way of a loop of so many steps."""
    peaks: dict[str, int] = {}
    for name, run in runs.items():
        run()
        peaks[name] = peak_of(run)
    times = {name: statistics.median(each) for name, each in interleave(runs, seconds).items()}
    return [
        f"{steps:>6} {name:<10} {peaks[name] / 2**20:>10.2f} {peaks[name] / peaks[BY_HAND]:>8.2f}"
        f" {times[name]:>8.2f} {times[name] / times[BY_HAND]:>8.2f}"
        for name in runs
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--loop", choices=LOOPS, default="residual")
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(
        f"{'steps':>6} {'save':<10} {'peak, MiB':>10} {'/by hand':>8}"
        f" {'seconds':>8} {'/by hand':>8}"
    )
    for steps in given.steps:
        runs = LOOPS[given.loop](steps, given.rows, given.width, given.device)
        print("\n".join(measured(runs, steps, given.seconds)), flush=True)


if __name__ == "__main__":
    main()
