"""The functions of ``math`` on number columns, to a few units in the last place at most."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autobatch.batching import numbers
from autobatch.batching.numbers.api import CALLABLES
from tests.number_rows import (
    EDGES,
    EXACT,
    KINDS,
    MATH,
    ULPS,
    check,
    column,
    operands_of,
    pairs,
)

torch.set_num_threads(1)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", MATH, ids=lambda f: f.__name__)
def test_math_edges(function: Callable[..., Any], kind: type) -> None:
    allowed = 0 if function in EXACT else ULPS.get(function, 1)
    operation = numbers.lookup(function)
    assert operation is not None
    values = EDGES[kind]
    rule = operation.parts[0]
    if rule.least == 1:
        batched = check(operation, function, [values], False, allowed)
        assert batched or (function is math.isqrt and kind is float)
    if rule.most == 2:
        for other in KINDS:
            check(operation, function, pairs(values, EDGES[other]), False, allowed)
            for value in values:
                check(operation, function, [value, EDGES[other]], True, allowed)
            for value in EDGES[other]:
                check(operation, function, [values, value], True, allowed)


def test_pairs_of_floats_have_batched_math() -> None:
    a = column([1.5, 2.5])
    for function in MATH:
        rule = CALLABLES[function].parts[0]
        if rule.most == 2 and function not in (math.gcd, math.lcm, math.ldexp):
            assert numbers.apply(CALLABLES[function], a, a) is not None, function


@pytest.mark.sampled(4)
@pytest.mark.parametrize("function", MATH, ids=lambda f: f.__name__)
@given(data=st.data(), tight=st.booleans())
@settings(max_examples=12, deadline=None)
def test_math(function: Callable[..., Any], data: st.DataObject, tight: bool) -> None:
    rule = CALLABLES[function].parts[0]
    operands = data.draw(operands_of(data.draw(st.integers(rule.least, rule.most))))
    allowed = 0 if function in EXACT else ULPS.get(function, 1)
    check(CALLABLES[function], function, operands, tight, allowed)
