"""A 128-d layer iterated to its fixed point: one matrix product, tanh and a norm a step."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.handwritten import Loop, State, ways
from benchmarks.workload import Problem, Workload
from programs.fixed_point import FixedPoint, example


def hand_written(layer: FixedPoint, x: Tensor) -> Loop:
    weight, tolerance = layer.W.t(), layer.tolerance
    drive = torch.addmm(layer.b, x, layer.U.t())

    def running(state: State, t: int) -> Tensor:
        return state[1] >= tolerance

    def step(state: State, t: int, rows: Tensor | None) -> State:
        h, _, drive = state
        new = torch.addmm(drive, h, weight).tanh_()
        return new, torch.linalg.vector_norm(new - h, dim=1)

    start = torch.zeros_like(drive), x.new_full((len(x),), torch.inf), drive
    return Loop(start, 2, running, step)


def make(batch: int, device: str = "cpu") -> Problem:
    problem = example(batch).to(device)
    layer, x = problem.function, problem.args[0]
    assert isinstance(layer, FixedPoint) and isinstance(x, Tensor)
    return Problem(layer, (x,), ways(lambda: hand_written(layer, x)), list(layer.parameters()))


FIXED_POINT = Workload("fixed_point", make, tolerance=2e-3)
