"""Adaptive Runge-Kutta on Van der Pol's oscillator: some forty small kernels a step."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.handwritten import Loop, State, ways
from benchmarks.workload import Problem, Workload
from programs.runge_kutta import example, runge_kutta

END = 5.0
TOLERANCE = 1e-3


def van_der_pol(y: Tensor, mu: Tensor) -> Tensor:
    position, velocity = y.unbind(1)
    return torch.stack((velocity, mu * (1.0 - position * position) * velocity - position), 1)


def running(state: State, t: int) -> Tensor:
    return state[3] > 0.0


def step(state: State, t: int, rows: Tensor | None) -> State:
    y, slope, size, left, mu = state
    size = torch.minimum(size, left)
    wide = size[:, None]
    second = van_der_pol(y + wide * slope / 2, mu)
    third = van_der_pol(y + wide * second * 3 / 4, mu)
    proposal = y + wide * (2 * slope + 3 * second + 4 * third) / 9
    fourth = van_der_pol(proposal, mu)
    difference = wide * (-5 * slope + 6 * second + 8 * third - 9 * fourth) / 72
    error = difference.abs().amax(1)
    accepted = error <= TOLERANCE
    left = torch.where(accepted, left - size, left)
    y = torch.where(accepted[:, None], proposal, y)
    slope = torch.where(accepted[:, None], fourth, slope)
    grow = 0.9 * (TOLERANCE / (error + 1e-12)) ** (1 / 3)
    return y, slope, size * grow.clamp(0.2, 5.0), left


def hand_written(y: Tensor, mu: Tensor) -> Loop:
    start = y, van_der_pol(y, mu), torch.full_like(mu, 0.1), torch.full_like(mu, END), mu
    return Loop(start, 4, running, step)


def make(batch: int, device: str = "cpu") -> Problem:
    y, mu = example(batch).to(device).args
    assert isinstance(y, Tensor) and isinstance(mu, Tensor)
    return Problem(runge_kutta, (y, mu), ways(lambda: hand_written(y, mu)))


ODE = Workload("ode", make, tolerance=2e-2)
