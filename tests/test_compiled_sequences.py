"""``min``, ``max``, ``sum``, ``any``, ``all``, ``math.prod`` and loops over what is at hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop
from tests.test_compiled import why_not
from tests.test_compiled_rules import function_of, hold_each, pairs

pytest.importorskip("llvmlite")

COMPILED = {"executor": "compiled", "scalars": "python"}
SIZES = (0, 1, 2, 7, 64, 1000)
N = torch.arange(1000) % 37 - 9
F = (N.double() * 0.37).masked_fill(N == 5, math.inf).masked_fill(N == 6, math.nan)
X = torch.randn(1000, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
WHOLE = torch.arange(4000).view(1000, 4) % 11 - 4


def held(function: Callable[..., Any], *columns: Any, exact: bool = True) -> autobatch.Counts:
    """Hold a program to the loop for batches of any size, bit by bit; its counts."""
    places = {"rtol": 0.0, "atol": 0.0} if exact else {}
    assert_matches_loop(
        function, columns, batch_sizes=SIZES, configurations=(COMPILED,), scalars="python",
        **places,
    )  # fmt: skip
    with autobatch.counts() as found:
        autobatch.vmap(function, **COMPILED)(*columns)
    return found


# Extremes


KINDS = (("int", "float"), ("float", "int"), ("bool", "int"), ("float", "bool"), ("int", "int"))
EXTREMES = (
    "max(a, b)", "min(a, b)", "max(b, 1, a)", "min(1.0, a, b, 1, True)", "max((a, b, 0.0))",
    "min([-0.0, a, 0, b])", "max(a, b, key=abs)", "min(a, b, 2, key=lambda v: -v)",
    "max((a, b), default=3)", "min((), default=a)", "max([a])", "max(a, max(b, 1.0)) + 1",
)  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
@pytest.mark.parametrize("expression", EXTREMES)
def test_extremes_have_the_type_of_the_argument_that_they_are(
    expression: str, kinds: tuple[str, str]
) -> None:
    hold_each(function_of(expression), pairs(kinds), "python")


def test_extremes_of_nan_go_by_the_order() -> None:
    rows = list(itertools.product((math.nan, 1.0, -0.0, 0.0), repeat=3))
    columns = [torch.tensor(c, dtype=torch.float64) for c in zip(*rows, strict=True)]
    program = function_of("max(a, b, c), min((a, b, c)), max(a, 1, b), min(c, True, b)", "a, b, c")
    hold_each(program, columns, "python")


def clipped(a: int, b: float) -> Any:
    best = 0
    for k in range(4):
        best = max(best, min(a + k, b * k))
    return best, min(a, 2.5) if a > 0 else max(a, b, -1)


def test_numbers_of_either_type_go_on_as_they_are() -> None:
    assert held(clipped, N, F).given_up == 0


@pytest.mark.parametrize("call", ["max([])", "min(())", "max(range(0))", "max(range(a))"])
def test_extremes_of_nothing_raise(call: str) -> None:
    columns = [torch.tensor([-1, 0, 2, 5])]
    hold_each(function_of(call, "a"), columns, "python", is_compiled="a" in call[4:])
    hold_each(function_of(f"{call} if a < 2 else a", "a"), columns, "python")


def caught(a: int) -> Any:
    try:
        return max([]) + a
    except ValueError:
        return -1


def test_extremes_of_nothing_are_caught() -> None:
    found = held(caught, N)
    assert (found.launches, found.given_up) == (1, 0)


# What goes through items


def of_tensors(x: Any, whole: Any) -> Any:
    sums = sum(x), sum(x, 0.5), sum(x, start=1), sum(whole), math.prod(whole)
    return sums, max(x), min(x), max(whole), any(whole), all(whole), any(x > 2), len(x)


@pytest.mark.parametrize("scalars", ["python", "tensor"])
def test_tensors_are_gone_through(scalars: str) -> None:
    assert_matches_loop(
        of_tensors, (X, WHOLE), batch_sizes=SIZES, configurations=({"executor": "compiled"},),
        scalars=scalars, rtol=0.0, atol=0.0,
    )  # fmt: skip
    with autobatch.counts() as found:
        autobatch.vmap(of_tensors, executor="compiled", scalars=scalars)(X, WHOLE)
    assert (found.launches, found.given_up) == (1, 0)


GONE_THROUGH = (
    "sum([a, 1, b])", "sum((a, b), 0.5)", "sum((a, True), start=b)", "sum(range(5), a)", "sum([])",
    "sum(v * a for v in range(6))", "sum((v for v in (a, 1, 2.5)), b)", "math.prod([a, 2, b])",
    "math.prod((a, a), start=0.5)", "math.prod(range(1, 7))", "math.prod(())", "any([a, b > 1])",
    "all((a, b, 1))", "any(())", "all([])", "any(range(1))", "all(range(1, 4))",
    "any(1 / v > b for v in (a, 1, 0))", "all(v < b for v in range(4))", "any([0, False, a])",
    "any(v > 1 for v in (a, b))", "all(w for v in (a, 1) for w in (v, b))", "a in range(-3, 60, 3)",
    "a in range(63, -63, -7)", "a not in range(2)", "b in (a, 0, 2.5)", "b in (b, 1.0)",
    "[a, 2.5, True][a % 3]", "(a, b)[a > 0]", "((1, 2.0), (3, 4.0))[a % 2][1]",
)  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kinds", [("int", "float"), ("int", "int"), ("bool", "float")], ids=str)
@pytest.mark.parametrize("expression", GONE_THROUGH)
def test_what_goes_through_numbers(expression: str, kinds: tuple[str, str]) -> None:
    hold_each(function_of(expression), pairs(kinds), "python")


def over_mixed(a: int, b: float) -> Any:
    total, trail = 0, 0
    for v in (a, b, True, 2):
        total = total + v
        trail = trail * 3 + isinstance(v, float)
    for i, v in enumerate(reversed([1, a, 0.25])):
        total = total * 2 - i * v
    for v, (w, u) in zip((1, 2.5, a), ((a, 1), (b, 2), (3, 4)), strict=False):
        total += v * w - u
    for f in (math.floor, abs):
        if math.isfinite(b):
            total += f(b)
    for v in ():
        total = v
    return total, trail


def test_loops_over_parts_of_several_types() -> None:
    found = held(over_mixed, N, F)
    assert (found.launches, found.given_up) == (1, 0)


def lazily(a: int) -> Any:
    return any(6 // v > 1 for v in (3, a, 0)), all(6 % v == 0 for v in (a + 5, 4, 0))


def test_items_after_the_one_that_tells_are_not_made() -> None:
    hold_each(lazily, [torch.tensor([-5, 1, 3, 0, -3, 7])], "python")


def scopes(a: int) -> Any:
    v, w = 100, 7
    inner = sum(v * w + sum(v for v in range(w)) for v in range(3) if v != a for w in range(v))
    f = lambda k: sum(k * v for v in (1, 2))  # noqa: E731
    w = 9
    return inner, v, w, f(a), sum((lambda: v)() for v in range(3))  # noqa: PLC3002


def test_comprehensions_have_names_of_their_own() -> None:
    held(scopes, N)


# Names that mean something else


def shadowed(a: int) -> Any:
    sum = max
    return sum((a, 3)), min(a, 2.5), any((a,))


def test_names_that_are_set_anew_mean_that(monkeypatch: pytest.MonkeyPatch) -> None:
    held(shadowed, N)
    batched = autobatch.vmap(shadowed, **COMPILED)
    n = torch.tensor([1, 4])
    assert [list(each) for each in batched(n)[1:]] == [[1, 2.5], [True, True]]
    monkeypatch.setitem(shadowed.__globals__, "min", max)
    assert list(batched(n)[1]) == [2.5, 4]
    monkeypatch.setitem(shadowed.__globals__, "any", lambda items: len(items) + 1)
    assert batched(n)[2].tolist() == [2, 2]
    monkeypatch.delitem(shadowed.__globals__, "min")
    assert list(batched(n)[1]) == [1, 2.5]


def test_a_stretch_of_many_types_runs_traced() -> None:
    pair = "max(a, b)"
    said = why_not(function_of(" + ".join([pair] * 8)), N[:5], F[:5], scalars="python")
    assert "too many ways" in said


def test_ints_beyond_64_bits_are_the_loops() -> None:
    big = torch.tensor([2**62, 2**63 - 1, -(2**63), 3])
    hold_each(function_of("sum((a, a)), math.prod((a, 3)), sum(range(3), a)", "a"), [big], "python")


def test_what_is_zipped_with_an_empty_list_has_no_items() -> None:
    for text in ("zip(range(a), [])", "zip([], range(a))", "zip(range(a), [1], [])"):
        held(function_of(f"len([0 for _ in {text}]), len(list({text})) + a", "a"), N)
