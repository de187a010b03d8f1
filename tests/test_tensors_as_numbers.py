"""``math`` on 0-d tensors, and ``min`` and ``max`` of tensors and numbers: as numbers, batched."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop
from tests.outside_world import program

FLOATS = torch.tensor([0.25, -0.5, 0.0, -0.0, 0.75, float("nan"), float("inf"), -1.5])
OF_ONE = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "degrees",
    "erf", "erfc", "exp", "exp2", "expm1", "fabs", "floor", "gamma", "isfinite", "isinf", "isnan",
    "lgamma", "log", "log10", "log1p", "log2", "modf", "radians", "sin", "sinh", "sqrt", "tan",
    "tanh", "trunc", "isqrt", "factorial",
)  # fmt: skip
OF_TWO = (
    "atan2", "copysign", "fmod", "hypot", "ldexp", "log", "nextafter", "pow", "remainder", "gcd",
    "dist", "isclose",
)  # fmt: skip
MIXED = (
    "max(0.0, x)", "min(x, 1.0)", "max(x, 0)", "min(2, x)", "max(0, min(x, 1))", "max(x, -9.0, 9)",
    "min(-9.0, x)", "max(x, n)", "min(n, x, 0.5)", "max([x, 0.0])", "min((1.0, x))",
    "max(0.0, x.double())", "min(x, x.double())", "max(x, x.new_ones(1))", "max(0.0, n)",
    "max(torch.tensor(0.0), x)", "min(True, x)", "max(x, 0.5, key=abs)", "max(x, float('nan'))",
)  # fmt: skip
AGREE = {
    "max(-9.0, x)": torch.tensor([0.25, -0.5, 3.0]),
    "min(x, -9)": torch.tensor([0.25, -0.5, 3.0]),
    "max(0, min(x, 100))": torch.tensor([0.25, 0.5, 3.0]),
    "max(n, x)": torch.tensor([0.25, 0.5, 3.0]),
    "min([9.0, x, x.double()])": torch.tensor([0.25, -0.5, 3.0]),
}


def made(expression: str, *before: str) -> Any:
    lines = [*before, f"return {expression}"]
    return program(f"{before}{expression}", lines, {"torch": torch, "math": math})


@pytest.mark.sampled(32)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
@pytest.mark.parametrize("name", OF_ONE)
def test_math_of_one_tensor(name: str, dtype: torch.dtype) -> None:
    values = FLOATS if dtype.is_floating_point else torch.tensor([3, 0, 7, 1, 12])
    for some in (values.to(dtype), values.abs().to(dtype), values.to(dtype)[:1]):
        assert_matches_loop(made(f"math.{name}(x)"), [some])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", OF_TWO)
@pytest.mark.parametrize("other", ["x", "2", "0.5", "int(x)", "n"])
def test_math_of_two(name: str, other: str) -> None:
    for xs in (FLOATS[:5].abs() + 0.25, torch.tensor([3, 2, 7])):
        assert_matches_loop(made(f"math.{name}(x, {other})", "n = 1.5 * float(x)"), [xs])


def test_math_of_tensors_runs_batched() -> None:
    def accepts(cost: torch.Tensor, heat: float) -> torch.Tensor:
        return cost * (math.exp(-cost / heat) + math.pow(cost, 2) + math.sqrt(cost[None]))

    with autobatch.counts() as counts:
        autobatch.vmap(accepts, in_dims=(0, None), fallback="error")(torch.rand(5), 2.0)
    assert counts.by_thread == 0


@pytest.mark.sampled(6)
@pytest.mark.parametrize("expression", MIXED)
def test_min_and_max_of_tensors_and_numbers(expression: str) -> None:
    before = "n = float(x) * 2"
    assert_matches_loop(made(expression, before), [FLOATS])
    assert_matches_loop(made(f"type({expression}).__name__", before), [FLOATS])
    assert_matches_loop(made(expression, before), [torch.tensor([3, -2, 0])])


@pytest.mark.parametrize("expression", AGREE)
def test_where_all_threads_choose_alike_the_choice_is_one_comparison(expression: str) -> None:
    run = made(f"({expression}) * 2", "n = float(x) / 2")
    assert_matches_loop(run, [AGREE[expression]])
    with autobatch.counts() as counts:
        autobatch.vmap(run, fallback="error")(AGREE[expression])
    assert counts.by_thread == 0


@pytest.mark.parametrize("expression", ["max(-9.0, x)", "max(0.0, x)", "min(x, -9)"])
def test_what_is_chosen_is_the_operand_itself(expression: str) -> None:
    xs = torch.tensor([0.25, -0.5, 3.0])
    assert_matches_loop(made("(m is x, x)", f"m = {expression}"), [xs])
    assert_matches_loop(made("(m, x)", f"m = {expression}", "m += 1"), [xs])
    assert_matches_loop(made("(m, x)", "x = x * 1", f"m = {expression}", "x += 1"), [xs])


@pytest.mark.parametrize("expression", ["max(-9.0, x)", "max(0.0, x)", "min(x, -9.0)"])
def test_gradients_go_where_the_choice_went(expression: str) -> None:
    xs = torch.tensor([0.25, -0.5, 3.0], requires_grad=True)
    run = made(f"x * x * ({expression})")
    autobatch.vmap(run)(xs).sum().backward()
    found, xs.grad = xs.grad, None
    sum(run(x) for x in xs).backward()
    torch.testing.assert_close(found, xs.grad)


@pytest.mark.parametrize("first", [0.5, 2.0])
@pytest.mark.parametrize(
    "expression", ["1 + m * m", "m < y", "m * n", "[0, m][1] - y", "y / (m + 1)"]
)
def test_what_is_a_number_in_some_runs_batched_by_kind(expression: str, first: float) -> None:
    """Whether the lowest thread has the number or the tensor."""
    xs = torch.tensor([first, 2.0, 0.5, 3.0, 0.25])
    run = made(expression, "n, y = 0.5, x * 0 + 1", "m = max(1.0, x)")
    assert_matches_loop(run, [xs])
    with autobatch.counts() as counts:
        autobatch.vmap(run)(xs)
    assert (counts.fallbacks, counts.by_thread) == (1, 1)  # `max` itself


DOUBLES = torch.tensor([0.25, -0.5, 3.0], dtype=torch.float64)
OF_LISTS = (
    "[x, x]", "[x] * 9", "[x, 1.0]", "[x, 1]", "[x.half(), n]", "[x.half(), i]", "[i, i]", "[i, 1]",
    "[i, n]", "[x > 0, True]", "[x > 0, 1]", "[[x], [i]]", "(x, 2)", "[x], dtype=torch.float16",
    "[x, n], dtype=torch.int64", "[i, 2.5], dtype=torch.int64", "[x[None], n]",
)  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("data", OF_LISTS)
def test_tensors_of_lists_of_tensors_have_the_dtype_of_one_example(data: str) -> None:
    before = "n = float(x) * 2", "i = x.int()"
    assert_matches_loop(made(f"torch.tensor({data})", *before), [DOUBLES])
    assert_matches_loop(made(f"torch.as_tensor({data})", *before), [DOUBLES])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "bool"])
@pytest.mark.parametrize("data", ["tensor(n", "as_tensor([1, n]", "scalar_tensor(n"])
def test_numbers_that_a_dtype_does_not_hold(data: str, dtype: str) -> None:
    func = made(f"torch.{data}, dtype=torch.{dtype})", "n = x.item()")
    some: Any = {"configurations": CONFIGURATIONS[1:3]}
    for values in ([3, 255, -1], [3, 2**40], [7, -255], [1, -256]):
        assert_matches_loop(func, [torch.tensor(values)], **some)
    for number in (-0.5, 1e30, math.nan):
        assert_matches_loop(func, [torch.tensor([1.5, number], dtype=torch.float64)], **some)
