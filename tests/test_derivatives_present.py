"""Rows that a thread computes and does not use are absent from derivatives of any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import autobatch
from tests.sweeps import case
from tests.test_gradients_present import PROGRAMS, WAYS, XS, first

BOTH = (0, 1)
W = torch.tensor([[1.0, 0.5, -1.0], [0.3, 2.0, 0.1], [0.7, -0.2, 1.0]])
ROWS = torch.tensor([[0.0, 0, 0], [1, 2, 3], [0, 0, 0], [0.5, 1.5, 2], [0, 0, 0]])


def parameter_product(x: Tensor, w: Tensor) -> Tensor:
    h = torch.tanh(w @ x.sqrt())
    if x[0] > 0:
        return h.sum()
    return (w @ x).sum()


def product_of_infinite(x: Tensor, w: Tensor) -> Tensor:
    h = w @ x.log()
    if x[0] > 0:
        return h.sum()
    return (w @ x).sum()


def linear_of_infinite(x: Tensor, w: Tensor) -> Tensor:
    h = torch.nn.functional.linear(1 / x, w, w[0])
    if x[0] > 0:
        return h.pow(2).sum()
    return (w @ x).sum()


def own_index(x: Tensor, w: Tensor) -> Tensor:
    y = x.sqrt()
    i = int(x[1] * 0 + 1)
    v = (y * w[0])[i] * y[i]
    if x[0] > 0:
        return v + x.sum()
    return (w @ x).sum()


def own_index_tensor(x: Tensor, w: Tensor) -> Tensor:
    y = x.sqrt()
    i = x.detach().argmax()
    v = y[i] * w[1, i]
    if x[0] > 0:
        return v + x.sum()
    return (w @ x).sum()


def infinite_argument(x: Tensor, w: Tensor) -> Tensor:
    z, h = (x * x) * w[0], w @ x
    if x[2] < 1e9:
        return z.sum() + h.sum()
    return w.sum() * 2


def several_functions(x: Tensor, w: Tensor) -> Tensor:
    angle, length = torch.atan2(x[0], x[1]), (x * w[0]).norm()
    powers, hypotenuse = x.pow(1.5).sum(), torch.hypot(x[0], x[1])
    if x[0] > 0:
        return angle * length + powers * hypotenuse
    return (w @ x).sum()


def statistics(x: Tensor, w: Tensor) -> Tensor:
    spread, angles = (x * w[0]).std(), torch.acos(x / (x.sum() + 1))
    if x[0] > 0:
        return spread + angles.sum()
    return (w @ x).sum() + x[0]


def gates(x: Tensor, w: Tensor) -> Tensor:
    """As a recurrent cell has them, of what is infinite or no number in some rows."""
    h = torch.cat([w[0] * x.sqrt(), torch.nn.functional.mish(x.log())])
    kept, new = torch.unsafe_chunk(h, 2)
    first, rest = torch.unsafe_split(kept, 2)
    if x[0] > 0:
        return (kept.sigmoid() * new).sum() + first.sum() * rest.sum()
    return (w @ x).sum()


def lengths(x: Tensor, w: Tensor) -> Tensor:
    """Finite, but for their derivatives, where all is zero."""
    h = torch.tanh(w @ x)
    length = torch.linalg.vector_norm(h) * w[0, 0] + (x * w[1]).norm()
    spread = torch.linalg.vector_norm(h, 0.5) + torch.logsumexp(w @ h, 0)
    if x[0] > 0:
        return length * spread
    return (w @ x).sum()


SCALELESS = nn.LayerNorm(3, eps=0.0, elementwise_affine=False)
CHANNELS = nn.GroupNorm(3, 3, eps=0.0, affine=False)


def norms_of_constants(x: Tensor, w: Tensor) -> Tensor:
    """Without an ``eps`` they divide by zero where all elements are equal."""
    norm = torch.nn.functional.layer_norm(x, (3,), w[0], w[1], 0.0)
    named = torch.nn.functional.layer_norm(x * w[0, 0], (3,), weight=w[2], eps=0.0)
    groups = torch.nn.functional.group_norm(torch.stack([x, x])[None], 2, eps=0)
    rows = torch.nn.functional.rms_norm(x, (3,), w[1], eps=0.0)
    of_modules = SCALELESS(x * w[0, 1]) + CHANNELS(torch.outer(x, w[0, :2])[None])[0].sum()
    if x[0] > 0:
        return (norm * named + rows).sum() + (groups * of_modules).pow(2).sum()
    return (w @ x).sum()


WIDE = [
    parameter_product, product_of_infinite, linear_of_infinite, own_index, own_index_tensor,
    infinite_argument, several_functions, statistics, gates, lengths,
    norms_of_constants,
]  # fmt: skip


def rows_for(program: Callable[..., Any]) -> Tensor:
    rows = ROWS.clone()
    if program is infinite_argument:
        rows[[0, 2], 2] = float("inf")
    return rows


def of_first(program: Callable[..., Any]) -> Callable[..., Tensor]:
    def value(x: Tensor, w: Tensor) -> Tensor:
        return first(program(x, w))

    value.__name__ = program.__name__
    return value


CASES = [(of_first(program), torch.tensor(XS), torch.tensor(1.5)) for program in PROGRAMS]
CASES += [(program, rows_for(program), W) for program in WIDE]


def total(tree: Any) -> Tensor:
    parts = [leaf.sum() for leaf in pytree.tree_leaves(tree)]
    return torch.stack(parts).sum()


def twice(make: Callable[..., Any], f: Callable[..., Any]) -> Callable[..., Any]:
    return make(lambda x, w: total(make(f, BOTH)(x, w)), BOTH)  # type: ignore[no-any-return]


def along_ones(f: Callable[..., Any]) -> Callable[..., Any]:
    def tangent(x: Tensor, w: Tensor) -> Tensor:
        result: Tensor = autobatch.jvp(f, (x, w), (torch.ones_like(x), torch.ones_like(w)))[1]
        return result

    return tangent


def by_vjp(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, w: autobatch.vjp(f, x, w)[1](torch.tensor(2.0))


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "torch's grad": lambda f: torch.func.grad(f, BOTH),
    "jacrev": lambda f: autobatch.jacrev(f, BOTH),
    "jacfwd": lambda f: autobatch.jacfwd(f, BOTH),
    "hessian": lambda f: autobatch.hessian(f, BOTH),
    "vjp": by_vjp,
    "grad of grad": lambda f: twice(autobatch.grad, f),
    "torch's grad of grad": lambda f: twice(torch.func.grad, f),
    "jacrev of grad": lambda f: autobatch.jacrev(autobatch.grad(f, BOTH), BOTH),
    "jacfwd of grad": lambda f: autobatch.jacfwd(autobatch.grad(f, BOTH), BOTH),
    "grad of jvp": lambda f: autobatch.grad(along_ones(f), BOTH),
    "third": lambda f: autobatch.grad(lambda x, w: total(twice(autobatch.grad, f)(x, w)), BOTH),
}
ENGINES = ("recorded", "program counter, vmap")


def check(found: Any, expected: Any) -> None:
    torch.testing.assert_close(
        found, expected, equal_nan=True, atol=1e-4, rtol=1e-4, check_dtype=False
    )  # for one example torch's tangent of a 0-d tensor may be of float64


HALVES = [
    case(name, way, half, name=f"{name}-{way}-{half}", default=(i + j + half) % 2 == 0)
    for i, name in enumerate(TRANSFORMS)
    for j, way in enumerate(ENGINES)
    for half in (0, 1)
]


@pytest.mark.sampled(24)
@pytest.mark.parametrize(("name", "way", "half"), HALVES)
def test_derivatives_of_examples_are_the_loops(name: str, way: str, half: int) -> None:
    for program, xs, w in CASES[half::2]:
        derivative = TRANSFORMS[name](program)
        rows = [pytree.tree_leaves(derivative(x, w)) for x in xs]
        expected = [torch.stack(parts) for parts in zip(*rows, strict=True)]
        batched = autobatch.vmap(derivative, in_dims=(0, None), **WAYS[way])
        for _ in range(2):
            check(pytree.tree_leaves(batched(xs, w)), expected)


def weighted(gradients: Any) -> Tensor:
    weights = (torch.arange(1.0, 1 + g.numel()).view(g.shape) for g in gradients)
    return total([g * weight for g, weight in zip(gradients, weights, strict=True)])


def again(f: Callable[..., Any], xs: Tensor, w: Tensor) -> Any:
    """The gradient of a function of the gradient, by ``create_graph``."""
    xs, w = xs.clone().requires_grad_(), w.clone().requires_grad_()
    slopes = torch.autograd.grad(f(xs, w).sum(), (xs, w), create_graph=True, materialize_grads=True)
    value = weighted(slopes)
    if not value.requires_grad:
        return ()
    return torch.autograd.grad(value, (xs, w), allow_unused=True, materialize_grads=True)


def over_the_gradients(f: Callable[..., Any], xs: Tensor, w: Tensor) -> Any:
    """``backward`` through a batch of gradients."""
    xs, w = xs.clone().requires_grad_(), w.clone().requires_grad_()
    value = weighted(f(xs, w))
    if not value.requires_grad:
        return ()
    return torch.autograd.grad(value, (xs, w), allow_unused=True, materialize_grads=True)


OUTSIDE: dict[str, Callable[..., Any]] = {
    "create_graph": again,
    "torch's grad": lambda f, xs, w: torch.func.grad(lambda a, b: f(a, b).sum(), BOTH)(xs, w),
    "torch's jacrev": lambda f, xs, w: torch.func.jacrev(f, BOTH)(xs, w),
    "torch's hessian": lambda f, xs, w: torch.func.hessian(lambda a, b: f(a, b).sum(), BOTH)(xs, w),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("way", ENGINES)
@pytest.mark.parametrize("name", OUTSIDE)
def test_derivatives_of_batches_are_the_loops(name: str, way: str) -> None:
    for program, xs, w in CASES:

        def loop(xs: Tensor, w: Tensor, program: Any = program) -> Tensor:
            return torch.stack([program(x, w) for x in xs.unbind(0)])

        expected = pytree.tree_leaves(OUTSIDE[name](loop, xs, w))
        batched = autobatch.vmap(program, in_dims=(0, None), **WAYS[way])
        for _ in range(2):
            check(pytree.tree_leaves(OUTSIDE[name](batched, xs, w)), expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ENGINES)
def test_backward_through_gradients_is_the_loops(way: str) -> None:
    for program, xs, w in CASES:
        slope = torch.func.grad(program, BOTH)

        def loop(xs: Tensor, w: Tensor, slope: Any = slope) -> list[Tensor]:
            return [torch.stack(g) for g in zip(*(slope(x, w) for x in xs.unbind(0)), strict=True)]

        expected = over_the_gradients(loop, xs, w)
        batched = autobatch.vmap(autobatch.grad(program, BOTH), in_dims=(0, None), **WAYS[way])
        for _ in range(2):
            check(over_the_gradients(batched, xs, w), expected)


@pytest.mark.parametrize("way", ENGINES)
def test_backward_is_the_loops_where_rows_or_arguments_are_infinite(way: str) -> None:
    for program in WIDE:
        xs, w = rows_for(program).requires_grad_(), W.clone().requires_grad_()
        alone = torch.stack([program(x, w) for x in xs]).sum()
        expected = torch.autograd.grad(alone, (xs, w), materialize_grads=True)
        batched = autobatch.vmap(program, in_dims=(0, None), **WAYS[way])
        for _ in range(2):
            found = torch.autograd.grad(batched(xs, w).sum(), (xs, w), materialize_grads=True)
            check(found, expected)


@pytest.mark.parametrize("way", ENGINES)
def test_backward_through_a_stream_is_the_loops(way: str) -> None:
    for program in PROGRAMS:
        xs, w = torch.tensor(XS, requires_grad=True), torch.tensor(1.5, requires_grad=True)
        alone = torch.stack([first(program(x, w)) for x in xs]).sum()
        expected = torch.autograd.grad(alone, (xs, w), materialize_grads=True)
        for order in ("completion", "input"):
            rows = [(x,) for x in xs]
            done = autobatch.stream(program, rows, 3, order, shared={"w": w}, **WAYS[way])
            whole = torch.stack([first(result) for _, result in done]).sum()
            found = torch.autograd.grad(whole, (xs, w), materialize_grads=True)
            check(found, expected)


def test_a_gradient_that_is_dropped_later_is_absent() -> None:
    """``x`` is 0 where the gradient is infinite in the loop, too, and then not used."""

    def program(x: Tensor) -> Tensor:
        slope = autobatch.grad(lambda t: t.sqrt())(x)
        return slope if x > 0 else x * 3

    xs = torch.tensor([0.0, 1.0, 4.0, 0.0])
    for way in ENGINES:
        given = xs.clone().requires_grad_()
        autobatch.vmap(program, **WAYS[way])(given).sum().backward()
        check(given.grad, torch.tensor([3.0, -0.25, -1 / 32, 3.0]))
        check(autobatch.vmap(autobatch.grad(program), **WAYS[way])(xs), given.grad)


def test_a_norm_whose_eps_is_the_dtypes() -> None:
    norm = nn.RMSNorm(3)
    xs = torch.randn(4, 3, requires_grad=True)
    got = autobatch.vmap(lambda x: norm(x) if x[0] > 0 else norm(x * 2), plain="never")(xs)
    wanted = torch.stack([norm(x) if x[0] > 0 else norm(x * 2) for x in xs])
    torch.testing.assert_close(
        torch.autograd.grad(got[:, 0].sum(), [xs, norm.weight]),
        torch.autograd.grad(wanted[:, 0].sum(), [xs, norm.weight]),
    )
