"""An ODE layer (Chen et al., 2018) whose solver picks its steps for each example, with gradients.

The pair of orders 5 and 4 of Dormand and Prince (1980); gradients go through the steps that
were taken, and not through the choice of their size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from programs.example import Example, seeded

DTYPES = (torch.float64, torch.float32)

STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


class ODELayer(nn.Module):
    """``y`` ``[width]`` at time 0 to that at ``end`` (0-d), and how many steps were tried."""

    def __init__(self, width: int = 4, hidden: int = 16, tolerance: float = 1e-3) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, width))
        self.tolerance = tolerance

    def forward(self, y: Tensor, end: Tensor) -> tuple[Tensor, int]:
        time, step = 0.0, 0.1
        tried = 0
        while time < end:
            step = min(step, end - time)
            slopes = [self.field(y)]
            for weights in STAGES:
                proposal = y + step * sum(w * k for w, k in zip(weights, slopes, strict=True))
                slopes.append(self.field(proposal))
            wrong = step * sum(w * k for w, k in zip(ERROR, slopes, strict=True))
            error = wrong.detach().abs().max()
            if error <= self.tolerance:
                y, time = proposal, time + step
            step = step * (0.9 * (self.tolerance / (error + 1e-12)) ** 0.2).clamp(0.2, 5.0)
            tried += 1
        return y, tried


def example(batch: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Example:
    with seeded(seed):
        layer = ODELayer().to(dtype)
        for parameter in layer.parameters():
            parameter.data *= 4.0
        return Example(
            layer, (torch.randn(batch, 4, dtype=dtype), 0.2 + 3 * torch.rand(batch, dtype=dtype))
        )
