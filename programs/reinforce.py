"""REINFORCE (Williams, 1992): one episode of the cart-pole, and the loss that learns from it.

An episode ends when the pole falls, which is sooner for some and later for others. The loss of
a batch of episodes is the mean of their losses.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from programs.cart_pole import fallen, pushed
from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)


class Reinforce(nn.Module):
    """A state ``[4]`` to the loss (0-d) of one episode from there, and how long it lasted."""

    def __init__(self, hidden: int = 16, limit: int = 200, discount: float = 0.99) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.limit = limit
        self.discount = discount

    def forward(self, state: Tensor) -> tuple[Tensor, int]:
        log_chances, rewards = [], []
        for _ in range(self.limit):
            chance = torch.sigmoid(self.policy(state))[0]
            action = torch.bernoulli(chance.detach())
            log_chances.append(torch.log(torch.where(action == 1, chance, 1.0 - chance)))
            state = pushed(state, action)
            rewards.append(1.0)
            if fallen(state):
                break
        total = 0.0
        returns = []
        for reward in reversed(rewards):
            total = reward + self.discount * total
            returns.insert(0, total)
        loss = state.new_zeros(())
        for log_chance, value in zip(log_chances, returns, strict=True):
            loss = loss - log_chance * value
        return loss, len(rewards)


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    with seeded(seed):
        model = Reinforce(limit=30).to(dtype)
        return Example(model, (0.1 * torch.randn(batch, 4, dtype=dtype),), seed=seed)
