"""A layer iterated to its fixed point, as in deep equilibrium models (Bai et al., 2019).

``h = tanh(W h + U x + b)`` is repeated until ``h`` moves by less than the tolerance; how
long that takes depends on ``x``. ``W`` is orthogonal times 0.9, so that the map contracts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)


class FixedPoint(nn.Module):
    """``[inputs]`` to ``[hidden]``: the state that the layer maps to itself."""

    def __init__(self, inputs: int = 128, hidden: int = 128, tolerance: float = 1e-3) -> None:
        super().__init__()
        self.W = nn.Parameter(0.9 * torch.linalg.qr(torch.randn(hidden, hidden)).Q)
        self.U = nn.Parameter(torch.randn(hidden, inputs) / inputs**0.5)
        self.b = nn.Parameter(torch.zeros(hidden))
        self.tolerance = tolerance

    def forward(self, x: Tensor) -> Tensor:
        drive = self.U @ x + self.b
        h = torch.zeros_like(drive)
        while True:
            previous = h
            h = torch.tanh(self.W @ h + drive)
            if torch.linalg.vector_norm(h - previous) < self.tolerance:
                return h


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    with seeded(seed):
        layer = FixedPoint().to(dtype)
        # Small inputs leave tanh nearly linear and converge slowly, large ones at once.
        x = (
            torch.randn(batch, 128, dtype=dtype)
            * torch.logspace(-2, 1, batch, dtype=dtype)[:, None]
        )
        return Example(layer, (x,))
