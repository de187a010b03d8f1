"""Ackermann's function in Péter's form: recursion whose argument is itself a recursive call."""

from __future__ import annotations

import torch
from torch import Tensor

from programs.example import Example

DTYPES = (torch.int64, torch.int32)


def ackermann(m: Tensor, n: Tensor) -> Tensor:
    if m == 0:
        return n + 1
    if n == 0:
        return ackermann(m - 1, n + 1)
    return ackermann(m - 1, ackermann(m, n - 1))


def example(batch: int, dtype: torch.dtype = torch.int64, seed: int = 0) -> Example:
    draw = torch.Generator().manual_seed(seed)
    m = torch.randint(0, 3, (batch,), generator=draw).to(dtype)
    n = torch.randint(0, 4, (batch,), generator=draw).to(dtype)
    return Example(ackermann, (m, n))
