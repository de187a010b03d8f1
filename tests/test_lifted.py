"""``autobatch.vmap(f)`` within ``torch.vmap``: rows of rows, or a clear refusal, never garbage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.errors import AutobatchError

W = torch.tensor([0.7, -1.2, 0.5])
XS = torch.tensor([[1.0, 2, -1], [-0.5, 0.3, 0.2], [2, -1, 0.4], [0.1, -0.2, -0.3]])
XX = torch.stack([XS, XS * 2 - 1])


def branching(x: Tensor, w: Tensor) -> Tensor:
    s = (x * w).sum()
    if s > 0:
        return torch.sin(s) * x[0]
    return (x * x * w).sum()


def looping(x: Tensor, w: Tensor) -> Tensor:
    s = x[0] * 1
    while s < 3:
        s = s * 1.5 + w[0].abs() + 1
    return s * x[1]


def writing(x: Tensor, w: Tensor) -> Tensor:
    y = torch.zeros(3)
    for i in range(3):
        y[i] = x[i] * w[i]
        if y[i] > 0:
            y[i] *= 2
    return (y * y).sum()


PROGRAMS: list[Callable[..., Any]] = [branching, looping, writing]
named = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


def rows_of_rows(program: Callable[..., Any]) -> Tensor:
    return torch.stack([torch.stack([program(x, W) for x in xs]) for xs in XX])


@named
def test_rows_of_rows(program: Callable[..., Any]) -> None:
    inner = autobatch.vmap(program, in_dims=(0, None), trace_after=0)
    expected = rows_of_rows(program)
    torch.testing.assert_close(torch.vmap(inner, in_dims=(0, None))(XX, W), expected)
    moved = torch.vmap(inner, in_dims=(2, None), out_dims=1)(XX.permute(1, 2, 0), W)
    torch.testing.assert_close(moved, expected.T)
    thrice = torch.vmap(torch.vmap(inner, in_dims=(0, None)), in_dims=(1, None))
    torch.testing.assert_close(thrice(XX[:, None].expand(2, 3, 4, 3), W), expected.expand(3, 2, 4))


@named
def test_gradients_of_rows_of_rows(program: Callable[..., Any]) -> None:
    expected = torch.stack([torch.stack([torch.func.grad(program)(x, W) for x in xs]) for xs in XX])
    inner = autobatch.vmap(autobatch.grad(program), in_dims=(0, None))
    torch.testing.assert_close(torch.vmap(inner, in_dims=(0, None))(XX, W), expected)
    values = torch.vmap(autobatch.vmap(program, in_dims=(0, None)), in_dims=(0, None))
    found = torch.func.grad(lambda xx: values(xx, W).sum())(XX)
    torch.testing.assert_close(found, expected)


def test_what_torch_maps_and_autobatch_does_not_get_to_see_is_refused() -> None:
    def within(xs: Tensor) -> Any:
        return autobatch.vmap(lambda w: branching(xs[0], w))(W.expand(2, 3))

    def differentiated(xs: Tensor) -> Any:
        of_all = autobatch.vmap(branching, in_dims=(0, None))
        return autobatch.grad(lambda t: of_all(t, W).sum())(xs)

    def in_rounds(xs: Tensor) -> Any:
        return autobatch.map_fn(lambda x: branching(x, W), xs)

    for refused in (within, differentiated, in_rounds):
        with pytest.raises(AutobatchError, match="reads a tensor that torch"):
            torch.vmap(refused)(XX)


def test_keywords_and_results_that_torch_cannot_map_are_told() -> None:
    inner = autobatch.vmap(lambda x, w=W: branching(x, w))
    with pytest.raises(AutobatchError, match="by position"):
        torch.vmap(lambda xs, w: inner(xs, w=w))(XX, W.expand(2, 3))
    words = autobatch.vmap(lambda x: "up" if x.sum() > 0 else "down")
    with pytest.raises(AutobatchError, match="return tensors"):
        torch.vmap(words)(XX)
