"""Each rule of compiled programs, at the edges: what Python or torch gives, or raises, for a row.

Under ``on_error="isolate"`` every row is seen: its value, with its type and the sign of a zero, or
its exception.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.generator.record import load_module

pytest.importorskip("llvmlite")

INTS = (0, 1, -1, 2, 3, -7, 63, 64, 10**6, 2**53, 2**53 + 1, -(2**62), 2**63 - 1, -(2**63))
FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-300, 1e300, -1e300, 2.0**53, 2.0**63, 710.0,
    math.inf, -math.inf, math.nan,
)  # fmt: skip
VALUES: dict[str, Sequence[Any]] = {"int": INTS, "float": FLOATS, "bool": (False, True)}
DTYPES = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}

OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>")
ORDER = "(a < b, a <= b, a == b, a != b, a > b, a >= b)"
KINDS = (("int", "int"), ("int", "float"), ("float", "int"), ("float", "float"), ("bool", "int"))
UNARY = (
    "-a", "+a", "not a", "abs(a)", "int(a)", "float(a)", "bool(a)", "round(a)", "math.sqrt(a)",
    "math.floor(a)", "math.ceil(a)", "math.trunc(a)", "math.isnan(a)", "math.isinf(a)",
    "math.isfinite(a)", "math.fabs(a)", "a ** 2", "a ** -1", "a in (1, 2)",
    "a in (-0.0, 3, 1e300)", "a not in (math.inf, True)",
)  # fmt: skip
OF_FLOATS = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "expm1", "log",
    "log10", "log1p", "log2", "sin", "sinh", "tan", "tanh",
)  # fmt: skip
OF_PAIRS = (
    "min(a, b)", "max(a, b)", "divmod(a, b)", "math.atan2(a, b)", "math.fmod(a, b)",
    "math.pow(a, b)", "math.copysign(a, b)",
)  # fmt: skip


def function_of(expression: str, names: str = "a, b") -> Callable[..., Any]:
    source = f"import math\nimport torch\n\ndef program({names}):\n    return {expression}\n"
    found: Callable[..., Any] = load_module(source).program
    return found


def outcome(function: Callable[..., Any], row: Sequence[Any]) -> tuple[Any, str]:
    """A row's value and the text of its exception, by plain Python."""
    try:
        return function(*row), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def hold_each(
    function: Callable[..., Any], columns: Sequence[Tensor], scalars: str, is_compiled: bool = True
) -> None:
    """Hold each row of a compiled call to plain Python, as exactly as its text tells."""
    options = {"executor": "compiled", "on_error": "isolate", "scalars": scalars}
    with autobatch.counts() as found:
        results = autobatch.vmap(function, **options)(*columns)
    assert bool(found.iterations or found.compilations) == is_compiled
    for at, result in enumerate(results):
        row = [column[at].item() if scalars == "python" else column[at] for column in columns]
        value, error = outcome(function, row)
        raised = result.exception
        said = "" if raised is None else f"{type(raised).__name__}: {raised}"
        assert (text(result.value), said) == (text(value), error), f"for {row}"


def text(value: Any) -> Any:
    """What tells values apart: types, dtypes, the sign of zeros; every nan is one."""
    if isinstance(value, tuple):
        return tuple(map(text, value))
    if isinstance(value, Tensor):
        return str(value.dtype), text(value.item())
    return repr(value)


def pairs(kinds: Sequence[str]) -> list[Tensor]:
    rows = list(itertools.product(*(VALUES[kind] for kind in kinds)))
    columns = zip(*rows, strict=True)
    return [torch.tensor(c, dtype=DTYPES[k]) for c, k in zip(columns, kinds, strict=True)]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
@pytest.mark.parametrize("sign", OPERATORS)
def test_operators_on_numbers(sign: str, kinds: tuple[str, str]) -> None:
    is_error = sign in ("&", "|", "^", "<<", ">>") and "float" in kinds
    columns = pairs(kinds)
    if sign in ("<<", "**") and kinds[1] == "int":  # or Python makes ints of gigabytes
        few = (columns[1] < 80) & (columns[1] > -1000)
        columns = [column[few] for column in columns]
    hold_each(function_of(f"a {sign} b"), columns, "python", not is_error)


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_comparisons_of_numbers(kinds: tuple[str, str]) -> None:
    hold_each(function_of(ORDER), pairs(kinds), "python")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", ["int", "float", "bool"])
