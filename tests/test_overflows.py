"""Sums and products that overflow in what an example does not use spoil no gradient of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.test_gradients_present import WAYS, by_loop

XS = [0.1, 3e19, -0.5, 2.0, 1e12, -3e19, 1.5]


def small(x: Tensor, w: Tensor) -> Tensor:
    return x.sign() * w + x * 2


def squared(x: Tensor, w: Tensor) -> Tensor:
    z = x
    for _ in range(12):
        z = z * z + x * w
    return z if z.isfinite() else small(x, w)


def squared_in_rounds(x: Tensor, w: Tensor) -> Tensor:
    z, n = x * w, 0
    while n < 12:
        z = z * z + x
        n += 1
    if z.abs() < 1e30:
        return z
    return small(x, w)


def leaving_when_large(x: Tensor, w: Tensor) -> Tensor:
    z, last = x, x
    for _ in range(12):
        last, z = z, z * z * w
        if z.abs() > 1e6:
            break
    return small(x, w) * last.sign()


def hidden_by_a_sigmoid(x: Tensor, w: Tensor) -> Tensor:
    y = torch.sigmoid((x * x) * (x * x) * w)
    return y if x.abs() < 10 else small(x, w)


def hidden_by_bounds(x: Tensor, w: Tensor) -> Tensor:
    y = ((x * w * x * w) * x * x).clamp(-3, 3)
    return y if x.abs() < 10 else small(x, w)


def hidden_by_a_choice(x: Tensor, w: Tensor) -> Tensor:
    y = torch.stack([x * w, x * x * x * x * w])
    z = torch.where(y.abs() < 1e3, y, torch.ones_like(y)).sum() * w
    return z if x.abs() < 10 else small(x, w)


def cosine_of_what_overflows(x: Tensor, w: Tensor) -> Tensor:
    y = torch.cos(x * x * w)
    return small(x, w) if x.abs() > 10 else y


def cosine_of_a_sum(x: Tensor, w: Tensor) -> Tensor:
    y = torch.cos((torch.stack([x, x * w]) * 1e19).sum() * w)
    return small(x, w) if x.abs() > 10 else y


def shared_factor(x: Tensor, w: Tensor) -> Tensor:
    """The gradient of what all share is that of the rows that are used."""
    z = x * x
    y = z * w
    return y if x.abs() < 10 else x * 2


def products_of_matrices(x: Tensor, w: Tensor) -> Tensor:
    m = torch.stack([x, w, w, x]).view(2, 2)
    for _ in range(5):
        m = m @ m
    return m.sum() if m.isfinite().all() else small(x, w)


def minus_infinity(x: Tensor, w: Tensor) -> Tensor:
    y = x * w + -math.inf
    z = (y * w).exp() + torch.tanh(y) * w
    return z if x.abs() < 1 else small(x, w)


def filled_and_hidden(x: Tensor, w: Tensor) -> Tensor:
    y = torch.stack([x, w]).masked_fill(x.abs() > 10, -math.inf)
    z = torch.sigmoid(y * w).sum()
    return z if x.abs() < 10 else small(x, w)


LEAST = -math.inf


def filled_by_a_global(x: Tensor, w: Tensor) -> Tensor:
    y = torch.stack([x, w]).masked_fill(x.abs() > 10, LEAST)
    z = torch.sigmoid(y * w).sum()
    return z if x.abs() < 10 else small(x, w)


def chosen_and_hidden(x: Tensor, w: Tensor) -> Tensor:
    y = torch.where(x > 10, math.inf, x)
    z = torch.tanh(y * w) + torch.cos(y)
    return z if x.abs() < 10 else small(x, w)


def masked_softmax(x: Tensor, w: Tensor) -> Tensor:
    y = (torch.stack([x, w]) / 10).masked_fill(x.abs() > 10, -math.inf)
    z = torch.sigmoid((y.softmax(0) * w).sum())
    return z if x.abs() < 10 else small(x, w)


def narrowed(x: Tensor, w: Tensor) -> Tensor:
    y = (x * w).half() * 0.5
    return torch.cos(y).float() if x.abs() < 10 else small(x, w)


def cube(x: Tensor, w: Tensor) -> Tensor:
    """The derivative of a power overflows by itself."""
    y = (x * 10) ** 3 * w
    return y if x.abs() < 10 else small(x, w)


def cube_in_place(x: Tensor, w: Tensor) -> Tensor:
    y = (x * 10).pow_(3) * w
    return y if x.abs() < 10 else small(x, w)


def square_of_what_overflows(x: Tensor, w: Tensor) -> Tensor:
    y = (x * x * x * w) ** 2
    return y if x.abs() < 10 else small(x, w)


def squared_difference(x: Tensor, w: Tensor) -> Tensor:
    y = torch.nn.functional.mse_loss(x * x * x, w)
    return y if x.abs() < 10 else small(x, w)


def normalized(x: Tensor, w: Tensor) -> Tensor:
    """What is squared for the variance overflows."""
    y = torch.nn.functional.layer_norm(torch.stack([x * 10, w]), (2,)) * w
    return y[0] if x.abs() < 10 else small(x, w)


def product_of_three(x: Tensor, w: Tensor) -> Tensor:
    v = torch.stack([x * 10, w])
    y = torch.einsum("i,i,i->", v, v, v * w)
    return y if x.abs() < 10 else small(x, w)


def gelu_by_tanh(x: Tensor, w: Tensor) -> Tensor:
    """What it cubes overflows, and nothing of that is seen in its result."""
    y = torch.nn.functional.gelu(x * w, approximate="tanh") * w
    return y if x.abs() < 10 else small(x, w)


GELU = torch.nn.GELU(approximate="tanh")


def layer_of_gelu_by_tanh(x: Tensor, w: Tensor) -> Tensor:
    y = GELU(x * w) * w
    return y if x.abs() < 10 else small(x, w)


PROGRAMS = (
    gelu_by_tanh,
    layer_of_gelu_by_tanh,
    cube,
    cube_in_place,
    square_of_what_overflows,
    squared_difference,
    normalized,
    product_of_three,
    squared,
    squared_in_rounds,
    leaving_when_large,
    hidden_by_a_sigmoid,
    hidden_by_bounds,
    hidden_by_a_choice,
    cosine_of_what_overflows,
    cosine_of_a_sum,
    shared_factor,
    products_of_matrices,
    minus_infinity,
    filled_and_hidden,
    filled_by_a_global,
    chosen_and_hidden,
    masked_softmax,
    narrowed,
)


@pytest.mark.sampled(32)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_backward_is_the_loops(program: Callable[..., Any], way: str) -> None:
    w = torch.tensor(1.5)
    for size in (1, 2, 7):
        xs = torch.tensor(XS[-size:])
        expected = by_loop(program, xs, w)
        batched = autobatch.vmap(program, in_dims=(0, None), plain="never", **WAYS[way])
        for _ in range(3):
            given, shared = xs.clone().requires_grad_(), w.clone().requires_grad_()
            batched(given, shared).sum().backward()
            found = [torch.zeros_like(t) if t.grad is None else t.grad for t in (given, shared)]
            torch.testing.assert_close(found, list(expected), equal_nan=True)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("way", ["recorded", "vmap"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_derivatives_of_each_example_are_the_loops(program: Callable[..., Any], way: str) -> None:
    w, xs = torch.tensor(1.5), torch.tensor(XS)
    for made, theirs in (
        (autobatch.grad(program, (0, 1)), torch.func.grad(program, (0, 1))),
        (autobatch.jacfwd(program, (0, 1)), torch.func.jacfwd(program, (0, 1))),
    ):
        expected = [torch.stack(each) for each in zip(*(theirs(x, w) for x in xs), strict=True)]
        for _ in range(3):
            found = autobatch.vmap(made, in_dims=(0, None), plain="never", **WAYS[way])(xs, w)
            torch.testing.assert_close(
                list(found), expected, rtol=1e-3, atol=1e-3, equal_nan=True, check_dtype=False
            )


@pytest.mark.parametrize("way", WAYS)
def test_a_product_that_nobody_needs(way: str) -> None:
    """Its rows lie among others', of which some are needed."""

    def program(x: Tensor, w: Tensor) -> Tensor:
        y = (x * x * x) * w
        y = torch.relu(y) if x > 2e10 else torch.cos(x)
        return small(x, w) if x.abs() > 10 else y

    xs, w = torch.tensor(XS), torch.tensor(1.5)
    expected = by_loop(program, xs, w)
    batched = autobatch.vmap(program, in_dims=(0, None), plain="never", **WAYS[way])
    for _ in range(3):
        given, shared = xs.clone().requires_grad_(), w.clone().requires_grad_()
        found = torch.autograd.grad(batched(given, shared).sum(), (given, shared))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("way", WAYS)
