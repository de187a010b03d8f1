"""An LSTM over a sequence of its own length: the state after ``length`` steps of ``x``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)


class VariableLengthLSTM(nn.Module):
    """``x`` ``[T, inputs]`` and a ``length`` up to T to the last state ``[hidden]``."""

    def __init__(self, inputs: int = 128, hidden: int = 256) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(inputs, hidden)

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        h = x.new_zeros(self.cell.hidden_size)
        c = x.new_zeros(self.cell.hidden_size)
        for t in range(length):
            h, c = self.cell(x[t], (h, c))
        return h


def example(
    batch: int,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    *,
    inputs: int = 128,
    hidden: int = 256,
    longest: int = 20,
) -> Example:
    with seeded(seed):
        model = VariableLengthLSTM(inputs, hidden).to(dtype)
        x = torch.randn(batch, longest, inputs, dtype=dtype)
        return Example(model, (x, torch.randint(1, longest + 1, (batch,))))
