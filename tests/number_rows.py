"""Number columns held to Python, row by row; the edge values and strategies of their tests."""

from __future__ import annotations

import builtins
import math
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from autobatch.batching import numbers
from autobatch.batching.numbers import Number, NumberResult
from autobatch.batching.numbers.api import CALLABLES

DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}
INTS = [0, 1, -1, 2, 3, 7, -7, 10, 63, 64, -64, 100, 2**31, -(2**31), 3037000499, -3037000500]
INTS += [2**53, 2**53 + 1, -(2**53) - 1, 2**62, -(2**62), 2**62 + 1, 2**63 - 1, 2**63 - 2]
INTS += [-(2**63), -(2**63) + 1, 2**63 - 1025, 2**63 - 512, 2**32 + 1, 4611686018427387905 // 3]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.0, 0.1, 1e-5, 1e16, 2.0**53]
FLOATS += [2.0**63, -(2.0**63), 2.0**63 - 1024, 1e300, -1e300, 5e-324, -5e-324, 2.3e-308, 1.8e-308]
FLOATS += [math.inf, -math.inf, math.nan, math.pi, 0.9999999999999999, 1.0000000000000002, 709.9]
FLOATS += [-745.1, 710.4, 710.5, 1.7976931348623157e308, 4503599627370495.5, 1023.5]
LIMITS = [709.782712893384, 710.4758600739439, 1024.0]  # of exp, of sinh and cosh, of exp2
FLOATS += [
    x for limit in LIMITS for x in (limit, math.nextafter(limit, 0), math.nextafter(limit, 1e4))
]
BOOLS = [True, False]
EDGES: dict[type, list[Any]] = {bool: BOOLS, int: INTS, float: FLOATS}
SMALL = [0, 1, -1, 2, 3, 5, 7, -7, 12, 63]

BINARY = "add sub mul truediv floordiv mod pow lshift rshift and or xor lt le eq ne gt ge"
UNARY = "neg pos invert not truth abs"
OPERATORS = {
    n: getattr(operator, {"and": "and_", "or": "or_", "not": "not_"}.get(n, n))
    for n in f"{BINARY} {UNARY}".split()
}
TWO_OFF = (math.tanh, math.atanh, math.log10, math.log)
ULPS: dict[Callable[..., Any], int] = {**dict.fromkeys(TWO_OFF, 2), math.sinh: 3, math.cosh: 3}
EXACT = [math.sqrt, math.fmod, math.copysign, math.fabs, math.nextafter, math.remainder, math.modf]
EXACT += [math.ldexp, math.frexp, math.degrees, math.radians]
MATH = [f for f in CALLABLES if getattr(math, f.__name__, None) is f]


def ulps(a: float, b: float) -> float:
    """How many floats apart; zeros of both signs are apart."""
    if math.isnan(a) or math.isnan(b):
        return 0 if math.isnan(a) and math.isnan(b) else math.inf
    if math.copysign(1, a) != math.copysign(1, b):
        return math.inf
    bits = [struct.unpack("<q", struct.pack("<d", abs(x)))[0] for x in (a, b)]
    return abs(bits[0] - bits[1])


def column(values: Sequence[Any], tight: bool = False) -> Number:
    kind = type(values[0])
    bounds = (min(values), max(values)) if tight and kind is int else None
    return Number(kind.__name__, torch.tensor(values, dtype=DTYPES[kind]), bounds)


def python(function: Callable[..., Any], row: Sequence[Any]) -> Any:
    """What Python gives; an exception is returned as its type."""
    try:
        return function(*row)
    except (ArithmeticError, ValueError, TypeError) as error:
        return type(error)


def same(tag: str, got: Any, want: Any, allowed: int) -> bool:
    if type(want).__name__ != tag:
        return False
    return ulps(got, want) <= allowed if isinstance(want, float) else got == want


def judge(
    result: NumberResult, wants: Sequence[Any], rows: Sequence[Any], allowed: int, label: str
) -> None:
    count = len(rows)
    failed = [False] * count if result.failed is None else result.failed.tolist()
    escape = [False] * count if result.escape is None else result.escape.tolist()
    assert result.data.dtype is DTYPES[getattr(builtins, result.tag)]
    assert result.data.shape == (count,)
    for got, fails, leaves, want, row in zip(
        result.data.tolist(), failed, escape, wants, rows, strict=True
    ):
        what = f"{label}{tuple(row)} = {want!r}; got {got!r}, failed {fails}, escape {leaves}"
        if isinstance(want, type):
            assert fails or leaves, what
            continue
        assert not fails, what
        if leaves:
            continue
        assert same(result.tag, got, want, allowed), what
        if result.tag == "int" and result.bounds:
            assert result.bounds[0] <= got <= result.bounds[1], f"{what}, bounds {result.bounds}"


def check(
    name: Any, function: Callable[..., Any], operands: Sequence[Any], tight: bool, allowed: int = 0
) -> bool:
    """Operands are lists (columns) or numbers (uniform); whether there was a batched form."""
    count = max(len(o) for o in operands if isinstance(o, list))
    rows = list(zip(*[o if isinstance(o, list) else [o] * count for o in operands], strict=True))
    cells = [column(o, tight) if isinstance(o, list) else o for o in operands]
    got = numbers.apply(name, *cells)
    forecast = numbers.forecast(name, *cells)
    assert (got is None) == (forecast is None)
    if got is None or forecast is None:
        return False
    several = isinstance(got, tuple)
    results = got if isinstance(got, tuple) else (got,)
    wants = [python(function, row) for row in rows]
    for i, (result, outlook) in enumerate(zip(results, forecast, strict=True)):
        part = [w[i] if several and not isinstance(w, type) else w for w in wants]
        judge(result, part, rows, allowed, f"{getattr(name, '__name__', name)}")
        assert (outlook.tag, outlook.bounds) == (result.tag, result.bounds)
        assert outlook.may_fail or result.failed is None
        assert outlook.may_escape or result.escape is None
    return True


def pairs(left: list[Any], right: list[Any]) -> list[list[Any]]:
    return [[a for a in left for _ in right], [b for _ in left for b in right]]


KINDS = [bool, int, float]


numbers_of = {
    bool: st.booleans(),
    int: st.one_of(st.sampled_from(INTS), st.integers(-100, 100), st.integers(-(2**63), 2**63 - 1)),
    float: st.one_of(
        st.sampled_from(FLOATS),
        st.floats(),
        st.floats(-10, 10),
        st.integers(-50, 50).map(float),
        st.floats(0.5, 2.0),
    ),
}


@st.composite
def operand(draw: st.DrawFn, count: int, uniform: bool) -> Any:
    kind = draw(st.sampled_from(KINDS))
    if uniform:
        return draw(numbers_of[kind])
    return draw(st.lists(numbers_of[kind], min_size=count, max_size=count))


@st.composite
def operands_of(draw: st.DrawFn, arity: int) -> list[Any]:
    count = draw(st.sampled_from([1, 3, 8, 9, 17]))
    column_at = draw(st.integers(0, arity - 1))
    return [
        draw(operand(count, uniform=i != column_at and draw(st.booleans()))) for i in range(arity)
    ]


def flat(results: Any) -> list[Any]:
    results = results if isinstance(results, tuple) else (results,)
    return [t for r in results for t in (r.data, r.failed, r.escape) if t is not None]
