"""Residual vector quantisation (Juang and Gray, 1982), with a code book that learns from its use.

An example takes code words until what they leave of it is small, each the nearest to what is left.
Which words were taken, and what for, is counted in buffers that all examples share: every write is
a sum, a count or a maximum, so examples may come in any order. ``refit`` then moves the words to
the means of what they stood for (van den Oord et al., 2017, without the decay).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)


class ResidualQuantiser(nn.Module):
    """``x`` ``[width]`` to its approximation ``[width]`` and the number of words it took."""

    words: Tensor
    uses: Tensor
    sums: Tensor
    seen: Tensor
    worst: Tensor

    def __init__(self, width: int = 4, words: int = 16, stages: int = 6) -> None:
        super().__init__()
        self.stages = stages
        self.register_buffer("words", torch.randn(words, width))
        self.register_buffer("uses", torch.zeros(words, dtype=torch.int64))
        self.register_buffer("sums", torch.zeros(words, width))
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("worst", torch.tensor(0.0))

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        left, stage = x, 0
        while stage < self.stages and left.norm() > 1.0:
            nearest = (self.words - left).square().sum(1).argmin()
            self.uses[nearest] += 1
            self.sums[nearest] += left
            left = left - self.words[nearest]
            stage += 1
        self.seen += 1
        self.worst.copy_(torch.maximum(self.worst, left.norm()))
        return x - left, stage

    def refit(self) -> None:
        """Move each word that was taken to the mean of what it stood for, and begin anew."""
        means = self.sums / self.uses.clamp(min=1).unsqueeze(1)
        self.words = torch.where((self.uses > 0).unsqueeze(1), means, self.words)
        for counted in (self.uses, self.sums, self.seen, self.worst):
            counted.zero_()


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    with seeded(seed):
        model = ResidualQuantiser().to(dtype)
        return Example(model, (2.0 * torch.randn(batch, 4, dtype=dtype),))
