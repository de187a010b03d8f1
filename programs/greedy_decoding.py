"""Greedy decoding: emit the likeliest token, feed it back, stop at the end token.

The loop's trip count depends on what the model just said. Token 0 both starts and ends a
sequence; places after the end hold it too.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)
END = 0


class GreedyDecoder(nn.Module):
    """A context ``[hidden]`` to ``limit`` tokens ``[limit]`` and how many were emitted."""

    def __init__(self, tokens: int = 12, hidden: int = 32, limit: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.scores = nn.Linear(hidden, tokens)
        self.limit = limit

    def forward(self, context: Tensor) -> tuple[Tensor, int]:
        emitted = torch.full((self.limit,), END, device=context.device)
        token = torch.tensor(END, device=context.device)
        state = context
        for length in range(self.limit):
            state = self.cell(self.embedding(token), state)
            token = self.scores(state).argmax()
            if token == END:
                return emitted, length
            emitted[length] = token
        return emitted, self.limit


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    with seeded(seed):
        model = GreedyDecoder().to(dtype)
        # Sharper weights than the default: a fresh decoder repeats one token for ever.
        for parameter in model.parameters():
            parameter.data *= 4.0
        return Example(model, (2.0 * torch.randn(batch, 32, dtype=dtype),))
