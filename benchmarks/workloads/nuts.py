"""NUTS on a correlated Gaussian of 100 dimensions; by hand, chains wait for each transition's last.

The recursion is written out by hand: a trajectory's leaves are numbered, and the subtrees that
end at leaf ``n`` are as many as ``n`` has trailing ones. Chains that have stopped are dropped
before each doubling. Draws are the same tape for all systems, so results are too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.workload import Problem, Run, Workload
from programs.example import seeded
from programs.nuts import LARGEST_ERROR, NUTS, CorrelatedGaussian

SIZE, STEP, TRANSITIONS = 100, 0.3, 4
DRAWS = 250
"""Uniform draws on the tape for each transition: about four times what is used."""


@dataclass(slots=True, eq=False)
class Subtrees:
    """A stretch of each chain's trajectory, by time, whichever way it was made.

    ``first`` and ``last`` are ``[k, 3, size]``, ``sample`` ``[k, size]``, ``count`` ``[k]``.
    """

    first: Tensor
    last: Tensor
    sample: Tensor
    count: Tensor

    def turns(self) -> Tensor:
        span = self.last[:, 0] - self.first[:, 0]
        back = (span * self.first[:, 1]).sum(1) < 0
        return back | ((span * self.last[:, 1]).sum(1) < 0)

    def select(self, rows: Tensor) -> Subtrees:
        return Subtrees(self.first[rows], self.last[rows], self.sample[rows], self.count[rows])


@dataclass(slots=True, eq=False)
class Chains:
    """All chains in lockstep, with leapfrogs of ``step``.

    ``uniforms`` ``[B, N]`` are drawn in each chain's own order: ``at`` ``[B]`` says how far it is.
    """

    precision: Tensor
    step: float
    uniforms: Tensor
    normals: Tensor
    at: Tensor

    def gradient(self, position: Tensor) -> tuple[Tensor, Tensor]:
        gradient = -(position @ self.precision)
        return gradient, 0.5 * (position * gradient).sum(1)

    def uniform(self, chains: Tensor, active: Tensor | None = None) -> Tensor:
        drawn = self.uniforms[chains, self.at[chains]]
        self.at[chains] += 1 if active is None else active
        return drawn

    def run(self, position: Tensor, transitions: int) -> Tensor:
        for t in range(transitions):
            position = self.transition(position, self.normals[:, t])
        return position

    def transition(self, position: Tensor, momentum: Tensor) -> Tensor:
        chains = torch.arange(len(position), device=position.device)
        gradient, value = self.gradient(position)
        level = value - 0.5 * momentum.square().sum(1) + self.uniform(chains).log()
        start = torch.stack((position, momentum, gradient), 1)
        whole = Subtrees(start, start, position, torch.ones_like(chains))
        result = position.clone()
        depth = 0
        while len(chains) and depth < 10:
            side = self.uniform(chains) < 0.5
            tree, goes_on = self.doubling(chains, whole, level, side, depth)
            rows = goes_on.nonzero().squeeze(1)
            chains, level, side = chains[rows], level[rows], side[rows]
            whole, tree = whole.select(rows), tree.select(rows)
            taken = self.uniform(chains) * whole.count < tree.count
            result[chains] = torch.where(taken[:, None], tree.sample, result[chains])
            forward = side[:, None, None]
            whole = Subtrees(
                torch.where(forward, whole.first, tree.first),
                torch.where(forward, tree.last, whole.last),
                whole.sample,
                whole.count + tree.count,
            )
            rows = (~whole.turns()).nonzero().squeeze(1)
            chains, level, whole = chains[rows], level[rows], whole.select(rows)
            depth += 1
        return result

    def doubling(
        self, chains: Tensor, whole: Subtrees, level: Tensor, side: Tensor, depth: int
    ) -> tuple[Subtrees, Tensor]:
        """The new half of the trajectories, and which of them may go on."""
        forward = side[:, None, None]
        point = torch.where(forward, whole.last, whole.first)
        step = self.step * (2.0 * side.to(point.dtype) - 1.0)[:, None]
        goes_on = torch.ones_like(chains, dtype=torch.bool)
        waiting: list[Subtrees] = []
        for leaf in range(2**depth):
            point, energy = self.leapfrog(point, step)
            tree = Subtrees(point, point, point[:, 0], (level <= energy).long())
            goes_on = self.stopped(chains, goes_on, level < energy + LARGEST_ERROR, leaf)
            height = 0
            while leaf >> height & 1:
                height += 1
                tree = self.joined(chains, goes_on, waiting.pop(), tree, forward)
                goes_on = self.stopped(chains, goes_on, ~tree.turns(), leaf >> height)
            if not goes_on.any():
                break
            waiting.append(tree)
        return tree, goes_on

    def leapfrog(self, point: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        position, momentum, gradient = point.unbind(1)
        momentum = momentum + 0.5 * step * gradient
        position = position + step * momentum
        gradient, value = self.gradient(position)
        momentum = momentum + 0.5 * step * gradient
        energy = value - 0.5 * momentum.square().sum(1)
        return torch.stack((position, momentum, gradient), 1), energy

    def stopped(self, chains: Tensor, before: Tensor, now: Tensor, rest: int) -> Tensor:
        """Chains that go on. One that stops still draws where its subtree is a second half."""
        self.at[chains] += (before & ~now) * rest.bit_count()
        return before & now

    def joined(
        self, chains: Tensor, active: Tensor, near: Subtrees, far: Subtrees, forward: Tensor
    ) -> Subtrees:
        count = near.count + far.count
        taken = self.uniform(chains, active) * count < far.count
        return Subtrees(
            torch.where(forward, near.first, far.first),
            torch.where(forward, far.last, near.last),
            torch.where(taken[:, None], far.sample, near.sample),
            count,
        )


def chains(kind: type[Chains], problem: Problem) -> Chains:
    """The problem's chains at their start."""
    position, uniforms, normals = problem.inputs
    precision = problem.function.log_density.precision
    at = torch.zeros(len(position), dtype=torch.int64, device=position.device)
    return kind(precision, STEP, uniforms, normals, at)


def make(batch: int, device: str = "cpu", transitions: int = TRANSITIONS) -> Problem:
    with seeded(0):
        law = CorrelatedGaussian(SIZE)
        position = torch.randn(batch, SIZE, dtype=torch.float64)
        uniforms = torch.rand(batch, DRAWS * transitions, dtype=torch.float64)
        normals = torch.randn(batch, transitions, SIZE, dtype=torch.float64)
    inputs = tuple(each.to(device) for each in (position, uniforms, normals))
    sampler = NUTS(law, STEP, transitions).to(device)
    by_hand: dict[str, Run] = {}
    problem = Problem(sampler, inputs, by_hand, delayable=False)
    by_hand["synchronised"] = lambda: chains(Chains, problem).run(inputs[0], transitions)
    return problem


NUTS_GAUSSIAN = Workload("nuts", make, largest=8192, tolerance=1e-9)
