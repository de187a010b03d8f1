"""Gradients of gradients of attention, whose fused kernels have none, held to the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autobatch

WAYS: tuple[dict[str, Any], ...] = (
    {"trace_after": 0},
    {"executor": "vmap"},
    {"engine": "program_counter", "trace_after": 0},
    {"engine": "program_counter", "chunk_size": 2},
    {"save": "recompute", "trace_after": 0},
)


def masked(x: Tensor, w: Tensor) -> Tensor:
    y = F.scaled_dot_product_attention(x, x @ w, x * 2, scale=0.4, is_causal=True)
    if y.sum() > 0:
        return y.square().sum()
    keep = torch.ones(3, 3).tril().bool()
    return F.scaled_dot_product_attention(x.sin(), x, x @ w, keep).exp().sum()


def in_heads(x: Tensor, w: Tensor) -> Tensor:
    heads = (x @ w).unflatten(-1, (2, 2)).transpose(0, 1)
    steps = 0
    while heads.abs().sum() < 20 and steps < 3:
        heads = F.scaled_dot_product_attention(heads, heads.detach(), heads) * 2
        steps += 1
    return heads.square().sum()


def guarded(x: Tensor, w: Tensor) -> Tensor:
    """An infinite row is one that the example does not use."""
    y = F.scaled_dot_product_attention(x.abs().sqrt(), x, (x - 0.25).log() @ w)
    return y.square().sum() if x.min() > 0.25 else (x @ w).sin().sum()


PROGRAMS: tuple[Callable[..., Any], ...] = (masked, in_heads, guarded)
NAMED = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


def inputs(size: int) -> tuple[Tensor, Tensor]:
    xs = torch.linspace(-1.5, 2.0, size * 12, dtype=torch.float64).mul(7).sin().view(size, 3, 4)
    xs[::2] = xs[::2].abs() + 0.3  # those that ``guarded`` uses
    return xs, torch.linspace(-1, 1.2, 16, dtype=torch.float64).mul(3).cos().view(4, 4)


def thrice(batch: Callable[..., Tensor], xs: Tensor, w: Tensor) -> list[Tensor]:
    """Of a batch the first gradients, and those of what is made of them, twice."""
    leaves = [xs.clone().requires_grad_(), w.clone().requires_grad_()]
    out, found = batch(*leaves).sum(), []
    for _ in range(3):
        grads = torch.autograd.grad(out, leaves, create_graph=True)
        found += [grad.detach() for grad in grads]
        out = sum((grad.sin() * grad).sum() for grad in grads)
    return found


@pytest.mark.sampled(8)
@NAMED
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_gradients_of_gradients(program: Callable[..., Any], options: dict[str, Any]) -> None:
    batch = autobatch.vmap(program, in_dims=(0, None), **options)
    for size in (1, 2, 7) if options is WAYS[0] else (7,):
        given = inputs(size)
        expected = thrice(lambda xs, w: torch.stack([program(x, w) for x in xs]), *given)
        for _ in range(2):
            torch.testing.assert_close(thrice(batch, *given), expected, rtol=1e-5, atol=1e-6)


@NAMED
def test_transforms_of_transforms(program: Callable[..., Any]) -> None:
    xs, w = inputs(3)

    def twice(x: Tensor, w: Tensor) -> Tensor:
        slope = autobatch.grad(lambda x: autobatch.grad(program)(x, w).sin().sum())
        return slope(x)

    expected = torch.stack([twice(x, w) for x in xs])
    for options in WAYS[:3]:
        batch = autobatch.vmap(twice, in_dims=(0, None), **options)
        torch.testing.assert_close(batch(xs, w), expected)

    def around(xs: Tensor) -> Tensor:
        batch = autobatch.vmap(program, in_dims=(0, None))
        first = torch.func.grad(lambda xs: batch(xs, w).sum())
        return torch.func.grad(lambda xs: first(xs).sin().sum())(xs)

    torch.testing.assert_close(around(xs), expected)
    by_row = autobatch.vmap(autobatch.hessian(program), in_dims=(0, None))(xs, w)
    torch.testing.assert_close(by_row, torch.stack([autobatch.hessian(program)(x, w) for x in xs]))
