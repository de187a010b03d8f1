"""What is a part of a tensor for some examples and a copy for others, as their tensors differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.oracle import assert_matches_loop


class Given:
    """``[0]`` runs within an operation: where threads part in it, each has a tensor of its own."""

    def __init__(self, x: Tensor, i: Tensor, n: Tensor) -> None:
        self.x, self.i, self.n = x, i, n


class Turned(Given):
    def __getitem__(self, key: int) -> Tensor:
        if self.n > 0:
            return self.x.clone().transpose(0, 2)[:, self.i]
        return self.x.clone()[self.i].T[:, :4]


class Doubles(Given):
    def __getitem__(self, key: int) -> Tensor:
        if self.n > 0:
            return self.x.clone()[:2, self.i].double()
        return self.x.clone()[self.i][:4]


class Outside(Given):
    def __getitem__(self, key: int) -> Tensor:
        return self.x[self.n :, self.i :].mT if self.n > 1 else self.x[self.i].T


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape": lambda y: y.reshape(-1),
    "reshape turned": lambda y: y.transpose(0, -1).reshape(-1),
    "flatten": lambda y: y.flatten(),
    "ravel": lambda y: y.ravel(),
    "contiguous": lambda y: y.contiguous(),
    "contiguous turned": lambda y: y.transpose(0, -1).contiguous(),
    "double": lambda y: y.double(),
    "float": lambda y: y.to(torch.float32),
    "itself": lambda y: y.view(y.dtype),
    "as it is shaped": lambda y: y.reshape(y.shape),
}


@pytest.mark.sampled(16)
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize("kind", [Turned, Doubles, Outside])
def test_writes_reach_what_python_writes(kind: type[Given], change: Any) -> None:
    def func(x, i, n):
        y = kind(x, i, n)[0]
        part = change(y)
        part.mul_(3)
        y[0] += 1
        return str(y.tolist()), str(part.tolist()), str(x.tolist())

    xs = torch.randn(6, 4, 6, 2, generator=torch.Generator().manual_seed(0))
    numbers = torch.tensor([0, 1, 2, 3, 1, 0]), torch.tensor([1, 0, 1, 2, 0, 3])
    assert_matches_loop(func, (xs, *numbers))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_writes_to_ragged_rows(change: Any) -> None:
    def func(y):
        part = change(y)
        part.mul_(3)
        y[0] += 1
        return str(y.tolist()), str(part.tolist())

    assert_matches_loop(func, (autobatch.ragged([torch.ones(k, 2) for k in (1, 3, 2, 3, 1)]),))
