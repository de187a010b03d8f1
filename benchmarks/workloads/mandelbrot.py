"""Mandelbrot over random points of the plane: about ten kernels a step, at most 100 steps."""

from __future__ import annotations

import torch

from benchmarks.handwritten import Loop, State, ways
from benchmarks.workload import Problem, Workload
from programs.mandelbrot import example, mandelbrot

LIMIT = 100


def running(state: State, t: int) -> torch.Tensor:
    x, y = state[:2]
    return x * x + y * y <= 4.0 if t < LIMIT else torch.zeros_like(x, dtype=torch.bool)


def step(state: State, t: int, rows: torch.Tensor | None) -> State:
    x, y, re, im = state
    return x * x - y * y + re, 2.0 * x * y + im


def make(batch: int, device: str = "cpu") -> Problem:
    re, im = example(batch).to(device).args
    assert isinstance(re, torch.Tensor) and isinstance(im, torch.Tensor)
    if batch == 1:  # A point that stays: all the steps.
        re, im = torch.zeros_like(re), torch.zeros_like(im)
    by_hand = ways(lambda: Loop((re, im, re, im), 2, running, step, counts=True))
    return Problem(mandelbrot, (re, im), by_hand)


MANDELBROT = Workload("mandelbrot", make)
