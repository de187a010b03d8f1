"""Fibonacci by the definition, n uniform in 0 … 12: recursion, and next to no arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.workload import Problem, Workload
from programs.fibonacci import fibonacci

LARGEST_N = 12


def by_levels(n: Tensor) -> Tensor:
    """All calls of one depth at once, each with the example that it counts for."""
    total = torch.zeros_like(n)
    calls, example = n, torch.arange(len(n), device=n.device)
    while len(calls):
        splits = calls > 2
        total.index_add_(0, example[~splits], torch.ones_like(calls[~splits]))
        calls, example = calls[splits], example[splits]
        calls, example = torch.cat((calls - 1, calls - 2)), torch.cat((example, example))
    return total


def make(batch: int, device: str = "cpu") -> Problem:
    draw = torch.Generator().manual_seed(0)
    n = torch.randint(0, LARGEST_N + 1, (batch,), generator=draw)
    if batch == 1:
        n = torch.tensor([LARGEST_N])
    n = n.to(device)
    by_hand = {"by-levels": lambda: by_levels(n)}
    return Problem(fibonacci, (n,), by_hand, options={"scalars": "python"})


FIB = Workload("fib", make)
