"""Deep Q-learning (Mnih et al., 2015): one agent, with its replay memory and its target network.

An agent lives for some episodes of the cart-pole. It learns from a sample of its memory at each
step, once that holds enough, and refreshes its target network now and then. An agent that keeps the
pole up for longer lives longer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from programs.cart_pole import fallen, pushed
from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)
Parameters = dict[str, Tensor]


class DQN(nn.Module):
    """A learning rate (0-d) to what the agent's network says of the start ``[2]``, and its age."""

    def __init__(self, hidden: int = 16, episodes: int = 30, limit: int = 200) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        self.episodes, self.limit = episodes, limit
        self.capacity, self.sample, self.refresh = 128, 16, 20
        self.discount, self.explore = 0.95, 0.2

    def forward(self, rate: Tensor) -> tuple[Tensor, int]:
        parameters = {name: p.detach() for name, p in self.network.named_parameters()}
        target = parameters
        memory = rate.new_zeros(self.capacity, 10)
        age = 0
        for _ in range(self.episodes):
            state = 0.05 * torch.randn(4, dtype=rate.dtype)
            for _ in range(self.limit):
                if torch.rand(()) < self.explore:
                    action = torch.randint(0, 2, ())
                else:
                    action = values(self.network, parameters, state).argmax()
                following = pushed(state, action)
                fell = fallen(following)
                move = torch.cat((state, following, action[None], fell[None]))
                memory[age % self.capacity] = move
                age += 1
                if age >= self.sample:
                    filled = min(age, self.capacity)
                    moves = memory[torch.randint(0, filled, (self.sample,))]
                    slopes = torch.func.grad(loss)(
                        parameters, target, self.network, moves, self.discount
                    )
                    parameters = {name: p - rate * slopes[name] for name, p in parameters.items()}
                if age % self.refresh == 0:
                    target = parameters
                if fell:
                    break
                state = following
        return values(self.network, parameters, torch.zeros_like(state)), age


def values(network: nn.Module, parameters: Parameters, states: Tensor) -> Tensor:
    """What each action is worth in ``states`` ``[*, 4]``: ``[*, 2]``."""
    return functional_call(network, parameters, (states,))


def loss(
    parameters: Parameters, target: Parameters, network: nn.Module, moves: Tensor, discount: float
) -> Tensor:
    """``moves`` ``[sample, 10]``: state, next state, action, and whether the pole fell."""
    value = values(network, parameters, moves[:, :4]).gather(1, moves[:, 8:9].long())[:, 0]
    best = values(network, target, moves[:, 4:8]).max(dim=1).values
    wanted = (1.0 - moves[:, 9]) * (1.0 + discount * best)
    return nn.functional.smooth_l1_loss(value, wanted)


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    with seeded(seed):
        agent = DQN(episodes=2).to(dtype)
        return Example(agent, (torch.logspace(-2.0, 0.0, batch, dtype=dtype),), seed=seed)