@pytest.mark.parametrize("expression", UNARY)
def test_functions_of_a_number(expression: str, kind: str) -> None:
    hold_each(function_of(expression, "a"), pairs([kind]), "python")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OF_FLOATS)
def test_functions_of_math(name: str) -> None:
    hold_each(function_of(f"math.{name}(a)", "a"), pairs(["float"]), "python")


@pytest.mark.parametrize("expression", OF_PAIRS)
def test_functions_of_two_floats(expression: str) -> None:
    hold_each(function_of(expression), pairs(["float", "float"]), "python")


# Tensors

TENSOR_INTS = (0, 1, -1, 2, 3, -7, 100, -128, 127)
TENSOR_FLOATS = (0.0, -0.0, 1.0, -1.5, 0.1, 2.5, 1e20, -3.7, math.inf, -math.inf, math.nan)
TENSOR_VALUES: dict[torch.dtype, Sequence[Any]] = {
    torch.bool: (False, True),
    torch.uint8: (0, 1, 2, 7, 200, 255),
    torch.int8: TENSOR_INTS,
    torch.int32: (*TENSOR_INTS, 2**31 - 1),
    torch.int64: (*TENSOR_INTS, 2**63 - 1, 2**24 + 1),
    torch.float32: TENSOR_FLOATS,
    torch.float64: TENSOR_FLOATS,
}
PAIRS = [
    (torch.int64, torch.int64), (torch.int32, torch.int64), (torch.uint8, torch.uint8),
    (torch.int8, torch.int8), (torch.float32, torch.float32), (torch.float32, torch.float64),
    (torch.int64, torch.float32), (torch.bool, torch.int64),
]  # fmt: skip


def tensors(dtypes: Sequence[torch.dtype]) -> list[Tensor]:
    rows = list(itertools.product(*(TENSOR_VALUES[dtype] for dtype in dtypes)))
    columns = zip(*rows, strict=True)
    return [torch.tensor(c, dtype=d) for c, d in zip(columns, dtypes, strict=True)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtypes", PAIRS, ids=str)
@pytest.mark.parametrize("sign", ("+", "-", "*", "/", "//", "%"))
def test_operators_on_tensors(sign: str, dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    is_error = sign == "-" and torch.bool in dtypes
    hold_each(function_of(f"a {sign} b"), tensors(dtypes), "tensor", not is_error)


@pytest.mark.parametrize("dtypes", PAIRS, ids=str)
def test_comparisons_of_tensors(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    hold_each(function_of(ORDER), tensors(dtypes), "tensor")


WEAK = (
    "a + 2", "a * 0.1", "3 - a", "a / 2", "a // 2", "a // -3", "a % 4", "a % 2.5", "7 % a",
    "a < 0.1", "a >= 100", "a == 2", "2.5 < a", "a + 300", "a - True", "-a", "abs(a)", "a.item()",
    "int(a)", "float(a)", "bool(a)", "not a", "a ** 2", "a ** 3", "a if a else 0 * a",
    "isinstance(a, int)", "torch.where(a > 1, a, -a)", "torch.minimum(a, a * 2)", "torch.square(a)",
    "divmod(a, 2)", "divmod(2, a)",
)  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.uint8], ids=str)
@pytest.mark.parametrize("expression", WEAK)
def test_tensors_and_numbers(expression: str, dtype: torch.dtype) -> None:
    is_error = expression == "a - True" or "divmod" in expression
    is_compiled = not (is_error or (expression == "abs(a)" and dtype is torch.uint8))
    hold_each(function_of(expression, "a"), tensors([dtype]), "tensor", is_compiled)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("name", ["cos", "exp", "log", "sin", "sqrt", "tanh"])
def test_functions_of_torch(name: str, dtype: torch.dtype) -> None:
    """Up to the last places: torch has kernels of its own."""
    (column,) = tensors([dtype])
    made = autobatch.vmap(function_of(f"torch.{name}(a)", "a"), executor="compiled")(column)
    torch.testing.assert_close(made, getattr(torch, name)(column), equal_nan=True)
