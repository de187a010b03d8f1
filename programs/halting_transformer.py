"""A Transformer layer applied until a halting score is reached: depth by difficulty.

One ``nn.TransformerEncoderLayer``, shared by all depths as in the Universal Transformer
(Dehghani et al., 2019); a sequence leaves when its halting scores sum to the threshold.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)


class HaltingTransformer(nn.Module):
    """A sequence ``[T, width]`` to its encoding ``[T, width]`` and the layers it took."""

    def __init__(self, width: int = 16, threshold: float = 0.9, limit: int = 8) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            width, nhead=2, dim_feedforward=32, dropout=0.0, batch_first=True
        )
        self.halt = nn.Linear(width, 1)
        self.threshold = threshold
        self.limit = limit

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        score = 0.0
        depth = 0
        while score < self.threshold and depth < self.limit:
            x = self.layer(x)
            score = score + torch.sigmoid(self.halt(x.mean(0)))[0]
            depth += 1
        return x, depth


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    with seeded(seed):
        model = HaltingTransformer().to(dtype).eval()
        model.halt.weight.data *= 4.0
        model.halt.bias.data -= 1.0
        return Example(model, (torch.randn(batch, 5, 16, dtype=dtype),))
