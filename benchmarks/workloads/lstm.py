"""An LSTM 128 → 256 over sequences of 1 to 100 steps: one cell a step."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.handwritten import Loop, State, ways
from benchmarks.workload import Problem, Workload
from programs.lstm import VariableLengthLSTM, example

LONGEST = 100


def hand_written(model: VariableLengthLSTM, x: Tensor, length: Tensor) -> Loop:
    def running(state: State, t: int) -> Tensor:
        return state[2] > t

    def step(state: State, t: int, rows: Tensor | None) -> State:
        h, c, _ = state
        # Only the inputs of this step are gathered, never whole sequences.
        inputs = x[:, t] if rows is None else x[rows, t]
        stepped: State = model.cell(inputs, (h, c))
        return stepped

    zeros = x.new_zeros(len(x), model.cell.hidden_size)
    return Loop((zeros, zeros, length), 2, running, step)


def sorted_prefix(model: VariableLengthLSTM, x: Tensor, length: Tensor) -> Tensor:
    """Longest first, so that the rows still running are always the first ones."""
    order = length.argsort(descending=True, stable=True)
    sizes = (
        (length[:, None] > torch.arange(int(length.max()), device=length.device)).sum(0).tolist()
    )
    h = c = x.new_zeros(len(x), model.cell.hidden_size)
    ended: list[Tensor] = []
    for t, size in enumerate(sizes):
        if size < len(h):
            ended.append(h[size:])
            h, c = h[:size], c[:size]
        h, c = model.cell(x[order[:size], t], (h, c))
    ended.append(h)
    return torch.cat(ended[::-1])[order.argsort()]


def make(batch: int, device: str = "cpu") -> Problem:
    problem = example(batch, longest=LONGEST).to(device)
    model, (x, length) = problem.function, problem.args
    assert isinstance(model, VariableLengthLSTM)
    assert isinstance(x, Tensor) and isinstance(length, Tensor)
    if batch == 1:
        length = torch.full_like(length, LONGEST // 2)
    by_hand = {
        "sorted-prefix": lambda: sorted_prefix(model, x, length),
        **ways(lambda: hand_written(model, x, length)),
    }
    return Problem(model, (x, length), by_hand, list(model.parameters()))


# 32,768 sequences are 1.6 GiB of inputs and minutes of arithmetic a run.
LSTM = Workload("lstm", make, largest=8192, tolerance=1e-4)
