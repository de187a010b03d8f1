"""Stretches that write what they are given: recorded unless a view among the inputs shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.batching.stretches import TracedExecutor
from autobatch.batching.trace import Input
from tests.expected import check, stacked

XS = torch.linspace(-1.0, 2.0, 24, dtype=torch.float64).reshape(4, 2, 3)
PLACES = torch.tensor([0, 1, 1, 0])


@dataclass(eq=False)
class Recorded:
    """Records as usual; ``runs`` are the numbers of operations of the stretches that ran."""

    runs: list[int] = field(default_factory=list)

    def compile(self, stretch: Any, inputs: Sequence[Input]) -> Any:
        run = TracedExecutor().compile(stretch, inputs)
        size = len(stretch.skeleton.batched)

        def counted(k: int, *values: Any) -> Sequence[Tensor]:
            self.runs.append(size)
            return run(k, *values)

        return counted


def beside_a_view(x: Tensor, i: Tensor) -> Any:
    """It writes one tensor beside a view of another."""
    ends, other = x * 2, x + 1
    view = other[0]
    if x.sum() > -1e9:
        ends[i] = view * 3
        ends = ends + view
    return ends, view


def of_its_base(x: Tensor, i: Tensor) -> Any:
    """It writes what a view shows, and then reads the view."""
    ends = x * 2
    view = ends[0]
    if x.sum() > -1e9:
        more = view + 1
        ends[i] = more * 3
        more = more + view
    return ends, view, more


def through_a_view(x: Tensor, i: Tensor) -> Any:
    """It writes through a view to what it is a view of."""
    ends = x * 2
    view = ends[0]
    if x.sum() > -1e9:
        more = view + 1
        view += more
        more = more + ends[i]
    return ends, view, more


def given_back(x: Tensor, i: Tensor) -> Any:
    """What it writes is a result, by its name and by another."""
    ends = x * 2
    same = ends
    if x.sum() > -1e9:
        ends[i] = x[0] * 3
        ends[1 - i] += 1
    return ends, same, ends.sum()


@pytest.mark.parametrize(
    ("program", "sizes"),
    [
        (beside_a_view, [8, 3, 1]),
        (of_its_base, [5, 3, 2, 2]),
        (through_a_view, [5, 2, 3, 2]),
        (given_back, [5, 7, 3]),
    ],
)
def test_stretches_that_write(program: Callable[..., Any], sizes: list[int]) -> None:
    executor = Recorded()
    mapped = autobatch.vmap(program, executor=executor, trace_after=0)
    rows = [program(x.clone(), i) for x, i in zip(XS, PLACES, strict=True)]
    for _ in range(4):
        executor.runs.clear()
        check(mapped(XS, PLACES), stacked(rows))
    assert executor.runs == sizes
