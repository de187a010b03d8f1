"""Adaptive computation time (Graves, 2016): a cell that decides how long to think.

At every step of the sequence the cell runs until its halting probabilities sum to
``1 - epsilon``; the step's state is the mean of the states on the way, weighted by them,
and the remainder of the last is the ponder cost.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)


class AdaptiveComputation(nn.Module):
    """A sequence ``[T, inputs]`` to the last state ``[hidden]`` and the ponder cost (0-d)."""

    def __init__(self, inputs: int = 8, hidden: int = 32, limit: int = 12) -> None:
        super().__init__()
        self.cell = nn.GRUCell(inputs + 1, hidden)
        self.halt = nn.Linear(hidden, 1)
        self.limit = limit
        self.epsilon = 0.01

    def forward(self, sequence: Tensor) -> tuple[Tensor, Tensor]:
        state = sequence.new_zeros(self.cell.hidden_size)
        cost = sequence.new_zeros(())
        for x in sequence:
            state, ponder = self.think(x, state)
            cost = cost + ponder
        return state, cost

    def think(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the sequence: the mean state, and the ponder cost N + R."""
        mean = torch.zeros_like(state)
        total = x.new_zeros(())
        for n in range(self.limit):
            first = x.new_full((1,), float(n == 0))
            state = self.cell(torch.cat((x, first)), state)
            probability = torch.sigmoid(self.halt(state))[0]
            if total + probability >= 1.0 - self.epsilon or n == self.limit - 1:
                break
            mean = mean + probability * state
            total = total + probability
        remainder = 1.0 - total
        return mean + remainder * state, n + 1 + remainder


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    with seeded(seed):
        model = AdaptiveComputation().to(dtype)
        model.halt.weight.data *= 6.0
        return Example(model, (3.0 * torch.randn(batch, 4, 8, dtype=dtype),))