def test_a_layer_that_nobody_needs(way: str) -> None:
    lin = torch.nn.Linear(2, 2)
    xs = torch.tensor([[1.0, 2.0], [3e25, 1e25], [2e25, 2.0], [3e25, 1.0], [2.0, 1.0]])

    def program(x: Tensor, n: Tensor) -> Tensor:
        y = lin(x * x * x)
        y = torch.relu(y) if n > 1 else torch.cos(x)
        return x.sum() if n > 0 else y.sum()

    batched = autobatch.vmap(program, plain="never", **WAYS[way])
    for _ in range(3):
        given = xs.clone().requires_grad_()
        made = batched(given, torch.tensor([0, 1, 2, 1, 2])).sum()
        weight, found = torch.autograd.grad(made, (lin.weight, given), materialize_grads=True)
        assert weight.isfinite().all()
        assert found.isfinite().all()


def gone_round(h: Tensor, w: Tensor, steps: int) -> Tensor:
    """Of a state that overflows on the way nothing is seen in the end."""
    for _ in range(steps):
        h = torch.sigmoid((h * h) * (h * w) * (h * h))
    return h


def out_of_bounds(h: Tensor, w: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        h = h * h * w
    return h


@pytest.mark.parametrize("save", ["keep", "recompute"])
@pytest.mark.parametrize("function", [gone_round, out_of_bounds])
def test_rounds_of_a_loop(function: Callable[..., Any], save: str) -> None:
    def chosen(h: Tensor, w: Tensor, x: Tensor) -> Tensor:
        y = function(h, w, 40).sum()
        if x > 0:
            return y
        return h.sum() * w.sum()

    hs = torch.tensor([[0.5, 0.3], [1e15, 2.0], [0.7, -0.2], [3e18, -1e17], [0.1, 0.1]])
    xs = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
    w = torch.tensor([0.9, 0.8])
    given = hs.clone().requires_grad_(), w.clone().requires_grad_()
    total = sum(chosen(h, given[1], x) for h, x in zip(given[0], xs, strict=True))
    expected = torch.autograd.grad(total, given)
    batched = autobatch.vmap(chosen, in_dims=(0, None, 0), save=save, plain="never", trace_after=0)
    for _ in range(3):
        given = hs.clone().requires_grad_(), w.clone().requires_grad_()
        found = torch.autograd.grad(batched(*given, xs).sum(), given)
        torch.testing.assert_close(found, expected)
