"""Collatz: how many steps from ``n`` to 1, halving what is even, 3n + 1 for what is odd.

The smallest program whose trip count nobody can tell from its input.
"""

from __future__ import annotations

import torch
from torch import Tensor

from programs.example import Example

DTYPES = (torch.int64, torch.int32)


def collatz(n: Tensor) -> int:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def example(batch: int, dtype: torch.dtype = torch.int64, seed: int = 0) -> Example:
    draw = torch.Generator().manual_seed(seed)
    return Example(collatz, (torch.randint(1, 10_000, (batch,), generator=draw).to(dtype),))
