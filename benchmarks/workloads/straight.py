"""Models without control flow, as in the parallel-for paper (Agarwal and Ganichev 2019).

Its figure 1 (arXiv 1903.04243) shows throughput against batch size. Here every example has
the same kernels, so all that a system adds to them is overhead.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.workload import Problem, Workload
from programs.example import seeded


class ConvNet(nn.Module):
    """An image ``[1, 28, 28]`` to ten scores: two convolutions with pools, two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 5, padding=2)
        self.second = nn.Conv2d(16, 32, 5, padding=2)
        self.hidden = nn.Linear(32 * 7 * 7, 128)
        self.scores = nn.Linear(128, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = F.max_pool2d(self.first(image).relu(), 2)
        x = F.max_pool2d(self.second(x).relu(), 2)
        # From the back, so that it reads the same for one image and for a batch.
        return self.scores(self.hidden(x.flatten(-3)).relu())


def linear(batch: int, device: str = "cpu") -> Problem:
    with seeded(0):
        model, x = nn.Linear(768, 768).to(device), torch.randn(batch, 768).to(device)
    by_hand = {"one-matmul": lambda: torch.addmm(model.bias, x, model.weight.t())}
    return Problem(model, (x,), by_hand, list(model.parameters()))


def convnet(batch: int, device: str = "cpu") -> Problem:
    with seeded(0):
        model, images = ConvNet().to(device), torch.randn(batch, 1, 28, 28).to(device)
    return Problem(model, (images,), {"batched": lambda: model(images)}, list(model.parameters()))


LINEAR = Workload("linear", linear, largest=8192, tolerance=1e-4)
CONVNET = Workload("convnet", convnet, largest=8192, tolerance=1e-4)
