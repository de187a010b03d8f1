"""Functions made anew, for each call or in each round: their recordings are shared, exactly."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from tests.expected import check, stacked

Program = Callable[..., Any]
XS = torch.linspace(-1.0, 2.0, 12).reshape(4, 3)


def traces(call: Callable[[], Any]) -> int:
    with autobatch.counts() as counted:
        call()
    return counted.traces


def weighted(a: Tensor, b: Tensor, s: float = 1.0) -> Tensor:
    return (a * s + b).sin()


class Scaled:
    def __init__(self, w: Any) -> None:
        self.w = w

    def of(self, x: Tensor) -> Tensor:
        return (x * self.w).sin()


SCALED = Scaled(torch.ones(3))
LAYER = nn.Linear(3, 2)


def with_lambda() -> Program:
    helper = lambda y: y * 2 + 1  # noqa: E731
    return lambda x: helper(x).sin()


def with_tensor() -> Program:
    w = torch.rand(3)
    helper = lambda y: y * w + 1  # noqa: E731
    return lambda x: helper(x).sin()


def with_two() -> Program:
    w = torch.rand(3)
    inner = lambda y: y * w  # noqa: E731
    helper = lambda y: inner(y) + inner(y * 2)  # noqa: E731
    return lambda x: helper(x).sin()


def with_default() -> Program:
    w = torch.rand(3)
    helper = lambda y, w=w: y * w + 1  # noqa: E731
    return lambda x: helper(x).sin()


def with_partial() -> Program:
    helper = functools.partial(weighted, torch.rand(3), s=2.0)
    return lambda x: helper(x).cos()


def with_method() -> Program:
    helper = SCALED.of
    return lambda x: helper(x) + 1


def with_module() -> Program:
    layer = LAYER
    helper = lambda y: layer(y).tanh()  # noqa: E731
    return lambda x: helper(x) * 2


def with_gradient() -> Program:
    w = torch.rand(3)
    slope = torch.func.grad(lambda y: (y * w).sin().sum())
    return lambda x: slope(x) + 1


@pytest.mark.parametrize(
    ("make", "first"),
    [
        (with_lambda, 1),
        (with_tensor, 1),
        (with_two, 1),
        (with_default, 1),
        (with_partial, 2),
        (with_method, 2),
        (with_module, 1),
        (with_gradient, 2),
    ],
)
def test_from_call_to_call(make: Callable[[], Program], first: int) -> None:
    found = []
    for _ in range(6):
        program = make()
        mapped = autobatch.vmap(program, trace_after=0)
        found.append(traces(lambda m=mapped: m(XS)))
        check(mapped(XS), stacked([program(x) for x in XS]))
    assert found == [first, 0, 0, 0, 0, 0]


def by_gradients(x: Tensor, n: int) -> Tensor:
    for _ in range(n):
        x = x - 0.1 * torch.func.grad(lambda y: (y * y * x).sum())(x)  # noqa: B023
    return x


def by_lambdas(x: Tensor, n: int) -> Tensor:
    for _ in range(n):
        step = lambda y: y.sin() * x + 1  # noqa: B023, E731
        x = step(x)
    return x


def by_partials(x: Tensor, n: int) -> Tensor:
    for _ in range(n):
        x = functools.partial(weighted, x, s=0.5)(x.cos())
    return x


def by_methods(x: Tensor, n: int) -> Tensor:
    for _ in range(n):
        step = SCALED.of
        x = torch.func.grad(lambda y: step(y).sum())(x) + step(x)  # noqa: B023
    return x


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", [by_gradients, by_lambdas, by_partials, by_methods])
def test_from_round_to_round(program: Program) -> None:
    mapped = autobatch.vmap(program, trace_after=0, fallback="allow")
    rounds = torch.tensor([2, 5, 3, 1])
    first = traces(lambda: mapped(XS, rounds))
    assert first > 0
    for most in (9, 30):
        rounds = torch.tensor([2, most, 3, 1])
        assert traces(lambda r=rounds: mapped(XS, r)) == 0
        expected = stacked([program(x, n) for x, n in zip(XS, rounds, strict=True)])
        torch.testing.assert_close(mapped(XS, rounds), expected)


def test_what_a_function_closes_over_is_seen_when_it_changes() -> None:
    w, factor = torch.tensor([1.0, 2.0, 3.0]), 2.0
    helper = lambda y: y * w * factor  # noqa: E731
    program = lambda x: helper(x) + 1  # noqa: E731
    mapped = autobatch.vmap(program, trace_after=0)
    for _ in range(4):
        torch.testing.assert_close(mapped(XS), XS * w * factor + 1)
    w = torch.tensor([3.0, 1.0, -1.0])
    torch.testing.assert_close(mapped(XS), XS * w * factor + 1)
    w.mul_(2)
    torch.testing.assert_close(mapped(XS), XS * w * factor + 1)
    w = torch.tensor([3, 1, 2], dtype=torch.int32)
    torch.testing.assert_close(mapped(XS), XS * w * factor + 1)
    factor = 7.0
    torch.testing.assert_close(mapped(XS), XS * w * factor + 1)
    helper.__code__ = (lambda y: y - w - factor).__code__
    torch.testing.assert_close(mapped(XS), XS - w - factor + 1)


def test_gradients_reach_what_a_function_closes_over() -> None:
    for scale in (1.0, 2.0, 3.0):
        w = torch.full((3,), scale, requires_grad=True)
        helper = lambda y, w=w: (y * w).sin()  # noqa: E731
        mapped = autobatch.vmap(lambda x, h=helper: h(x) * 2, in_dims=0, trace_after=0)
        (found,) = torch.autograd.grad(mapped(XS).sum(), w)
        (expected,) = torch.autograd.grad((helper(XS) * 2).sum(), w)
        torch.testing.assert_close(found, expected)


def test_a_function_that_comes_back_is_itself() -> None:
    def make() -> tuple[Program, Program]:
        helper = lambda y: y + 1  # noqa: E731
        return helper, lambda x: (helper(x), helper)

    for _ in range(5):
        helper, program = make()
        _, given_back = autobatch.vmap(program, trace_after=0)(XS)
        assert all(each is helper for each in given_back)


def test_functions_are_told_apart_by_what_they_are() -> None:
    def same(y: Tensor, one: Any, other: Any) -> Tensor:
        return y * (1.0 if one is other else 2.0)

    def make(other: Any) -> Program:
        helper = lambda y: y + 1  # noqa: E731
        pick = lambda y: y * ((helper is not other) + 1)  # noqa: E731
        return lambda x: pick(helper(x)) + same(x, pick, pick)

    for other in (None, len, weighted, SCALED.of):
        program = make(other)
        for _ in range(4):
            mapped = autobatch.vmap(program, trace_after=0)
            torch.testing.assert_close(mapped(XS), (XS + 1) * 2 + XS)


def test_a_recording_keeps_alive_nothing_that_a_function_holds() -> None:
    """But by the first its purity was judged."""

    def make() -> tuple[Program, Any]:
        w = torch.rand(3)
        helper = lambda y: y * w + 1  # noqa: E731
        return (lambda x: helper(x).sin()), weakref.ref(w)

    kept = []
    for _ in range(4):
        program, held = make()
        autobatch.vmap(program, trace_after=0)(XS)
        kept.append(held)
        del program
    gc.collect()
    assert [held() is None for held in kept] == [False, True, True, True]
