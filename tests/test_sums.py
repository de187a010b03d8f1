"""``sum`` is that of the Python that runs: since 3.12 it makes up for what its additions lose."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

import autobatch
from autobatch.ir import sums
from tests.oracle import assert_matches_loop

BIG = 1e16
ROWS = [
    *itertools.permutations((BIG, 1.0, -BIG)),
    *((0.1, 0.2, 0.3), (0.1, 0.7, -0.8), (1e-9, 1.0, -1.0), (-0.0, -0.0, -0.0), (0.0, -0.0, 0.0)),
    *((1e308, 1e308, -1e308), (math.inf, 1.0, -1.0), (math.inf, -math.inf, 0.1)),
    *((math.nan, 1.0, 2.0), (BIG, math.nan, -BIG), (3.0, BIG, -3.0), (BIG, BIG, 1.0)),
]
XS = torch.tensor(ROWS, dtype=torch.float64)
NS = torch.arange(len(ROWS)) * 7 % 11 - 4


WAYS = ({"executor": "traced", "trace_after": 0, "plain": "never"}, {"executor": "compiled"})


def held(program: Callable[..., Any], *columns: torch.Tensor, ways: Any = WAYS) -> None:
    """Hold a program of Python numbers to the loop, bit by bit."""
    assert_matches_loop(
        program,
        columns,
        configurations=ways,
        scalars="python",
        rtol=0.0,
        atol=0.0,
    )


def signed(total: Any) -> Any:
    """A sum, and the sign of its zero."""
    return total, math.copysign(1.0, total)


# What is said of ``sum``


def added(items: list[Any], start: Any) -> Any:
    total, lost = start, sums.begun(start)
    for item in items:
        total = sums.left(total, lost, item)
        after = total + item
        lost, total = sums.lost_by(lost, total, item, after), after
    return sums.whole(total, lost)


class Real(float):
    pass


class Whole(int):
    pass


FLOATS = [0.1, BIG, -BIG, 3.3, 1.0, -1.0, 1e-9, -0.0]
INTS = [0, 1, 7, True, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**400]
OTHERS = [
    *(math.inf, -math.inf, math.nan, 1e308, -1e308, Real(0.1), Whole(3), Fraction(1, 3)),
    *(1j, BIG + BIG * 1j, -BIG - BIG * 1j, complex(-0.0, -0.0), np.float64(0.1), None),
]
STARTS = [0, 0, 0, 0.0, -0.0, 1.5, True, 2**63, 1j, Fraction(0)]


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        result = function(*args)
    except (TypeError, OverflowError) as error:
        return type(error), str(error)
    return type(result), repr(result)


def test_it_is_what_the_sum_that_runs_does() -> None:
    draws = random.Random(0)
    for _ in range(5_000):
        pool = [*FLOATS, draws.choice(INTS), draws.choice([*INTS, *OTHERS])]
        items = [draws.choice(pool) for _ in range(draws.randint(0, 7))]
        start = draws.choice(STARTS)
        assert outcome(added, items, start) == outcome(sum, items, start), (items, start)


# Sums of a batch


def of_a_generator(x: float, y: float, z: float) -> Any:
    return signed(sum(v for v in (x, y, z)))


def of_a_list(x: float, y: float, z: float) -> Any:
    return signed(sum([x, y, z])), sum((z, 3, y, True, x)), sum([])


def of_a_map(x: float, y: float, z: float) -> Any:
    return (
        sum(map(abs, [x, y, z])),
        sum(map(lambda v, w: v * w, [x, y, z], [3.0, z, x])),
        sum({"x": x, "y": y, "z": z}.values()),
    )


def from_a_start(x: float, y: float, z: float) -> Any:
    made = sum((v for v in (y, z)), x), sum((v for v in (x, z)), start=y + 0.0)
    return made, sum([x, y, z], -0.0), sum([y], start=x), signed(sum((), -0.0))


def from_a_bool(x: float, y: float, z: float) -> Any:
    return sum((x, y, z), True), sum((v for v in (x, y, z)), True), sum([x, y, z], x > y)


def of_ints_among_floats(x: float, y: float, z: float) -> Any:
    parts = [1, x, 2**53 + 1, y, True, z, int(y > 0)]
    return sum(parts), sum(v for v in parts), sum(parts[1:]), sum(v for v in parts[1:])


def of_many(x: float, y: float, z: float) -> Any:
    parts = [x, y, z, y / 3, 0.1, z * 1e-7, -x]
    return sum(v for v in parts), sum(parts), sum(v * w for v in parts for w in parts)


def of_a_large_int(x: float, y: float, z: float) -> Any:
    parts = [x, 2**64, y, z]
    return sum(parts), sum(v for v in parts), sum([2**63, y, x, z]), sum((2**63, -(2**63), x, y, z))


def of_a_fraction(x: float, y: float, z: float) -> Any:
    if x - x != 0:
        return 0.0
    half = Fraction(1, 2)
    return sum([half, x, y, z]), sum(v for v in (x, y, half, z)), sum([x, y, z, half])


def in_turns(x: float, y: float, z: float) -> Any:
    parts = [x, 1, y, z] if x > 0 else [2, y, x]
    return sum(parts), sum(v for v in parts), sum(v if v > 0 else 1 for v in (x, y, z))


def of_what_grows(x: float, y: float, z: float) -> Any:
    parts = []
    for v in (x, y, z, 0.1):
        if v < 1:
            parts.append(v)
        elif v > 2:
            parts += [v, 3]
    return sum(parts), sum(v * 0.1 for v in parts)


def within_another(x: float, y: float, z: float) -> Any:
    return sum(sum(v * w for w in (x, 1.0, z)) for v in (y, z, 1.0) if v == v)


PROGRAMS = (
    *(of_a_generator, of_a_list, of_a_map, from_a_start, from_a_bool, of_ints_among_floats),
    *(of_many, of_a_large_int, of_a_fraction, in_turns, of_what_grows, within_another),
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_of_floats(program: Callable[..., Any]) -> None:
    held(program, *XS.unbind(1))


def of_ints(n: int, x: float) -> Any:
    parts = [n, 2**62, True, n * n]
    return sum(parts), sum(v for v in parts), sum([n, x, n, x]), sum(v for v in (n, n, x, 0.1))


def beyond_int64(n: int, x: float) -> Any:
    large = [2**62 + abs(n)] * 2 if n % 2 else [n, n]
    parts = [*large, -(2**62), -(2**62), x, 0.1, 0.2, -x]
    return sum(parts), sum(v for v in parts)


@pytest.mark.parametrize("program", [of_ints, beyond_int64], ids=lambda each: each.__name__)
def test_of_ints(program: Callable[..., Any]) -> None:
    held(program, NS, XS[:, 1])


def with_tensors(n: int, x: torch.Tensor) -> Any:
    a, b, c = (v.item() for v in x)
    return sum([a, b, c, x[0] * 0]), sum(v for v in (a, b, x[1], c)), sum(v for v in x), sum(x, n)


def with_lists(n: int, x: torch.Tensor) -> Any:
    parts = [[v.item()] for v in x] if n > 0 else [v.item() for v in x]
    start = [] if n > 0 else 0
    return str(sum(parts, start)), str(sum((p for p in parts), start))


def complex_ones(n: int, x: torch.Tensor) -> Any:
    a, b, c = (complex(v.item(), n) for v in x)
    return str(sum([a, b, c])), str(sum(v for v in (a, 1, b, 0.1, c))), str(sum((0.1, a, b, c)))


@pytest.mark.parametrize("program", [with_tensors, with_lists, complex_ones])
def test_of_what_is_no_number(program: Callable[..., Any]) -> None:
    held(program, NS, XS)


def divided(n: int, x: float) -> Any:
    return sum(x / (n + k) for k in range(3))


def refused(n: int, x: float) -> Any:
    return sum(v for v in (x, 0.1, x if n != 4 else None))


def of_strings(n: int, x: float) -> Any:
    return sum((str(n) for _ in range(2)), str(x))


def of_a_string(n: int, x: float) -> Any:
    return sum([str(n)], ""), n


def of_no_strings(n: int, x: float) -> Any:
    return sum((v for v in ()), b"") if n < 0 else sum((), bytearray())


def of_some_string(n: int, x: float) -> Any:
    start = "" if n > 2 else [n] if n > 1 else ()
    return str(sum((), start)) + str(sum((v for v in ()), start))


FAILING = (divided, refused, of_strings, of_a_string, of_no_strings, of_some_string)


@pytest.mark.parametrize("program", FAILING, ids=lambda each: each.__name__)
def test_failures_are_the_loops(program: Callable[..., Any]) -> None:
    for some in (slice(None), slice(1, 3), slice(8, None)):
        held(program, NS[some], XS[some, 1])


def of_branches(depth: int, x: float) -> float:
    if depth <= 0:
        return x * 0.1
    return sum(of_branches(depth - 1, v) for v in (x, BIG, -x, 0.3, -BIG))


def test_forked_calls_are_added_up() -> None:
    held(
        of_branches,
        torch.tensor([0, 1, 2, 1, 0, 2]),
        XS[:6, 1] + 0.1,
        ways=({"executor": "vmap"}, *WAYS),
    )
    if sums.COMPENSATED:
        with autobatch.counts() as found:
            autobatch.vmap(of_branches, scalars="python")(torch.tensor([2, 3]), XS[:2, 1])
        assert found.by_thread == 0


def test_floats_are_added_up_in_kernels() -> None:
    for program in (of_a_generator, of_a_list, from_a_start, of_many):
        for executor in ("vmap", "traced"):
            with autobatch.counts() as found:
                autobatch.vmap(program, executor=executor, scalars="python")(*XS.unbind(1))
            assert found.by_thread == 0, program.__name__


def test_machine_code_adds_them_up() -> None:
    pytest.importorskip("llvmlite")
    for program in (of_a_generator, of_a_list, from_a_start, of_many, within_another):
        with autobatch.counts() as found:
            autobatch.vmap(program, executor="compiled", scalars="python")(*XS.unbind(1))
        assert (found.launches, found.given_up) == (1, 0), program.__name__


RELEASES = {"3.12": (True, True, False, False), "3.14": (True, True, True, True)}
NAMES = ("COMPENSATED", "WHOLE_WHEN_LEFT", "COMPENSATED_INTS", "COMPENSATED_COMPLEX")
IN_KERNELS = (of_a_generator, of_a_list, of_many, from_a_start, of_ints_among_floats)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("executor", ["traced", "compiled"])
def test_sums_of_other_releases(
    release: str, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, flag in zip(NAMES, RELEASES[release], strict=True):
        monkeypatch.setattr(sums, name, flag)
    stands = {"sum": lambda items, start=0: added([*items], start), "signed": signed}
    for program in IN_KERNELS:
        alike = FunctionType(program.__code__, {**globals(), **stands})
        code = program.__code__.replace(co_name=f"{program.__name__} of {release}")
        fresh = FunctionType(code, globals(), program.__name__)
        rows = [alike(*row) for row in ROWS]
        found = autobatch.vmap(fresh, executor=executor, scalars="python", plain="never")
        columns = tree_leaves(found(*XS.unbind(1)))
        for column, expected in zip(
            columns, zip(*map(tree_leaves, rows), strict=True), strict=True
        ):
            assert [*map(repr, as_numbers(column))] == [*map(repr, expected)], program.__name__


def as_numbers(column: Any) -> list[Any]:
    return column.tolist() if isinstance(column, torch.Tensor) else column


def test_tensors_are_added_plainly() -> None:
    rows = XS.float()
    for program in (lambda x: sum(v for v in x), lambda x: sum([*x], 0.5)):
        assert_matches_loop(program, (rows,), configurations=WAYS, rtol=0.0, atol=0.0)
