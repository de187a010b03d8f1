"""A mixture of experts (Shazeer et al., 2017): each example goes to the expert it chooses.

The chosen expert is a module of its own shape, and a second one is asked when the first is not
sure; the choice itself has no gradient, the weight of what was chosen has.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)


class MixtureOfExperts(nn.Module):
    """``x`` ``[width]`` to ``[width]`` and the number of the expert that was chosen."""

    def __init__(self, width: int = 32, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
            for hidden in range(32, 32 * (experts + 1), 32)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.softmax(self.router(x), dim=0)
        chosen = weights.argmax()
        y = weights[chosen] * self.experts[chosen](x)
        if weights[chosen] < 0.5:
            second = weights.topk(2).indices[1]
            y = y + weights[second] * self.experts[second](x)
        return y, chosen


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    with seeded(seed):
        model = MixtureOfExperts().to(dtype)
        return Example(model, (3.0 * torch.randn(batch, 32, dtype=dtype),))
