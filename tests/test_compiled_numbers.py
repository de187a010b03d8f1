"""Numbers by their names, as machine code: ``float("inf")``, conversions, imports in a function."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
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


def held(function: Callable[..., Any], *columns: Any, given_up: int = 0) -> None:
    """Hold a program to the loop for batches of any size; it is one launch of machine code."""
    assert_matches_loop(
        function, columns, batch_sizes=SIZES, configurations=(COMPILED,), scalars="python",
        rtol=0.0, atol=0.0,
    )  # fmt: skip
    with autobatch.counts() as found:
        autobatch.vmap(function, **COMPILED)(*columns)
    assert (found.launches, found.given_up) == (1, given_up) or given_up


CONSTANTS = (
    'float("inf")', "float('-Infinity')", 'float(" nan ")', 'float("1_0.5")', 'float("-0")',
    'int("12")', 'int(" -7 ")', 'int("ff", 16)', "int()", "float()", "bool()", "-float('nan')",
    "math.inf", "-math.inf", "math.nan", "math.pi", "math.e", "math.tau",
)  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("constant", CONSTANTS)
def test_numbers_by_their_names(constant: str) -> None:
    program = function_of(f"({constant}, a * {constant}, {constant} < a, a == {constant})", "a")
    hold_each(program, pairs(["float"]), "python")
    hold_each(function_of(f"{constant} if a > 1 else a", "a"), pairs(["int"]), "python")


@pytest.mark.parametrize("kind", ["int", "float", "bool"])
@pytest.mark.parametrize(
    "expression", ["round(a, None)", "round(a, 0)", "round(a, 3)", "int(float(a))", "pow(a, 2)"]
)
def test_conversions_of_a_number(expression: str, kind: str) -> None:
    is_compiled = kind != "float" or ("a, 0" not in expression and "a, 3" not in expression)
    hold_each(function_of(expression, "a"), pairs([kind]), "python", is_compiled)


@pytest.mark.parametrize("kinds", [("int", "int"), ("int", "float"), ("float", "bool")])
@pytest.mark.parametrize("expression", ["divmod(a, b)", "pow(a, b)"])
def test_functions_of_two_numbers(expression: str, kinds: tuple[str, str]) -> None:
    columns = pairs(kinds)
    if expression == "pow(a, b)" and kinds == ("int", "int"):  # or Python makes ints of gigabytes
        columns = [column[(columns[1] < 80) & (columns[1] > -1000)] for column in columns]
    hold_each(function_of(expression), columns, "python")


def bounded(a: float, n: int) -> Any:
    low, high = float("-inf"), float("inf")
    zero = float("-0")
    for i in range(n):
        zero = -zero
        low, high = max(low, a - i), min(high, a + i)
    return low, high, zero, -float("nan")


def test_bounds_begin_at_infinities() -> None:
    held(bounded, F, N)


@pytest.mark.parametrize("text", ['float("one")', 'int("1.5")', 'int("9", 8)', 'int("1" "0" * 20)'])
def test_texts_of_no_number_are_the_loops(text: str) -> None:
    hold_each(function_of(f"{text} if a else 0", "a"), pairs(["int"]), "python", False)


def test_what_has_no_compiled_form_is_named() -> None:
    assert "`float` raises here: could not convert string" in why_not_raises('float("x")')
    assert "`round` has a compiled form for one argument, not for 2" in why_not_of("round(b, 2)")
    assert "`abs` has no compiled form for a tuple" in why_not_raises("abs((b, b))")


def why_not_of(expression: str) -> str:
    return why_not(function_of(expression, "a, b"), N[:3], F[:3], scalars="python")


def why_not_raises(expression: str) -> str:
    program = function_of(f"{expression} if a > 99 else a", "a, b")
    return why_not(program, N[:3], F[:3], scalars="python")


# Imports


def importing(a: float, n: int) -> Any:
    import math as m  # noqa: PLC0415
    import os.path  # noqa: PLC0415
    from math import floor, sqrt  # noqa: PLC0415

    if n > 3:
        from math import pi as half  # noqa: PLC0415
    else:
        half = 0.5
    return sqrt(m.fabs(a)), floor(m.atan(a)) if m.isfinite(a) else n, half, os.path is None


def test_modules_are_imported_in_the_function() -> None:
    held(importing, F, N)


def test_what_a_module_means_is_looked_at_before_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("of_a_test")
    module.scale = 2  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "of_a_test", module)

    def program(a: int) -> Any:
        import of_a_test  # type: ignore[import-not-found]  # noqa: PLC0415
        from of_a_test import scale  # noqa: PLC0415

        return a * of_a_test.scale, scale

    batched = autobatch.vmap(program, **COMPILED)
    assert [each.tolist() for each in batched(torch.arange(3))] == [[0, 2, 4], [2, 2, 2]]
    module.scale = 3  # type: ignore[attr-defined]
    assert [each.tolist() for each in batched(torch.arange(3))] == [[0, 3, 6], [3, 3, 3]]
    other = ModuleType("of_a_test")
    other.scale = 2.5  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "of_a_test", other)
    assert batched(torch.arange(3))[0].tolist() == [0.0, 2.5, 5.0]
    del other.scale
    with pytest.raises(ImportError, match="cannot import name 'scale'"):
        batched(torch.arange(3))
    monkeypatch.delitem(sys.modules, "of_a_test")
    with pytest.raises(ModuleNotFoundError, match="No module named 'of_a_test'"):
        batched(torch.arange(3))


def test_imports_that_run_a_module_are_no_machine_code() -> None:
    def program(a: int) -> Any:
        import this_is_nowhere  # type: ignore[import-not-found]  # noqa: PLC0415

        return a + this_is_nowhere.one

    with pytest.raises(ModuleNotFoundError):
        autobatch.vmap(program, **COMPILED)(N[:4])


def chosen(x: Any, n: Any) -> Any:
    return torch.where(x > 1, n, 2.5)


def chosen_beside(x: Any, n: Any) -> Any:
    return torch.where(x > 1, x, n)


def raised_to(x: Any, n: Any) -> Any:
    return x**n


@pytest.mark.parametrize("function", [chosen, chosen_beside])
@pytest.mark.parametrize("large", [1e300, -3.5e38, math.inf, 3.4e38])
def test_a_float_that_is_beyond_the_default_dtype_is_torchs_error(
    function: Callable[..., Any], large: float
) -> None:
    for dtype in (torch.float32, torch.float64, torch.int8):
        rows = torch.tensor([[2], [1]]).to(dtype)
        numbers = torch.tensor([0.5, large], dtype=torch.float64)
        in_a_row(function, rows, numbers)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64])
@pytest.mark.parametrize("large", [5, 300, 2**31])
def test_an_exponent_that_is_no_number_of_the_dtype_is_torchs_error(
    dtype: torch.dtype, large: int
) -> None:
    in_a_row(raised_to, torch.tensor([[2], [1], [3]]).to(dtype), torch.tensor([2, large, 1]))


def in_a_row(function: Callable[..., Any], rows: Any, numbers: Any) -> None:
    """0-d tensors with numbers: a tensor of one element each, of which the function gets that."""

    def of_element(x: Any, n: Any) -> Any:
        return function(x[0], n)

    assert_matches_loop(of_element, (rows, numbers), configurations=(COMPILED,), scalars="python")
    with autobatch.counts() as found, suppress(RuntimeError):
        autobatch.vmap(of_element, **COMPILED)(rows, numbers)
    assert found.launches >= 1
