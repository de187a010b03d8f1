"""Number columns against Python itself, row by row: values, types, errors, bounds."""

from __future__ import annotations

import builtins
import math
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from autobatch.batching import numbers
from autobatch.batching.numbers import Number, NumberResult
from autobatch.batching.numbers.api import CALLABLES, OPERATIONS
from autobatch.batching.numbers.weak import as_operand, joined_dtype

torch.set_num_threads(1)

DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}
INTS = [0, 1, -1, 2, 3, 7, -7, 10, 63, 64, -64, 100, 2**31, -(2**31), 3037000499, -3037000500]
INTS += [2**53, 2**53 + 1, -(2**53) - 1, 2**62, -(2**62), 2**62 + 1, 2**63 - 1, 2**63 - 2]
INTS += [-(2**63), -(2**63) + 1, 2**63 - 1025, 2**63 - 512, 4611686018427387905 // 3]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.0, 0.1, 1e-5, 1e16, 2.0**53]
FLOATS += [2.0**63, -(2.0**63), 2.0**63 - 1024, 1e300, -1e300, 5e-324, -5e-324, 2.3e-308, 1.8e-308]
FLOATS += [math.inf, -math.inf, math.nan, math.pi, 0.9999999999999999, 1.0000000000000002, 709.9]
FLOATS += [-745.1, 710.4, 710.5, 1.7976931348623157e308, 4503599627370495.5, 1023.5]
BOOLS = [True, False]
EDGES: dict[type, list[Any]] = {bool: BOOLS, int: INTS, float: FLOATS}
SMALL = [0, 1, -1, 2, 3, 5, 7, -7, 12, 63]

BINARY = "add sub mul truediv floordiv mod pow lshift rshift and or xor lt le eq ne gt ge"
UNARY = "neg pos invert not truth abs"
OPERATORS = {
    n: getattr(operator, {"and": "and_", "or": "or_", "not": "not_"}.get(n, n))
    for n in f"{BINARY} {UNARY}".split()
}
TWO_OFF = (math.sinh, math.tanh, math.atanh, math.log10, math.log)
ULPS: dict[Callable[..., Any], int] = dict.fromkeys(TWO_OFF, 2)
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


@pytest.mark.parametrize("name", [n for n in BINARY.split() if n not in ("pow", "lshift")])
@given(operands=operands_of(2), tight=st.booleans())
@settings(max_examples=40, deadline=None)
def test_binary(name: str, operands: list[Any], tight: bool) -> None:
    check(name, OPERATORS[name], operands, tight)


@pytest.mark.parametrize("function", [min, max])
@given(operands=st.sampled_from([2, 3]).flatmap(operands_of), tight=st.booleans())
@settings(max_examples=60, deadline=None)
def test_choice(function: Callable[..., Any], operands: list[Any], tight: bool) -> None:
    check(function.__name__, function, operands, tight)


@pytest.mark.parametrize("function", MATH, ids=lambda f: f.__name__)
@given(data=st.data(), tight=st.booleans())
@settings(max_examples=25, deadline=None)
def test_math(function: Callable[..., Any], data: st.DataObject, tight: bool) -> None:
    rule = CALLABLES[function].parts[0]
    operands = data.draw(operands_of(data.draw(st.integers(rule.least, rule.most))))
    allowed = 0 if function in EXACT else ULPS.get(function, 1)
    check(CALLABLES[function], function, operands, tight, allowed)


@given(operands=operands_of(2), tight=st.booleans())
@settings(max_examples=200, deadline=None)
def test_pow(operands: list[Any], tight: bool) -> None:
    base, exponent = operands
    exponents = exponent if isinstance(exponent, list) else [exponent]
    if all(isinstance(e, float) or abs(e) < 2000 for e in exponents):
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


class Kernels(TorchDispatchMode):
    """Counts torch's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "operands", "kernels"),
    [
        ("add", [[1, 2], 1], ["add"]),
        ("add", [1, [1, 2]], ["add"]),
        ("add", [[1, 2], [3, 4]], ["add"]),
        ("sub", [1, [1, 2]], ["rsub"]),
        ("mul", [3, [1, 2]], ["mul"]),
        ("floordiv", [[1, 2], 2], ["div"]),
        ("mod", [[1, 2], 2], ["remainder"]),
        ("mod", [[1, 2], [3, 4]], ["remainder"]),
        ("pow", [[1, 2], 2], ["mul"]),
        ("lshift", [[1, 2], 2], ["bitwise_left_shift"]),
        ("lt", [[1, 2], 2], ["lt"]),
        ("eq", [[1, 2], [1, 3]], ["eq"]),
        ("lt", [[1, 2], 2.5], ["le"]),
        ("lt", [[1.0, 2.0], 2], ["lt"]),
        ("lt", [2.5, [1.0, 2.0]], ["gt"]),
        ("add", [[1.0, 2.0], 2], ["add"]),
        ("truediv", [[1.0, 2.0], 2], ["div"]),
        ("mod", [[1.0, 2.0], 2.0], ["remainder", "add"]),
        ("neg", [[1, 2]], ["neg"]),
        ("min", [[1, 2], 2], ["clamp"]),
        ("truth", [[True, False]], []),
        ("int", [[1, 2]], []),
    ],
)
def test_kernels_spent(name: str, operands: list[Any], kernels: list[str]) -> None:
    cells = [column(o, tight=True) if isinstance(o, list) else o for o in operands]
    with Kernels() as seen:
        result = numbers.apply(name, *cells)
    assert isinstance(result, NumberResult)
    assert seen.names == kernels
    assert result.failed is None
    assert result.escape is None


def test_unchecked_spends_nothing_on_rows_that_fail() -> None:
    a = column([1, 2, 0])
    for name in ("add", "mul", "floordiv", "mod", "truediv", "pow", "lshift"):
        result = numbers.apply(name, a, a, checked=False)
        assert isinstance(result, NumberResult)
        assert result.failed is None
        assert result.escape is None


CALLS: list[tuple[Any, list[Any]]] = [
    *[(n, [k, k]) for n in BINARY.split() for k in (int, float) if n[-1] != "x"],
    *[(n, [k]) for n in UNARY.split() for k in KINDS],
    *[(n, [k]) for n in ("int", "float", "bool", "round") for k in KINDS],
    *[(n, [int, float]) for n in ("add", "mod", "pow", "lt", "eq", "min")],
    *[(f, [k] * CALLABLES[f].parts[0].most) for f in MATH for k in (int, float)],
]


def flat(results: Any) -> list[Any]:
    results = results if isinstance(results, tuple) else (results,)
    return [t for r in results for t in (r.data, r.failed, r.escape) if t is not None]


@pytest.mark.parametrize("scalar", [None, 3])
@pytest.mark.parametrize(("name", "kinds"), CALLS)
def test_rows_of_vmap_and_a_recording_give_the_same(
    name: Any, kinds: list[type], scalar: int | None
) -> None:
    """Elementwise on 0-d rows, and no host reads: recorded on fake tensors, replayed on data."""
    columns = [column(EDGES[kind][:24]) for kind in kinds]
    operation = CALLABLES[name] if callable(name) else name
    if scalar is not None:
        columns = columns[:-1]

    def run(*datas: torch.Tensor) -> list[Any]:
        cells = [Number(c.tag, d) for c, d in zip(columns, datas, strict=True)]
        extra = [] if scalar is None else [scalar]
        return flat(numbers.apply(operation, *cells, *extra))

    datas = [c.data for c in columns]
    if (
        not datas
        or numbers.apply(operation, *columns, *([] if scalar is None else [scalar])) is None
    ):
        return
    want = run(*datas)
    rows = torch.vmap(run)(*datas)
    replayed = make_fx(run, tracing_mode="fake")(*datas)(*datas)
    for w, row, again in zip(want, rows, replayed, strict=True):
        assert w.dtype is row.dtype is again.dtype
        torch.testing.assert_close(row, w, rtol=1e-15, atol=0, equal_nan=True)
        torch.testing.assert_close(again, w, rtol=0, atol=0, equal_nan=True)


REAL = [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16]
REAL += [torch.bfloat16, torch.float32, torch.float64, torch.complex64]


@pytest.mark.parametrize("like", REAL, ids=str)
@pytest.mark.parametrize("value", [True, 3, -1, 2**40, 2.5, 1e6])
def test_a_number_joins_a_tensor_as_python_s_does(value: Any, like: torch.dtype) -> None:
    number = column([value, value])
    for tensor in (torch.ones(2, dtype=like), torch.ones((), dtype=like)):
        assert joined_dtype(number.tag, like) is torch.result_type(tensor, value)
    operand_tensor = as_operand(number, like)
    if like is not torch.bool:
        torch.testing.assert_close(
            torch.zeros(2, dtype=like) + operand_tensor, torch.zeros(2, dtype=like) + value
        )
