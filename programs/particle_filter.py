"""A particle filter (Gordon, Salmond and Smith, 1993): the likelihood of a series.

The state moves by ``x' = x / 2 + 25 x / (1 + x²) + 8 cos(1.2 t) + noise`` and is seen as
``x² / 20 + noise``. Particles are resampled when their weights have become uneven: when fewer
than half of them count (Kong, Liu and Wong, 1994), which is at other steps in every series.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)


def log_normal(value: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """The logarithm of a normal density."""
    return -(((value - mean) / scale) ** 2) / 2 - scale.log() - math.log(2 * math.pi) / 2


class ParticleFilter(nn.Module):
    """Observations ``[T]`` to the log likelihood (0-d) and how often it resampled."""

    def __init__(self, particles: int = 64) -> None:
        super().__init__()
        self.particles = particles
        self.log_motion = nn.Parameter(torch.tensor(math.log(10.0) / 2))
        self.log_sight = nn.Parameter(torch.tensor(0.0))

    def forward(self, observations: Tensor) -> tuple[Tensor, int]:
        x = torch.randn(self.particles, dtype=observations.dtype)
        log_weights = torch.full_like(x, -math.log(self.particles))
        likelihood = observations.new_zeros(())
        resampled = 0
        for t, seen in enumerate(observations):
            noise = self.log_motion.exp() * torch.randn_like(x)
            x = x / 2 + 25 * x / (1 + x**2) + 8 * math.cos(1.2 * t) + noise
            log_weights = log_weights + log_normal(seen, x**2 / 20, self.log_sight.exp())
            step = torch.logsumexp(log_weights, 0)
            likelihood = likelihood + step
            log_weights = log_weights - step
            weights = log_weights.exp()
            if 1.0 / (weights**2).sum() < self.particles / 2:
                chosen = torch.multinomial(weights.detach(), self.particles, replacement=True)
                x = x[chosen]
                log_weights = torch.full_like(x, -math.log(self.particles))
                resampled += 1
        return likelihood, resampled


def simulated(length: int, dtype: torch.dtype) -> Tensor:
    """A series ``[length]`` of the model."""
    x = torch.randn(())
    seen = []
    for t in range(length):
        x = x / 2 + 25 * x / (1 + x**2) + 8 * math.cos(1.2 * t) + math.sqrt(10) * torch.randn(())
        seen.append(x**2 / 20 + torch.randn(()))
    return torch.stack(seen).to(dtype)


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    with seeded(seed):
        lengths = torch.randint(4, 21, (batch,)).tolist()
        series = [simulated(length, dtype) for length in lengths]
        return Example(ParticleFilter().to(dtype), (series,), seed=seed)
