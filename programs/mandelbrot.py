"""Mandelbrot set: the step at which z -> z² + c leaves the disc of radius 2, or ``limit``."""

from __future__ import annotations

import torch
from torch import Tensor

from programs.example import Example

DTYPES = (torch.float32, torch.float64)


def mandelbrot(re: Tensor, im: Tensor, limit: int = 100) -> int:
    x, y = re, im
    steps = 0
    while steps < limit and x * x + y * y <= 4.0:
        x, y = x * x - y * y + re, 2.0 * x * y + im
        steps += 1
    return steps


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    draw = torch.Generator().manual_seed(seed)
    re = torch.rand(batch, generator=draw, dtype=dtype) * 3.0 - 2.0
    im = torch.rand(batch, generator=draw, dtype=dtype) * 2.4 - 1.2
    return Example(mandelbrot, (re, im))
