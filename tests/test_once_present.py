"""What is computed once, for all examples that share it, and then needed by none of them.

Its rows lie beside those of others once examples meet, or are forked, or write it: the gradient
that comes back for them is zero, where the loop has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.test_gradients_present import WAYS

XS = torch.linspace(-1, 1, 12, dtype=torch.float64).view(4, 3)
NS = torch.tensor([3, 0, 3, 1])
W = torch.tensor([-1.0, 0.5, -0.2], dtype=torch.float64)
PROGRAMS: list[Callable[[Tensor, int, Tensor], Tensor]] = []


def program(function: Callable[[Tensor, int, Tensor], Tensor]) -> Any:
    PROGRAMS.append(function)
    return function


def forked(a: Tensor, depth: int) -> Tensor:
    if depth <= 0:
        return a.sin()
    kept = forked(a * 0.9, depth - 1)
    forked(a.sqrt(), depth - 2)
    return kept


def returned(a: Tensor, depth: int) -> Tensor:
    return a if depth <= 0 else returned(a, depth - 1)


@program
def calls_whose_result_nobody_reads(x: Tensor, n: int, w: Tensor) -> Tensor:
    return (forked(w, 2) * x).sum()


@program
def returns(x: Tensor, n: int, w: Tensor) -> Tensor:
    one, other = returned(w.sqrt(), n), returned(x, n)
    return one.sum() if n > 100 else other.sum() + w.sum()


@program
def branches_that_meet(x: Tensor, n: int, w: Tensor) -> Tensor:
    if n > 2:
        z = w.log()
        for _ in range(n):
            pass
    else:
        z = x
    return z.sum() + w.sum() if n <= 2 else x.sum() * w.sum()


@program
def lists(x: Tensor, n: int, w: Tensor) -> Tensor:
    found = [w**0.5] if n > 2 else [x]
    found.append(w * 2)
    return found[0].sum() + w.sum() if n <= 2 else found[1].sum()


@program
def dicts(x: Tensor, n: int, w: Tensor) -> Tensor:
    found = {}
    if n > 2:
        found["a"] = torch.sqrt(w)
    else:
        found["a"] = x
    return found["a"].sum() + w.sum() if n <= 2 else (x * w).sum()


@program
def writes(x: Tensor, n: int, w: Tensor) -> Tensor:
    made = torch.zeros(3, dtype=torch.float64)
    if n > 2:
        made += w.sqrt()
    else:
        made += x
    return made.sum() + w.sum() if n <= 2 else (x * w).sum()


@program
def loops(x: Tensor, n: int, w: Tensor) -> Tensor:
    y = w.sqrt()
    for k in range(3):
        if k < n:
            y = x * k
        else:
            x = x * 2
        if n == 0:
            y = x
    return (y * w).sum()


@program
def infinite_factors(x: Tensor, n: int, w: Tensor) -> Tensor:
    steep = w * math.inf
    z = (w * steep).tanh() if n > 2 else x
    for _ in range(n):
        pass
    return z.sum() + w.sum() if n <= 2 else (x * w).sum()


@program
def permuted(x: Tensor, n: int, w: Tensor) -> Tensor:
    z = w.sqrt()[[2, 0, 1]].flip(0) if n > 2 else x
    for _ in range(n):
        pass
    return z.sum() + w.sum() if n <= 2 else (x * w).sum()


@program
def different_numbers_of_examples(x: Tensor, n: int, w: Tensor) -> Tensor:
    y = w.sqrt()
    z = x
    if n > 2:
        z = y + x
    if n == 1:
        z = x - y
        for _ in range(n):
            pass
    return z.sum() if n == 0 else (x * w).sum()


@program
def wider_than_what_each_has(x: Tensor, n: int, w: Tensor) -> Tensor:
    scaled = (x.sum() - 100).sqrt() * w
    return scaled.sum() if n > 100 else (x * w).sum()


@program
def the_larger_one(x: Tensor, n: int, w: Tensor) -> Tensor:
    return max(w[1], x.sqrt()[n % 3]) + min(w[0], x[0].log(), x[1]) + (x * w).sum()


def by_backward(batch: Callable[..., Tensor], again: bool) -> tuple[Tensor, ...]:
    xs, w = XS.clone().requires_grad_(), W.clone().requires_grad_()
    total = batch(xs, NS, w).sum()
    found = torch.autograd.grad(total, (xs, w), create_graph=again, materialize_grads=True)
    if again:
        along = sum((each.sin().sum() for each in found), total)
        found += torch.autograd.grad(along, (xs, w), materialize_grads=True)
    return tuple(each.detach() for each in found)


def one_by_one(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda xs, ns, w: torch.stack(
        [function(x, int(n), w) for x, n in zip(xs, ns, strict=True)]
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda each: each.__name__)
def test_backward(function: Callable[..., Tensor], way: str, again: bool) -> None:
    want = by_backward(one_by_one(function), again)
    assert all(each.isfinite().all() for each in want)
    batch = autobatch.vmap(function, in_dims=(0, 0, None), scalars="python", **WAYS[way])
    for _ in range(3):
        torch.testing.assert_close(by_backward(batch, again), want)


@pytest.mark.parametrize("transform", [autobatch.grad, autobatch.jacrev, torch.func.grad])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda each: each.__name__)
def test_transforms(function: Callable[..., Tensor], transform: Callable[..., Any]) -> None:
    gradient = transform(function, argnums=(0, 2))
    batch = autobatch.vmap(gradient, in_dims=(0, 0, None), scalars="python", plain="never")
    want = [torch.func.grad(function, (0, 2))(x, int(n), W) for x, n in zip(XS, NS, strict=True)]
    for _ in range(3):
        for found, rows in zip(batch(XS, NS, W), zip(*want, strict=True), strict=True):
            torch.testing.assert_close(found, torch.stack(rows))


def test_what_tells_one_node_from_another() -> None:
    """Operations of torch's get another node of what is shared; nothing else does."""

    def function(x: Tensor, n: int, w: Tensor) -> Tensor:
        assert torch.as_tensor(w) is w
        return (w.exp() * x).sum() + (1 if w.is_leaf else 0)

    w = W.clone().requires_grad_()
    batch = autobatch.vmap(function, in_dims=(0, 0, None), plain="never")
    for _ in range(3):
        assert torch.equal(batch(XS, NS, w), (w.exp() * XS).sum(1) + 1)
