"""``python -m benchmarks.agents [--agents …] [--episodes N] [--seconds S]``: DQN by steps.

Deep Q-learning with replay memory, target network and conditional updates (``programs/dqn.py``),
as *Dynamic control flow in large-scale machine learning* (Yu et al., EuroSys 2018) has it: with the
control flow in the program, against agents that the host drives. ``loop``: one agent after the
other; ``host``: all agents step together, by hand, as long as one lives; the host asks at each step
who learns, refreshes and has fallen, and masks the others. Each draws for itself, so that the
agents' lives differ and steps a second are what is measured. Medians of interleaved runs, seconds
of the process, one torch thread.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import autobatch
from benchmarks.harness import interleave
from programs.cart_pole import fallen, pushed
from programs.dqn import DQN, loss, values
from programs.example import seeded

SYSTEMS = ("loop", "host", "autobatch")
LOOPED = 4
"""Agents that the loop runs."""


class Hosted:
    """Agents ``[B]`` of learning ``rates`` that step together."""

    def __init__(self, agent: DQN, rates: Tensor) -> None:
        self.agent, self.rates, count = agent, rates, len(rates)
        self.parameters = {
            name: p.detach().expand(count, *p.shape).clone()
            for name, p in agent.network.named_parameters()
        }
        self.target = self.parameters
        self.memory = rates.new_zeros(count, agent.capacity, 10)
        self.age = torch.zeros(count, dtype=torch.int64)
        self.values = torch.vmap(lambda p, states: values(agent.network, p, states))
        slopes = torch.func.grad(lambda *given: loss(*given, agent.discount))
        self.slopes = torch.vmap(lambda p, t, moves: slopes(p, t, agent.network, moves))

    def run(self) -> Tensor:
        """The age of each agent after its episodes."""
        agent, count = self.agent, len(self.rates)
        episode, step = torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)
        state = 0.05 * torch.randn(count, 4)
        while (alive := episode < agent.episodes).any():
            best = self.values(self.parameters, state).argmax(1)
            explores = torch.rand(count) < agent.explore
            action = torch.where(explores, torch.randint(0, 2, (count,)), best)
            following = torch.vmap(pushed)(state, action)
            fell = torch.vmap(fallen)(following)
            move = torch.cat((state, following, action[:, None], fell[:, None]), 1)
            rows = alive.nonzero().squeeze(1)
            self.memory[rows, self.age[rows] % agent.capacity] = move[rows]
            self.age += alive
            self.learn(alive & (self.age >= agent.sample))
            self.refresh(alive & (self.age % agent.refresh == 0))
            step += 1
            ends = fell | (step >= agent.limit)
            episode, step = episode + (ends & alive), torch.where(ends, 0, step)
            state = torch.where(ends[:, None], 0.05 * torch.randn(count, 4), following)
        return self.age

    def learn(self, who: Tensor) -> None:
        if not who.any():
            return
        agent, count = self.agent, len(self.rates)
        filled = self.age.clamp(min=1, max=agent.capacity)
        places = (torch.rand(count, agent.sample) * filled[:, None]).long()
        moves = self.memory[torch.arange(count)[:, None], places]
        slopes = self.slopes(self.parameters, self.target, moves)
        self.parameters = {
            name: torch.where(wide(who, p), p - wide(self.rates, p) * slopes[name], p)
            for name, p in self.parameters.items()
        }

    def refresh(self, who: Tensor) -> None:
        if who.any():
            self.target = {
                name: torch.where(wide(who, p), p, self.target[name])
                for name, p in self.parameters.items()
            }


def wide(column: Tensor, like: Tensor) -> Tensor:
    """``[B]`` beside ``[B, *E]``."""
    return column.reshape(-1, *(1,) * (like.dim() - 1))


def systems(agents: int, episodes: int) -> dict[str, Callable[[], Tensor]]:
    """Each gives the ages of its agents: the steps that they have made."""
    with seeded(0):
        agent = DQN(episodes=episodes)
    rates = torch.logspace(-2.0, 0.0, agents)
    mapped = autobatch.vmap(agent, seed=0)

    def loop() -> Tensor:
        with seeded(1):
            return torch.tensor([agent(rate)[1] for rate in rates[:: max(1, agents // LOOPED)]])

    def host() -> Tensor:
        with seeded(1):
            return Hosted(agent, rates).run()

    return {"loop": loop, "host": host, "autobatch": lambda: mapped(rates)[1]}


def measured(agents: int, episodes: int, seconds: float) -> str:
    """A line: steps a second of each system, and how autobatch compares."""
    runs: dict[str, Callable[[], Any]] = dict(systems(agents, episodes))
    runs["autobatch"]()  # it records
    steps = {name: int(run().sum()) for name, run in runs.items()}
    times = interleave(runs, seconds)
    speed = {name: steps[name] / statistics.median(times[name]) for name in runs}
    each = " ".join(f"{speed[name]:>14,.0f}" for name in SYSTEMS)
    ours = speed["autobatch"]
    return f"{agents:>6} {each} {ours / speed['loop']:>8.2f} {ours / speed['host']:>8.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", type=int, nargs="+", default=(16, 256))
    parser.add_argument("--episodes", type=int, default=4, help="that each agent lives for")
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    each = " ".join(f"{name + ', /s':>14}" for name in SYSTEMS)
    print(f"{'agents':>6} {each} {'/loop':>8} {'/host':>8}")
    for agents in given.agents:
        print(measured(agents, given.episodes, given.seconds), flush=True)


if __name__ == "__main__":
    main()
