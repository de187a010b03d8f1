"""Euclid's algorithm (Elements, book VII): the greatest common divisor of two numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from programs.example import Example

DTYPES = (torch.int64, torch.int32)


def gcd(a: Tensor, b: Tensor) -> Tensor:
    while b != 0:
        a, b = b, a % b
    return a


def example(batch: int, dtype: torch.dtype = torch.int64, seed: int = 0) -> Example:
    draw = torch.Generator().manual_seed(seed)
    a, b = torch.randint(0, 100_000, (2, batch), generator=draw).to(dtype)
    return Example(gcd, (a, b))
