"""Strides and contiguity of rows are one example's, however the caller's batch lies in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.oracle import assert_matches_loop


def strides(x):
    return x.stride(), x.t().stride(), x[0].stride(), x[:, 0].stride(), x[:, :2].is_contiguous()


def contiguity(x):
    return x.is_contiguous(), x.t().is_contiguous(), x.t().contiguous().stride()


def made(x):
    y = x.t() * 2
    return y.stride(), y.is_contiguous(), torch.zeros_like(y).stride(), (y + 1).stride()


def viewed(x):
    return x.view(-1)


def viewed_transposed(x):
    return x.t().view(-1)


def written_through(x):
    x.view(-1)[0] = 5
    x.reshape(-1)[1] = 6
    x.t().reshape(-1)[2] = 7  # a copy
    return x


def chosen(x):
    return x.view(-1) if x.is_contiguous() else x.reshape(-1) * 10


def after_a_branch(x):
    y = x.t() * 2
    if x.sum() > 0:
        y = y + 1
    return y.stride(), y.is_contiguous()


def viewed_after_a_branch(x):
    y = x.t() * 2
    if x.sum() > 0:
        y = y + 1
    return y.view(-1)


def view_after_a_branch(x):
    y = x.t()
    if x.sum() > 0:
        x = x + 1
    return y.stride(), x.stride(), y.reshape(-1)


def in_a_loop(x):
    y = x.t()
    total = 0
    while y.sum() < 10:
        y = y + 1
        total += y.stride(0)
    return total, y.stride()


def uniform_meets_rows(x):
    y = torch.zeros(3, 4).t()
    if x.sum() > 0:
        y = y + x.sum()
    return y.stride()


FUNCS = [
    *(strides, contiguity, made, viewed, viewed_transposed, written_through, chosen),
    *(after_a_branch, viewed_after_a_branch, view_after_a_branch, in_a_loop, uniform_meets_rows),
]


def batches() -> dict[str, tuple[Tensor, int]]:
    whole = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    return {
        "contiguous": (whole, 0),
        "in_dims=1": (whole, 1),
        "in_dims=2": (whole, 2),
        "rows transposed": (whole.transpose(1, 2), 0),
        "batch transposed": (whole.transpose(0, 1), 0),
        "all permuted": (whole.permute(2, 1, 0), 1),
        "every second": (torch.cat([whole, whole], 2)[:, :, ::2], 0),
        "expanded batch": (whole[0].expand(4, 3, 5), 0),
        "expanded rows": (whole[:, :, :1].expand(4, 3, 5), 0),
    }


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", batches())
@pytest.mark.parametrize("func", FUNCS)
def test_like_one_example(func: Callable[..., Any], name: str) -> None:
    batch, dim = batches()[name]
    assert_matches_loop(func, (batch,), in_dims=dim)


def test_gradients_reach_the_caller() -> None:
    leaf = torch.randn(3, 4, 5, requires_grad=True)
    results = autobatch.vmap(lambda x: (x.t() * x.t()).sum(), in_dims=1)(leaf)
    results.sum().backward()
    assert torch.allclose(leaf.grad, 2 * leaf.detach())
