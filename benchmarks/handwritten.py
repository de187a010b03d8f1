"""A batched loop written by hand in torch, in the three ways that people write it.

``masked`` computes every row until the last one stops and keeps the stopped rows with
``torch.where``. ``compacting`` drops the rows that stop at every step; ``compacting_at_half``
when half of those that are left have stopped, masking in between. Each reads the device
once a step, and once more where rows are dropped.

A ``Loop`` is ``state = step(state)`` while ``running(state)``, for ``k`` rows at once: the
first ``moving`` tensors of the state change, the others are constants of their row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

State = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """``running(state, t)`` gives bool ``[k]``; ``step(state, t, rows)`` the moving tensors.

    ``rows`` are the input rows of the state's rows, None while all of them are there.
    The result of a row is its first tensor or, if ``counts``, how many steps it took.
    """

    start: State
    moving: int
    running: Callable[[State, int], Tensor]
    step: Callable[[State, int, Tensor | None], State]
    counts: bool = False


def masked(loop: Loop) -> Tensor:
    """Every row, until none runs: ``[B, *E]``."""
    state, t = loop.start, 0
    active = loop.running(state, t)
    steps = torch.zeros_like(active, dtype=torch.int64)
    while active.any():
        state = _step_where(loop, state, t, None, active)
        if loop.counts:
            steps += active
        t += 1
        active = loop.running(state, t)
    return steps if loop.counts else state[0]


def compacting(loop: Loop) -> Tensor:
    """Only the rows that still run: those that stop are stored and dropped at once."""
    state, t = loop.start, 0
    rows: Tensor | None = None
    out = _results(loop)
    while True:
        active = loop.running(state, t)
        if not active.all():
            stopped = (~active).nonzero().squeeze(1)
            out[_among(rows, stopped)] = t if loop.counts else state[0][stopped]
            if len(stopped) == len(active):
                return out
            keep = active.nonzero().squeeze(1)
            rows = _among(rows, keep)
            state = _select(state, keep)
        state = (*loop.step(state, t, rows), *state[loop.moving :])
        t += 1


def compacting_at_half(loop: Loop) -> Tensor:
    """Masked, until half of the rows that are left have stopped; then those are dropped."""
    state, t = loop.start, 0
    rows: Tensor | None = None
    out = _results(loop)
    active = loop.running(state, t)
    steps = torch.zeros_like(active, dtype=torch.int64)
    while left := int(active.sum()):
        if 2 * left <= len(active):
            _store(out, rows, steps if loop.counts else state[0], (~active).nonzero().squeeze(1))
            keep = active.nonzero().squeeze(1)
            rows = _among(rows, keep)
            state, steps, active = _select(state, keep), steps[keep], active[keep]
        state = _step_where(loop, state, t, rows, active)
        t += 1
        if loop.counts:
            steps += active
        active = loop.running(state, t)
    _store(out, rows, steps if loop.counts else state[0], None)
    return out


def ways(loop: Callable[[], Loop]) -> dict[str, Callable[[], Tensor]]:
    """The three by name; ``loop()`` makes all that precedes the first step, so it is timed."""
    return {
        "compacting": lambda: compacting(loop()),
        "masked": lambda: masked(loop()),
        "compacting-at-half": lambda: compacting_at_half(loop()),
    }


def _results(loop: Loop) -> Tensor:
    first = loop.start[0]
    if loop.counts:
        return torch.zeros(len(first), dtype=torch.int64, device=first.device)
    return torch.empty_like(first)


def _select(state: State, keep: Tensor) -> State:
    return tuple(tensor.index_select(0, keep) for tensor in state)


def _among(rows: Tensor | None, chosen: Tensor) -> Tensor:
    return chosen if rows is None else rows[chosen]


def _step_where(loop: Loop, state: State, t: int, rows: Tensor | None, active: Tensor) -> State:
    moved = loop.step(state, t, rows)
    kept = (
        torch.where(active.reshape(-1, *(1,) * (new.dim() - 1)), new, old)
        for new, old in zip(moved, state, strict=False)
    )
    return (*kept, *state[loop.moving :])


def _store(out: Tensor, rows: Tensor | None, values: Tensor, chosen: Tensor | None) -> None:
    """The results of the ``chosen`` rows of the state, or of all."""
    if chosen is None:
        out[slice(None) if rows is None else rows] = values
    else:
        out[_among(rows, chosen)] = values[chosen]
