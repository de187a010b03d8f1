"""What transforms within a program give of results that have a length of each example's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, jacfwd, jacrev, jvp, vjp
from torch.utils._pytree import tree_leaves

import autobatch

GENERATOR = torch.Generator().manual_seed(0)
XS = [torch.randn(n, 3, generator=GENERATOR) for n in (2, 4, 2, 1, 4)]
PS = torch.randn(5, 3, generator=GENERATOR)
PS[3] = -PS[3].abs()
WAYS = [
    {"executor": "vmap", "plain": "never"},
    {"trace_after": 0, "plain": "never"},
    {"engine": "program_counter", "plain": "never"},
    {"engine": "sequential"},
]


def backward_jacobian(x: Tensor, p: Tensor) -> Any:
    return jacrev(lambda p: x * p)(p)


def forward_jacobian(x: Tensor, p: Tensor) -> Any:
    return jacfwd(lambda p: {"u": torch.tanh(x @ p), "v": p * 2})(p)


def of_some_rows(x: Tensor, p: Tensor) -> Any:
    return jacrev(lambda p: (x[: len(x) - 1] @ p, x[x[:, 0] > 0] * p))(p)


def where_no_element_is_left(x: Tensor, p: Tensor) -> Any:
    return jacrev(lambda p: p[p > 0])(p)


def tangent(x: Tensor, p: Tensor) -> Any:
    return jvp(lambda x: (x @ p).cumsum(0), (x,), (x * 2,))


def cotangent(x: Tensor, p: Tensor) -> Any:
    out, pull = vjp(lambda x, p: x * p, x, p)
    return pull(out)


def beside_what_is_differentiated(x: Tensor, p: Tensor) -> Any:
    return jacrev(lambda p: (p.sum() * x[0, 0], x * p), has_aux=True)(p)


def gauss_newton(x: Tensor, p: Tensor) -> Any:
    for _ in range(4):
        jacobian = jacfwd(lambda p: (x @ p).tanh())(p)
        p = p - 0.1 * jacobian.T @ (x @ p).tanh()
    return p


def descent(x: Tensor, p: Tensor) -> Any:
    def energy(y: Tensor) -> Tensor:
        return (y.square() * p).sum() + (y[1:] - y[:-1]).square().sum()

    for _ in range(3):
        x = x - 0.1 * grad(energy)(x)
    return x


def of_several(x: Tensor, p: Tensor) -> Any:
    def loss(given: dict[str, Tensor], p: Tensor) -> Tensor:
        if given["x"].sum() > 0:
            return (given["x"] @ p).logsumexp(0)
        return (given["y"][0] * p).sum().sin()

    return grad(loss, argnums=(0, 1))({"x": x, "y": x * 2}, p)


def by_its_input(x: Tensor, p: Tensor) -> Any:
    return jacrev(lambda y: (y @ p).tanh())(x)


def along_gradients(x: Tensor, p: Tensor) -> Any:
    def loss(p: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-(x @ p)).mean()

    d = p
    for _ in range(3):
        d = d - jvp(grad(loss), (p,), (d,))[1]
    return d


def of_what_one_has_made(x: Tensor, p: Tensor) -> Any:
    out, _ = vjp(lambda p: x[x[:, 0] > 0] * p, p)
    for _ in range(3):
        p = p + jvp(lambda p: (out * p).sum(0) + (out.tanh() * p).sum(), (p,), (p,))[1]
        p = (p + grad(lambda p: (out * p).sum())(p)).tanh()
    return p


def of_what_one_has_kept(x: Tensor, p: Tensor) -> Any:
    found = []

    def loss(p: Tensor) -> Tensor:
        found.append(x[x[:, 0] > -0.5])
        return (found[-1] @ p).sum().tanh()

    for _ in range(3):
        p = p - grad(loss)(p)
        own = found.pop()
        p = p + jvp(lambda p, own=own: (own * p).sum(0), (p,), (p,))[1]  # type: ignore[misc]
    return p


def held(xs: list[Tensor], ps: Tensor, results: list[Any]) -> tuple[list[Tensor], Any]:
    """The leaves of the results, and the gradients of a loss of them."""
    found = [leaf for leaf in tree_leaves(results) if leaf is not None]
    loss = sum(((leaf * leaf.detach().cos()).sum() for leaf in found), ps.sum())
    return found, torch.autograd.grad(loss, [*xs, ps], materialize_grads=True)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    "function",
    [
        *(backward_jacobian, forward_jacobian, of_some_rows, where_no_element_is_left),
        *(tangent, cotangent, beside_what_is_differentiated, gauss_newton),
        *(descent, of_several, by_its_input),
        *(along_gradients, of_what_one_has_made, of_what_one_has_kept),
    ],
)
def test_derivatives_are_the_loops(
    function: Callable[..., Any], way: dict[str, Any], size: int
) -> None:
    def given() -> tuple[list[Tensor], Tensor]:
        return [x.clone().requires_grad_() for x in XS[:size]], PS[-size:].clone().requires_grad_()

    xs, ps = given()
    expected = held(xs, ps, [function(x, p) for x, p in zip(xs, ps, strict=True)])
    mapped = autobatch.vmap(function, on_error="isolate", **way)
    for _ in range(2):
        xs, ps = given()
        results = mapped(autobatch.ragged(xs), ps)
        assert not any(result.exception for result in results)
        torch.testing.assert_close(
            held(xs, ps, [result.value for result in results]), expected, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_examples_that_fail_within(way: dict[str, Any]) -> None:
    def failing(x: Tensor, p: Tensor) -> Any:
        def loss(y: Tensor) -> Tensor:
            if len(x) == 1 or p[0] > 0.5:
                raise ValueError("refused")
            return (y @ p).square().sum()

        return grad(loss)(x), vjp(lambda y: y * p, x)[1](x)[0]

    results = autobatch.vmap(failing, on_error="isolate", **way)(autobatch.ragged(XS), PS)
    for result, x, p in zip(results, XS, PS, strict=True):
        if len(x) == 1 or p[0] > 0.5:
            assert isinstance(result.exception, ValueError)
        else:
            torch.testing.assert_close(result.value, failing(x, p))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    "loss",
    [
        lambda y, q: (y * q).sum(),
        lambda y, q: (y.sum(0) * q).sum(),
        lambda y, q: (y[0] * q).sum(),
        lambda y, q: (y @ q).square().sum(),
    ],
)
def test_rows_of_others_stay(loss: Callable[..., Tensor], way: dict[str, Any]) -> None:
    """An example that makes no use of its rows, whose derivative is infinite, gets none of it."""

    def some(x: Tensor, p: Tensor) -> Tensor:
        y = (x * p).sqrt()
        if p[0] > 0.5:
            return (x * p).sum(0)
        found: Tensor = grad(lambda q: loss(y, q))(p)
        return found

    def given() -> tuple[list[Tensor], Tensor]:
        xs, ps = [x.abs() for x in XS], PS.abs().clamp(0.1, 0.4)
        xs[1][2], ps[1] = 0, 0.9
        return [x.requires_grad_() for x in xs], ps.requires_grad_()

    xs, ps = given()
    expected = held(xs, ps, [some(x, p) for x, p in zip(xs, ps, strict=True)])
    assert all(bool(slope.isfinite().all()) for slope in expected[1])
    mapped = autobatch.vmap(some, **way)
    for _ in range(2):
        xs, ps = given()
        torch.testing.assert_close(held(xs, ps, list(mapped(autobatch.ragged(xs), ps))), expected)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_function_runs_once(way: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    def noisy(x: Tensor, p: Tensor) -> Tensor:
        drawn = []

        def noise(q: Tensor) -> Tensor:
            print("rows", len(x))
            drawn.append(torch.randn(()))
            return x * q * drawn[0]

        jacobian: Tensor = jacrev(noise)(p)
        return jacobian.sum((0, 1)) - x.sum(0) * drawn[0]

    if way.get("engine") == "sequential":
        way = way | {"seed": 0}
    found = autobatch.vmap(noisy, randomness="different", **way)(autobatch.ragged(XS), PS)
    torch.testing.assert_close(found, torch.zeros(5, 3), rtol=0.0, atol=1e-5)
    assert capsys.readouterr().out.split("\n") == [f"rows {len(x)}" for x in XS] + [""]
