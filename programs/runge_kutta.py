"""An ODE solver that picks its own step size: Bogacki and Shampine's pair of orders 3 and 2 (1989).

Each example integrates Van der Pol's oscillator ``x'' = mu (1 - x²) x' - x``. The larger
``mu``, the stiffer it is, and the more steps it takes; a step whose error estimate is too
large is thrown away and tried again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from programs.example import Example

DTYPES = (torch.float32, torch.float64)


def van_der_pol(y: Tensor, mu: Tensor) -> Tensor:
    position, velocity = y[0], y[1]
    return torch.stack((velocity, mu * (1.0 - position * position) * velocity - position))


def runge_kutta(y: Tensor, mu: Tensor, end: float = 5.0, tolerance: float = 1e-3) -> Tensor:
    """State ``y`` ``[2]`` at time 0 to the state ``[2]`` at time ``end``."""
    left = torch.full_like(mu, end)
    step = torch.full_like(mu, 0.1)
    slope = van_der_pol(y, mu)
    while left > 0.0:
        step = torch.minimum(step, left)
        second = van_der_pol(y + step * slope / 2, mu)
        third = van_der_pol(y + step * second * 3 / 4, mu)
        proposal = y + step * (2 * slope + 3 * second + 4 * third) / 9
        fourth = van_der_pol(proposal, mu)
        difference = step * (-5 * slope + 6 * second + 8 * third - 9 * fourth) / 72
        error = torch.abs(difference).max()
        if error <= tolerance:
            left = left - step
            y, slope = proposal, fourth
        grow = 0.9 * (tolerance / (error + 1e-12)) ** (1 / 3)
        step = step * grow.clamp(0.2, 5.0)
    return y


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    draw = torch.Generator().manual_seed(seed)
    y = torch.randn(batch, 2, generator=draw, dtype=dtype)
    mu = torch.rand(batch, generator=draw, dtype=dtype) * 5.0
    return Example(runge_kutta, (y, mu))
