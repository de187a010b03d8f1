"""Realistic scalar programs as machine code: what they give, and that they are compiled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from tests.compiled_programs import arguments
from tests.oracle import assert_matches_loop

pytest.importorskip("llvmlite")

COMPILED = {"executor": "compiled"}
PROGRAMS = arguments()
REFUSED_TENSORS = ("isqrt", "modpow2", "days_from_civil", "weekday_name", "safe_div")
"""Programs that raise, or mean something else, where their numbers are tensors."""


def held(function: Callable[..., Any], *args: Any, **options: Any) -> autobatch.Counts:
    """Hold a compiled call to the loop, bit by bit; its counts, where it does not raise."""
    options = {"scalars": "python", **options}
    assert_matches_loop(function, args, configurations=(COMPILED,), rtol=0.0, atol=0.0, **options)
    with autobatch.counts() as found:
        autobatch.vmap(function, **COMPILED, **options)(*args)
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_realistic_programs_are_compiled(name: str) -> None:
    function, args, in_dims = PROGRAMS[name]
    found = held(function, *args, in_dims=in_dims)
    assert found.launches == 1 or found.given_up


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n.split("-")[0] not in REFUSED_TENSORS])
def test_realistic_programs_of_tensors_match_the_loop(name: str) -> None:
    function, args, in_dims = PROGRAMS[name]
    assert_matches_loop(function, args, in_dims=in_dims, configurations=(COMPILED,))


# Functions that are Python text


def test_integer_functions_are_pythons() -> None:
    roots = [2**26 + 1, 3037000499]
    near = [root**2 + off for root in roots for off in (-1, 0, 1)]
    n = torch.tensor([0, 1, 2, 3, 4, 15, 16, 17, 2**53 + 1, 2**62, 2**63 - 1, *near])
    held(lambda n: math.isqrt(n), n)
    a = torch.tensor([0, 0, 5, -6, 12, -(2**63), 2**63 - 1, 7])
    b = torch.tensor([0, 4, 0, -9, -18, 6, 2**63 - 1, 5])
    assert held(lambda a, b: (math.gcd(a, b), math.lcm(a, b)), a, b).given_up == 1
    assert held(lambda n: math.factorial(n), torch.arange(25)).given_up == 4
    pairs = torch.tensor(list(itertools.product((0, 1, 5, 30, 60), (0, 1, 2, 29, 30))))
    held(lambda n, k: math.comb(n, k), *pairs.unbind(1))
    n = torch.tensor([0, 1, -1, 255, 256, -256, 2**63 - 1, -(2**62)])
    bits = held(lambda n: (n.bit_length(), n.bit_count(), (n > 0).bit_length()), n)
    assert bits.given_up == 0


def test_powers_under_a_modulus_have_its_sign() -> None:
    wide = itertools.product((-7, -1, 0, 1, 10**9), (0, 1, 5, 63), (-5, -1, 1, 2, 10**9 + 7))
    assert held(lambda b, e, m: pow(b, e, m), *torch.tensor(list(wide)).unbind(1)).given_up == 0
    inverse = torch.tensor([3, 3]), torch.tensor([-1, 2]), torch.tensor([7, 7])
    assert held(lambda b, e, m: pow(b, e, m), *inverse).given_up == 1


def test_ints_and_floats_are_compared_exactly() -> None:
    big = [2**53, 2**53 + 1, 2**62 + 1, 2**63 - 1, 2**63 - 513, 0, 1, 3]
    ints = [*big, *(-n for n in big), -(2**63)]
    floats = [*map(float, ints), 2.0**63, -(2.0**63), 2.0**53 + 2, 0.5, -0.0, 1e300]
    floats += [math.inf, -math.inf, math.nan]
    a, b = (list(each) for each in zip(*itertools.product(ints, floats), strict=True))

    def compared(a: Any, b: Any) -> Any:
        return (a < b, a <= b, a == b, a != b, a > b, a >= b), (b < a, b <= a, b == a, b >= a)

    columns = torch.tensor(a), torch.tensor(b, dtype=torch.float64)
    assert held(compared, *columns).given_up == 0
    constant = held(lambda b: (b < 9007199254740993, b >= 9223372036854775807), columns[1])
    assert (constant.launches, constant.given_up) == (1, 0)


def test_float_functions_are_pythons() -> None:
    x = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 10
    found = held(lambda x: (math.degrees(x), math.radians(x), math.cbrt(x), math.exp2(x)), x)
    assert found.launches == 1
    base = torch.tensor([2.0, 1.5, 10.0], dtype=torch.float64)
    assert held(lambda x, b: math.log(x, b), base + 1, base).launches == 1
    with pytest.raises(ZeroDivisionError):
        autobatch.vmap(lambda x, b: math.log(x, b), **COMPILED, scalars="python")(base, base / base)
    whole = torch.tensor([2.5, -2.5, 0.0, 1e10])
    assert held(lambda x: (math.floor(x), math.ceil(x)), whole, scalars="tensor").launches == 1


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_shifts_of_tensors(dtype: torch.dtype) -> None:
    values = [x for x in (-5, 0, 1, 100, 127) if x >= 0 or dtype is not torch.uint8]
    pairs = torch.tensor(list(itertools.product(values, (0, 1, 3, 7, 8, 31, 63)))).to(dtype)

    def shifted(a: Any, b: Any) -> Any:
        return a << b, a >> b, a << 1, 3 >> b

    assert held(shifted, *pairs.unbind(1), scalars="tensor").iterations == 0


# Loops and elements


def over_all_kinds(x: Any, n: int) -> Any:
    s = 0
    for i, (a, b) in enumerate(zip(x, range(3, n, 2), strict=False)):
        s = s + a * b + i
    for a in reversed(x):
        s = s * 2 + a
    for i in reversed(range(1, n, 3)):
        s = s - i
    for w in (1, 5, 2):
        s = s * w
    for a, b in zip((0.5, 0.25), x, strict=False):
        s = s + a * b
    return s


def test_loops_over_what_is_no_range() -> None:
    x = torch.arange(20.0, dtype=torch.float64).view(5, 4)
    assert held(over_all_kinds, x, torch.tensor([0, 4, 5, 9, 30])).launches == 1


def totals(x: Any) -> Any:
    s = 0.0
    for row in x:
        for value in row:
            s = s + value
    return s


def test_loops_over_rows_of_rows_and_of_nothing() -> None:
    x = torch.rand(3, 5, 2, dtype=torch.float64)
    assert held(totals, x).launches == 1
    held(totals, torch.zeros(3, 0, 2))
    held(totals, torch.zeros(3, 2, 0))


def read_twice(x: Any) -> Any:
    s, pairs = 0.0, enumerate(x)
    for i, a in pairs:
        s = s + a * i
        if i == 1:
            break
    for i, a in pairs:
        s = s - a * i
    return s


def written_items(x: Any) -> Any:
    s = 0.0
    for v in x:
        v += 1
        s = s + v
    return s + x[0]


def test_iterators_that_are_read_twice_and_items_that_are_written_run_traced() -> None:
    for function in (read_twice, written_items):
        assert held(function, torch.rand(3, 4, dtype=torch.float64)).launches > 1


def picked(i: int) -> Any:
    t = (3, 1, 4, 1, 5)
    return t[i], [0.5, 2.5][i % 2]


def test_parts_of_one_type_are_picked_by_any_place() -> None:
    assert held(picked, torch.tensor([0, 1, -1, -5, 4])).launches == 1
    held_error(picked, IndexError, torch.tensor([0, 1, 5, -6]))


def held_error(function: Callable[..., Any], error: type, *args: Any) -> None:
    assert_matches_loop(function, args, configurations=(COMPILED,), scalars="python")
    with pytest.raises(error):
        autobatch.vmap(function, **COMPILED, scalars="python")(*args)


# What raises


def safe(a: int, b: int) -> Any:
    try:
        q, r = a // b, a / b
    except ZeroDivisionError:
        q, r = -1, 0.5
    finally:
        a = a + 1
    return q, r, a


def test_what_a_try_catches_is_caught_there() -> None:
    a, b = torch.arange(6), torch.tensor([1, 0, 2, 0, 3, 5])
    assert held(safe, a, b).given_up == 0


# Tensors from outside

TABLE = torch.arange(10) * 3
SCALE = torch.tensor(2.5)


def looked_up(i: int) -> Any:
    return TABLE[i] + 1, TABLE[i].item() * 2, SCALE * i


def test_tensors_from_outside_are_read_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    space = looked_up.__globals__
    monkeypatch.setitem(space, "TABLE", TABLE.clone())
    monkeypatch.setitem(space, "SCALE", SCALE.clone())
    batched, i = autobatch.vmap(looked_up, scalars="python", **COMPILED), torch.arange(3)
    assert held(looked_up, i).launches == 1
    space["TABLE"][0] = 100
    space["SCALE"].add_(1)
    assert batched(i)[0].tolist() == [101, 4, 7]
    assert batched(i)[2].tolist() == [0.0, 3.5, 7.0]
    monkeypatch.setitem(space, "TABLE", torch.arange(4))
    assert batched(i)[0].tolist() == [1, 2, 3]
    space["TABLE"].resize_(2)
    held_error(looked_up, IndexError, i)
    space["SCALE"].requires_grad_()
    assert batched(torch.arange(2))[2].requires_grad
