"""Fibonacci numbers by the definition: two recursive calls for one number.

A thread's tree of calls is as large as its result, so threads part at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from programs.example import Example

DTYPES = (torch.int64, torch.int32)


def fibonacci(n: Tensor) -> int:
    if n <= 2:
        return 1
    return fibonacci(n - 1) + fibonacci(n - 2)


def example(batch: int, dtype: torch.dtype = torch.int64, seed: int = 0) -> Example:
    draw = torch.Generator().manual_seed(seed)
    return Example(fibonacci, (torch.randint(1, 9, (batch,), generator=draw).to(dtype),))
