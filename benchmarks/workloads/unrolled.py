"""A dynamic loop against the same steps unrolled: an LSTM of 200 steps, all of one length.

As in *Dynamic control flow in large-scale machine learning* (Yu et al., EuroSys 2018): nothing ends
early, so all that the loop adds is overhead, in time and in the memory that a training step keeps.
By hand, ``unrolled`` runs the batch's cells one after the other; in torch that is what unrolling
a graph comes to.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.workload import Problem, Workload
from programs.example import seeded

STEPS, SIZE = 200, 256


class LSTM(nn.Module):
    """The last state ``[SIZE]`` after the rows of ``x`` ``[T, SIZE]``, however many."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(SIZE, SIZE)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(SIZE)
        t = 0
        while t < len(x):
            h, c = self.cell(x[t], (h, c))
            t += 1
        return h


def unrolled(model: LSTM, x: Tensor) -> Tensor:
    """The same for ``x`` ``[B, T, SIZE]``."""
    h = c = x.new_zeros(len(x), SIZE)
    for row in x.unbind(1):
        h, c = model.cell(row, (h, c))
    return h


def make(batch: int, device: str = "cpu") -> Problem:
    with seeded(0):
        model, x = LSTM().to(device), torch.randn(batch, STEPS, SIZE).to(device)
    return Problem(model, (x,), {"unrolled": lambda: unrolled(model, x)}, list(model.parameters()))


UNROLLED = Workload("unrolled", make, largest=8192, tolerance=1e-3)
