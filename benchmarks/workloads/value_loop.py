"""A 128-d tanh layer, left as soon as a value that it just computed is large: ≤ 50 steps.

Dynamic batching must stop there and compute: the graph cannot grow before the value is known.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.handwritten import Loop, State, ways
from benchmarks.workload import Problem, Workload
from programs.example import seeded

SIZE, LIMIT, MOST = 128, 1.2, 50


class UntilLarge(nn.Module):
    """``[128]`` to ``[128]``: after how many steps differs from one ``x`` to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linalg.qr(torch.randn(SIZE, SIZE)).Q)
        self.limit, self.most = LIMIT, MOST
        self.probe = nn.Parameter(torch.randn(SIZE) / SIZE**0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for _ in range(self.most):
            h = torch.tanh(self.weight @ h + 0.1 * x)
            if (self.probe * h).sum() > self.limit:
                break
        return h


def hand_written(model: UntilLarge, x: Tensor) -> Loop:
    weight = model.weight.t()

    def running(state: State, t: int) -> Tensor:
        if t == 0 or t == MOST:
            return torch.full((len(state[0]),), t == 0, device=state[0].device)
        return state[0] @ model.probe <= LIMIT

    def step(state: State, t: int, rows: Tensor | None) -> State:
        h, drive = state
        return (torch.addmm(drive, h, weight).tanh_(),)

    return Loop((x, 0.1 * x), 1, running, step)


def make(batch: int, device: str = "cpu") -> Problem:
    with seeded(0):
        model, x = UntilLarge().to(device), torch.randn(batch, SIZE).to(device)
    return Problem(model, (x,), ways(lambda: hand_written(model, x)), list(model.parameters()))


VALUE_LOOP = Workload("value_loop", make, largest=8192, tolerance=1e-3)
