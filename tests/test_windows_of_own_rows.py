"""Windows of a thread's own bounds stay parts of tensors that each thread holds by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.oracle import assert_matches_loop

WINDOWS: dict[str, Callable[..., Tensor]] = {
    "first": lambda x, i: x[i : i + 2],
    "second": lambda x, i: x[:, i : i + 2],
    "both": lambda x, i: x[i : i + 2, i + 1 : i + 3],
    "around": lambda x, i: x[i : i + 2, :, i : i + 1],
    "with an int": lambda x, i: x[i, i : i + 2],
    "before an int": lambda x, i: x[i : i + 2, :, i],
    "with steps": lambda x, i: x[i : i + 3 : 2, ..., 1:],
    "new": lambda x, i: x[None, i : i + 2, None, i : i + 1],
    "at the end": lambda x, i: x[..., i : i + 2],
    "of one": lambda x, i: x[i : i + 1],
    "of none": lambda x, i: x[i:i],
    "turned": lambda x, i: x.transpose(0, 1)[i : i + 2],
    "of a window": lambda x, i: x[i : i + 3][1:, i : i + 1],
}


def turned(x: Tensor, n: Tensor) -> Tensor:
    return x.transpose(0, 1) if n > 1 else x.contiguous()


def doubled(x: Tensor) -> None:
    x.add_(1)
    if x.sum() > 0:
        x.mul_(2)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("window", WINDOWS.values(), ids=list(WINDOWS))
def test_writes_go_both_ways(window: Any) -> None:
    def by_calls(x, i, n):
        x = x.clone()
        doubled(x)
        part = window(x, i)
        other = turned(x, n)
        seen = part + 1
        x.mul_(2)
        return part * 1, other.sum(), seen, x * 1

    def back(x, i, n):
        x = x.clone()
        doubled(x)
        part = window(x, i)
        other = turned(x, n)
        part.mul_(2)
        return part * 1, other.sum(), x * 1

    def by_numpy(x, i, n):
        x = x.clone()
        part = window(x, i)
        rows = x.numpy()
        rows[0] = 7.0
        part.add_(1)
        return str(part.tolist()), float(rows.sum()), x * 1

    xs = torch.randn(7, 5, 6, 4, generator=torch.Generator().manual_seed(0))
    places, numbers = torch.tensor([0, 1, 2, 0, 1, 0, 2]), torch.tensor([1, 0, 1, 2, 0, 3, 2])
    for func in (by_calls, back, by_numpy):
        assert_matches_loop(func, (xs, places, numbers))


SELECTED: tuple[Callable[..., Any], ...] = (
    lambda y, i: y.select(0, i).zero_(),
    lambda y, i: torch.select(y, 1, -i - 1).mul_(3),
    lambda y, i: y.T.select(-1, i)[i:].add_(1),
    lambda y, i: y.select(dim=1, index=i).fill_(i),
)


@pytest.mark.parametrize("write", SELECTED)
def test_writes_to_what_select_picks_by_a_number_of_each_example(write):
    def func(x, i):
        y = x * 2
        write(y, i)
        return y

    xs = torch.arange(36.0).view(3, 3, 4)
    assert_matches_loop(func, (xs, torch.tensor([0, 2, 1])))


def test_slices_of_a_number_of_dimensions_that_a_tensor_has_not():
    assert_matches_loop(lambda x, i: x[i % 2 :], (torch.ones(3), torch.tensor([0, 1, 2])))
