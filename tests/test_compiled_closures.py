"""Functions that a program makes, and those given to others, as machine code."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

pytest.importorskip("llvmlite")

COMPILED = {"executor": "compiled"}
SIZES = (0, 1, 2, 7, 64)
X = torch.linspace(-2, 3, 64, dtype=torch.float64)
K = torch.linspace(0.1, 2, 64, dtype=torch.float64)
N = torch.arange(64) % 9


def solver(y: Any, k: Any) -> Any:
    f = lambda y: -k * y + 1.0  # noqa: E731
    t = 0.0

    def heun(g: Any, y: Any, h: Any) -> Any:
        k1 = g(y)
        k2 = g(y + h * k1)
        return y + 0.5 * h * (k1 + k2)

    while t < 1.0:
        y = heun(f, y, 0.1)
        t = t + 0.1
    return y


def rk4(f: Any, t: Any, y: Any, h: Any) -> Any:
    k1 = f(t, y)
    k2 = f(t + 0.5 * h, y + 0.5 * h * k1)
    k3 = f(t + 0.5 * h, y + 0.5 * h * k2)
    k4 = f(t + h, y + h * k3)
    return y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6


def integrated(f: Any, y: Any, h: Any) -> Any:
    t = 0.0
    while t < 1.0 and y * y < 100.0:
        y = rk4(f, t, y, h)
        t += h
    return y


def of_module_functions(y: Any, k: Any) -> Any:
    return integrated(lambda t, y: k * y - t, y, 0.1)


def rewritten(x: Any, n: Any) -> Any:
    k = 1
    f = lambda v: v + k  # noqa: E731
    total = x * 0
    while n > 0:
        k = k + n
        total = total + f(x)
        n = n - 1
    return total


def recursive(n: Any) -> Any:
    def go(m: Any) -> Any:
        return 1 if m <= 1 else m * go(m - 1)

    return go(n)


def mutual(n: Any) -> Any:
    def even(m: Any) -> Any:
        return True if m == 0 else odd(m - 1)

    def odd(m: Any) -> Any:
        return False if m == 0 else even(m - 1)

    return even(n)


def adder(k: Any) -> Any:
    return lambda y, s=2.0: y * s + k


def from_elsewhere(x: Any, k: Any) -> Any:
    f = adder(k)
    g = adder(f(x))
    return g(x, 1.0) + f(x, s=k)


def compose(f: Any, g: Any) -> Any:
    return lambda x: f(g(x))


def composed(x: Any, k: Any) -> Any:
    h = compose(lambda v: v * k, lambda v: v + 1.0)
    return h(x)


def deep(x: Any, k: Any) -> Any:
    def outer(v: Any) -> Any:
        def inner(w: Any) -> Any:
            return w * k + v

        return inner(v) + inner(x)

    return outer(x + 1)


def in_tuples(x: Any, k: Any) -> Any:
    steps = (lambda v: v + k, lambda v: v * k)
    for _ in range(3):
        x = steps[1](steps[0](x))
    return x


def by_branch(x: Any, k: Any) -> Any:
    f = (lambda v: v + k) if x > 0 else (lambda v: v * k - 1)
    return f(f(x))


def made_in_loops(x: Any, n: Any) -> Any:
    f = lambda v: v  # noqa: E731
    for i in range(4):
        g = lambda v, i=i: v + i * n  # noqa: E731
        x = g(f(x))
    return x


def newton(f: Any, df: Any, x: Any) -> Any:
    for _ in range(20):
        step = f(x) / df(x)
        x = x - step
        if abs(step) < 1e-12:
            break
    return x


def root(k: Any) -> Any:
    return newton(lambda x: x * x - k, lambda x: 2 * x, k)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "solver": (solver, (X, K)),
    "of_module_functions": (of_module_functions, (X, K)),
    "rewritten": (rewritten, (X, N)),
    "recursive": (recursive, (N,)),
    "mutual": (mutual, (N,)),
    "from_elsewhere": (from_elsewhere, (X, K)),
    "composed": (composed, (X, K)),
    "deep": (deep, (X, K)),
    "in_tuples": (in_tuples, (X, K)),
    "by_branch": (by_branch, (X, K)),
    "made_in_loops": (made_in_loops, (X, N)),
    "root": (root, (K,)),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("scalars", ["python", "tensor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_within_programs_are_one_launch(name: str, scalars: str) -> None:
    function, args = PROGRAMS[name]
    assert_matches_loop(
        function,
        args,
        batch_sizes=SIZES,
        configurations=(COMPILED, {"executor": "traced"}, {"executor": "vmap"}),
        scalars=scalars,
    )
    with autobatch.counts() as found:
        autobatch.vmap(function, scalars=scalars, **COMPILED)(*args)
    assert (found.block_executions, found.launches, found.given_up) == (1, 1, 0)


def test_rows_of_tensors_are_captured() -> None:
    def f(x: Any, w: Any) -> Any:
        def g(v: Any) -> Any:
            return torch.tanh(w * v)

        while x.sum() < 1.0:
            x = x + g(x).abs() + 0.1
        return x

    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    assert_matches_loop(f, (x, x + 1), batch_sizes=SIZES, configurations=(COMPILED,))
    with autobatch.counts() as found:
        autobatch.vmap(f, **COMPILED)(x, x + 1)
    assert (found.launches, found.given_up) == (1, 0)


def test_tensors_that_are_written_are_seen_by_functions() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        g = lambda: y[0] + y[1]  # noqa: E731
        before = g()
        while y[0] < 3:
            y[0] = y[0] + 1
        return before, g()

    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    assert_matches_loop(f, (x,), batch_sizes=SIZES, configurations=(COMPILED,))


def test_a_variable_that_is_written_later_is_seen() -> None:
    def f(x: Any) -> Any:
        def same(h: Any) -> Any:
            return h

        k = x
        g = same(lambda: k + 1)
        k = x * 2
        return g()

    assert_matches_loop(f, (X,), batch_sizes=SIZES, configurations=(COMPILED,))


def test_a_variable_without_a_value_is_an_error() -> None:
    def f(x: Any) -> Any:
        g = lambda: k + 1  # noqa: E731
        if x < 0:
            k = x
        return g()

    assert_matches_loop(f, (X[X < 0],), configurations=(COMPILED,))
    assert_matches_loop(f, (X,), configurations=(COMPILED,))


def test_functions_of_an_earlier_round_keep_their_variables() -> None:
    def f(n: Any, k: Any) -> Any:
        if n == 0:
            return k(1)
        return f(n - 1, lambda r: k(n * r))

    def factorial(n: Any) -> Any:
        return f(n, lambda r: r)

    assert_matches_loop(factorial, (N,), batch_sizes=SIZES, configurations=(COMPILED,))


def given_draws(x: Any) -> Any:
    def step(v: Any) -> Any:
        return v + torch.rand(())

    def some(f: Any, v: Any) -> Any:
        while v < 1.5:
            v = f(v) if v < 1 else f(v) + torch.rand(())
        return v

    total = some(step, x) + torch.rand(())
    other = lambda: torch.rand(())  # noqa: E731
    return total + other() + some(lambda v: step(v) + other(), x)


def test_functions_of_programs_draw_as_block_by_block() -> None:
    x = torch.linspace(-2, 3, 64)
    traced = autobatch.vmap(given_draws, randomness="different", seed=3)(x)
    with autobatch.counts() as found:
        quick = autobatch.vmap(given_draws, randomness="different", seed=3, **COMPILED)(x)
    assert found.launches == 1
    assert torch.equal(traced, quick)
    alone = autobatch.vmap(given_draws, randomness="different", seed=3, executor="vmap")(x)
    assert torch.equal(alone, quick)


def by_scale(x: Any) -> Any:
    return x * SCALE if x > 0 else x - SCALE  # type: ignore[name-defined]  # noqa: F821


def test_functions_of_equal_code_have_globals_of_their_own() -> None:
    made = [FunctionType(by_scale.__code__, {"SCALE": scale}) for scale in (3, 5, 2.5)]
    for function in (*made, *made):
        expected = torch.stack([function(x) for x in X])
        assert torch.equal(autobatch.vmap(function, **COMPILED)(X), expected)
