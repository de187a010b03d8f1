"""Collatz for 1 … B: two kernels' worth of integer arithmetic a step, up to some 300 steps."""

from __future__ import annotations

import torch

from benchmarks.handwritten import Loop, State, ways
from benchmarks.workload import Problem, Workload
from programs.collatz import collatz


def running(state: State, t: int) -> torch.Tensor:
    return state[0] != 1


def step(state: State, t: int, rows: torch.Tensor | None) -> State:
    (n,) = state
    return (torch.where(n % 2 == 0, n // 2, 3 * n + 1),)


def make(batch: int, device: str = "cpu") -> Problem:
    # A batch of 1 is 27, with 111 steps; a larger one counts from 1.
    n = torch.tensor([27]) if batch == 1 else torch.arange(1, batch + 1)
    n = n.to(device)
    return Problem(collatz, (n,), ways(lambda: Loop((n,), 1, running, step, counts=True)))


COLLATZ = Workload("collatz", make)
