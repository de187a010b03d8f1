"""Operators and builtins on number columns: values, types, errors and bounds are Python's."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autobatch.batching import numbers
from autobatch.batching.numbers.api import OPERATIONS
from tests.number_rows import (
    BINARY,
    EDGES,
    INTS,
    KINDS,
    OPERATORS,
    SMALL,
    UNARY,
    check,
    column,
    operands_of,
    pairs,
    python,
)

torch.set_num_threads(1)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("name", [*BINARY.split(), "min", "max", "divmod"])
def test_binary_edges(name: str, first: type, second: type, tight: bool) -> None:
    function = OPERATORS.get(name) or getattr(builtins, name)
    allowed = 1 if name == "pow" else 0
    left, right = EDGES[first], EDGES[second]
    if name in ("pow", "lshift") and second is int:
        right = [v for v in right if abs(v) < 2000]  # Python would spell the whole number out
    check(name, function, pairs(left, right), tight, allowed)
    check(name, function, pairs(left, SMALL), tight, allowed)
    for value in left:
        check(name, function, [value, right], tight, allowed)
    for value in right:
        check(name, function, [left, value], tight, allowed)


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*UNARY.split(), "int", "float", "bool", "round"])
def test_unary_edges(name: str, kind: type, tight: bool) -> None:
    function = OPERATORS.get(name) or getattr(builtins, name)
    batched = check(name, function, [EDGES[kind]], tight)
    assert batched or (name == "invert" and kind is float)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("name", [*BINARY.split(), "min", "max", "divmod"])
def test_every_pair_of_columns_has_a_batched_form(name: str, first: type, second: type) -> None:
    a, b = column(EDGES[first][:2]), column(EDGES[second][:2])
    whole_only = name in ("and", "or", "xor", "lshift", "rshift")
    assert (numbers.apply(name, a, b) is None) == (whole_only and float in (first, second))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "lshift", "neg", "abs", "floordiv", "mod"])
def test_rows_that_fit_int64_do_not_escape(name: str) -> None:
    small = name == "lshift"
    right = SMALL if small else INTS
    cases: list[list[Any]] = [[INTS]] if name in ("neg", "abs") else [pairs(INTS, right)]
    if len(cases[0]) == 2:
        cases += [[INTS, value] for value in right] + [[value, right] for value in INTS]
    for operands in cases:
        cells = [column(o) if isinstance(o, list) else o for o in operands]
        result = numbers.apply(name, *cells)
        if result is None or result.escape is None:
            continue
        count = len(result.escape)
        rows = zip(*[o if isinstance(o, list) else [o] * count for o in operands], strict=True)
        for row, leaves in zip(rows, result.escape.tolist(), strict=True):
            want = python(OPERATORS[name], row)
            assert isinstance(want, type) or leaves == (not -(2**63) <= want < 2**63), (name, row)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [n for n in BINARY.split() if n not in ("pow", "lshift")])
@given(operands=operands_of(2), tight=st.booleans())
@settings(max_examples=25, deadline=None)
def test_binary(name: str, operands: list[Any], tight: bool) -> None:
    check(name, OPERATORS[name], operands, tight)


@pytest.mark.parametrize("function", [min, max])
@given(operands=st.sampled_from([2, 3]).flatmap(operands_of), tight=st.booleans())
@settings(max_examples=40, deadline=None)
def test_choice(function: Callable[..., Any], operands: list[Any], tight: bool) -> None:
    check(function.__name__, function, operands, tight)


@given(operands=operands_of(2), tight=st.booleans())
@settings(max_examples=100, deadline=None)
def test_pow(operands: list[Any], tight: bool) -> None:
    base, exponent = operands
    exponents = exponent if isinstance(exponent, list) else [exponent]
    if all(isinstance(e, float) or abs(e) < 200 for e in exponents):
        check("pow", operator.pow, operands, tight, allowed=1)
    if isinstance(base, list) and isinstance(exponent, list):
        small = [int(e) % 70 if math.isfinite(e) else 2 for e in exponent]
        check("pow", operator.pow, [base, small], tight, allowed=1)
        check("lshift", operator.lshift, [base, small], tight)


@pytest.mark.parametrize("exponent", [0.5, -0.5, 2.0, 3.0, -1.0, -2.0, 1 / 3, 7, -3])
@given(base=st.lists(st.one_of(st.floats(0, 10), st.floats(0)), min_size=9, max_size=9))
@settings(max_examples=30, deadline=None)
def test_uniform_exponents(exponent: float, base: list[float]) -> None:
    assert check("pow", operator.pow, [base, exponent], False, allowed=1)


@pytest.mark.parametrize("digits", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_round_to_digits(kind: type, digits: int) -> None:
    batched = check("round", round, [EDGES[kind], digits], True)
    assert batched == (kind is not float or digits == 0)


@pytest.mark.parametrize(
    "scalar", [2**64, -(2**64), 2**2000, -(2**2000), 2**1024, 2**63, 2**53 + 1]
)
@pytest.mark.parametrize("name", [n for n in BINARY.split() if n not in ("pow", "lshift")])
def test_uniform_ints_beyond_int64(name: str, scalar: int) -> None:
    for kind in KINDS:
        check(name, OPERATORS[name], [EDGES[kind], scalar], False)
        check(name, OPERATORS[name], [scalar, EDGES[kind]], True)
    assert check("and", operator.and_, [[1, 2**62 + 5], 2**64 - 1], True)


def test_what_is_not_a_number_has_no_batched_form() -> None:
    a = column([1, 2])
    assert numbers.apply("add", a, "x") is None
    assert numbers.apply("add", a, 1j) is None
    assert numbers.apply("matmul", a, a) is None
    assert numbers.apply("add", 1, 2) is None
    assert numbers.apply("neg", a, a) is None
    assert numbers.lookup(print) is None
    assert numbers.lookup([]) is None
    assert numbers.lookup(operator.iadd) is OPERATIONS["iadd"]
