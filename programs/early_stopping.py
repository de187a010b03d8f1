"""A training loop for one learning rate: gradient descent until a held-out loss stops falling.

Each example trains a network of its own, from the same start on the same data, and ends by
itself: a batch of 64 learning rates trains 64 networks at once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)


class Training(nn.Module):
    """A learning rate (0-d) to the best held-out loss (0-d) and the steps that it took."""

    def __init__(self, hidden: int = 16, patience: int = 5, limit: int = 100) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        x = torch.linspace(-2.0, 2.0, 40)[:, None]
        y = torch.sin(2.0 * x) + 0.1 * torch.randn_like(x)
        self.register_buffer("x", x)
        self.register_buffer("y", y)
        self.patience = patience
        self.limit = limit

    def loss(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return ((functional_call(self.network, parameters, (x,)) - y) ** 2).mean()

    def forward(self, rate: Tensor) -> tuple[Tensor, int]:
        parameters = dict(self.network.named_parameters())
        best = torch.full_like(rate, float("inf"))
        waited = 0
        for step in range(1, self.limit + 1):  # noqa: B007
            slopes = torch.func.grad(self.loss)(parameters, self.x[::2], self.y[::2])
            parameters = {name: p - rate * slopes[name] for name, p in parameters.items()}
            held_out = self.loss(parameters, self.x[1::2], self.y[1::2])
            if held_out < best - 1e-3:
                best = held_out
                waited = 0
            else:
                waited += 1
                if waited == self.patience:
                    break
        return best, step


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    with seeded(seed):
        model = Training(patience=3, limit=30).to(dtype)
        return Example(model, (torch.logspace(-3.0, 0.5, batch, dtype=dtype),))
