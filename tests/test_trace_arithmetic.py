"""Arithmetic rewrites of recordings: exact ones bit by bit, others only where asked for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.batching.trace import Input, Trace, record
from autobatch.errors import OptionError

SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.1, -3.7, 1e-44, 3e38, 2.5]
FLOATS = torch.tensor([[a, b] for a in SPECIAL for b in (1.0, -0.0, math.nan)])
INTS = torch.tensor([[0, 1], [-1, 5], [2**62, -(2**63)], [2**31, 7]])
BOOLS = torch.tensor([[True, False], [False, False]])

Row = Callable[[Tensor], Tensor]


def operations(trace: Trace) -> list[str]:
    return re.findall(r"= \w+\.(\w+)\.", trace.graph_text())


def recorded(fn: Row, rows: Tensor, fast: bool) -> Trace:
    """The recording of something that stays within it, so that it need not be made anew."""

    def run(k: int, x: Tensor) -> tuple[Tensor, ...]:
        return (torch.vmap(lambda row: fn(row).clone().cos())(x),)

    return record(run, [Input("column", rows)], fast_math=fast)


def plain(fn: Row, rows: Tensor) -> Tensor:
    return torch.stack([fn(row).cos() for row in rows])


def assert_same_bits(one: Tensor, other: Tensor) -> None:
    assert one.dtype == other.dtype and one.shape == other.shape
    assert torch.equal(one.isnan(), other.isnan())
    assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))
    assert torch.equal(one.signbit() & ~one.isnan(), other.signbit() & ~other.isnan())


EXACT: dict[str, tuple[Row, list[str]]] = {
    "x * 1": (lambda x: x * 1, []),
    "x * 1.0": (lambda x: x * 1.0, []),
    "x / 1": (lambda x: x / 1, []),
    "x - 0": (lambda x: x - 0, []),
    "x + -0.0": (lambda x: x + -0.0, []),
    "x ** 1": (lambda x: x**1, []),
    "--x": (lambda x: x.neg().neg(), []),
    "abs abs": (lambda x: x.abs().abs(), ["abs"]),
    "relu relu": (lambda x: x.relu().relu(), ["relu"]),
    "floor floor": (lambda x: x.floor().floor(), ["floor"]),
    "abs neg": (lambda x: (-x).abs(), ["abs"]),
    "maximum": (lambda x: torch.maximum(x, x), []),
    "where": (lambda x: torch.where(x > 0, x, x), []),
    "x / 4": (lambda x: x / 4, ["mul"]),
    "x * ones": (lambda x: x * torch.ones_like(x), []),
    "ones * c * x": (lambda x: torch.ones_like(x) * -3.7 * 0.3 * x, ["mul"]),
}
NEAR: dict[str, tuple[Row, list[str], list[str]]] = {
    "x + 0": (lambda x: x + 0, ["add"], []),
    "1 / (1 / x)": (lambda x: x.reciprocal().reciprocal(), ["reciprocal", "reciprocal"], []),
    "log exp": (lambda x: x.exp().log(), ["exp", "log"], []),
    "x * 0": (lambda x: x * 0, ["mul"], ["zeros_like"]),
    "x - x": (lambda x: x - x, ["sub"], ["zeros_like"]),
    "x * 3 * 5": (lambda x: x * 3.0 * 5.0, ["mul", "mul"], ["mul"]),
    "x + 3 + 5": (lambda x: x + 3.0 + 5.0, ["add", "add"], ["add"]),
    "x / 3": (lambda x: x / 3, ["div"], ["mul"]),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_ones_are_exact(name: str):
    fn, left = EXACT[name]
    with torch.no_grad():
        trace = recorded(fn, FLOATS, fast=False)
    assert operations(trace) == [*left, "cos"]
    assert_same_bits(trace(len(FLOATS), FLOATS)[0], plain(fn, FLOATS))


@pytest.mark.parametrize("name", NEAR)
def test_others_are_done_only_on_request(name: str):
    fn, plainly, fast = NEAR[name]
    with torch.no_grad():
        assert operations(recorded(fn, FLOATS, fast=False)) == [*plainly, "cos"]
        trace = recorded(fn, FLOATS, fast=True)
    assert operations(trace) == [*fast, "cos"]
    rows = torch.tensor([[0.5, 1.5], [2.0, 0.25]])
    torch.testing.assert_close(trace(2, rows)[0], plain(fn, rows))


INTEGERS: dict[str, tuple[Row, list[str]]] = {
    "x * 1": (lambda x: x * 1, []),
    "x + 0": (lambda x: x + 0, []),
    "~~x": (lambda x: ~(~x), []),
    "x & x": (lambda x: x & x, []),
    "x | x": (lambda x: x | x, []),
    "x & 0": (lambda x: x & 0, ["zeros_like"]),
    "x - x": (lambda x: x - x, ["zeros_like"]),
    "x * 3 * 5": (lambda x: x * 3 * 5, ["mul"]),
    "x + 3 - 0 + 5": (lambda x: x + 3 - 0 + 5, ["add"]),
    "x // 8": (lambda x: x // 8, ["bitwise_right_shift"]),
    "x % 8": (lambda x: x % 8, ["bitwise_and"]),
    "x // 6": (lambda x: x // 6, ["floor_divide"]),
    "x % -8": (lambda x: x % -8, ["remainder"]),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_on_integers_they_are_exact(name: str):
    fn, left = INTEGERS[name]

    def run(k: int, x: Tensor) -> tuple[Tensor, ...]:
        return (torch.vmap(lambda row: fn(row) ^ 5)(x),)

    with torch.no_grad():
        trace = record(run, [Input("column", INTS)])
    assert operations(trace) == [*left, "bitwise_xor"]
    assert torch.equal(trace(len(INTS), INTS)[0], torch.stack([fn(row) ^ 5 for row in INTS]))


@pytest.mark.parametrize(
    "fn, rows",
    [
        (lambda x: x * 1, BOOLS),
        (lambda x: x / 1, INTS),
        (lambda x: x + 0.0, INTS),
        (lambda x: torch.where(x > 0, x[0], x[0]), FLOATS),
        (lambda x: x.sum() * 3.0 * torch.ones(2), FLOATS),
        (lambda x: x.to(torch.float64) * 1, FLOATS),
        (lambda x: x * 300 * 300, INTS.to(torch.int16)),
        (lambda x: x // 64 + x % 64, INTS.to(torch.int8)),
        (lambda x: x // 128 + x % 128, INTS.to(torch.uint8)),
    ],
)
def test_dtypes_and_shapes_stay(fn: Row, rows: Tensor):
    with torch.no_grad():
        trace = recorded(fn, rows, fast=True)
    got, expected = trace(len(rows), rows)[0], plain(fn, rows)
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, equal_nan=True)


def test_a_write_in_between_is_seen():
    def fn(x: Tensor) -> Tensor:
        made = x.neg()
        made[0].add_(1.0)
        again = made.neg()
        shown = x.relu()
        shown[0].sub_(5.0)
        return again + shown.relu()

    with torch.no_grad():
        trace = recorded(fn, FLOATS, fast=False)
    assert_same_bits(trace(len(FLOATS), FLOATS)[0], plain(fn, FLOATS))
    assert operations(trace).count("relu") == 2


def test_what_leaves_is_a_tensor_of_its_own():
    def run(k: int, x: Tensor) -> tuple[Tensor, ...]:
        return (x * 1, x.neg().neg())

    trace = record(run, [Input("column", FLOATS)])
    one, other = trace(len(FLOATS), FLOATS)
    assert len({one.data_ptr(), other.data_ptr(), FLOATS.data_ptr()}) == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", [*EXACT, *NEAR])
def test_gradients_stay(name: str, fast: bool):
    fn: Row = {**EXACT, **NEAR}[name][0]  # type: ignore[assignment]
    rows = torch.tensor([[0.5, 1.5], [2.0, 0.25]], requires_grad=True)
    trace = recorded(fn, rows, fast)
    (got,) = torch.autograd.grad(trace(2, rows)[0].sum(), rows)
    (expected,) = torch.autograd.grad(plain(fn, rows).sum(), rows)
    torch.testing.assert_close(got, expected)


# As an option.


def shifted(x):
    y = x
    while y < 4:
        y = (y + 0) * 3.0 * 1.5 + 1
    return y


def test_the_option():
    """Recordings under it are others, whichever come first."""
    xs = torch.tensor([0.1, 1.0, 5.0])
    expected = torch.stack([shifted(x) for x in xs])
    for fast in (True, False, True):
        mapped = autobatch.vmap(shifted, fast_math=fast, trace_after=0)
        for _ in range(2):
            with autobatch.counts() as counts:
                got = mapped(xs)
        torch.testing.assert_close(got, expected)
        assert counts.launches == (7 if fast else 11)


@pytest.mark.parametrize(
    "options", [{"save": "recompute"}, {"executor": "vmap"}, {"chunk_size": 2}]
)
def test_the_option_among_others(options: dict[str, Any]):
    xs = torch.tensor([0.1, 1.0, 5.0], requires_grad=True)
    got = autobatch.vmap(shifted, fast_math=True, trace_after=0, **options)(xs)
    torch.testing.assert_close(got, torch.stack([shifted(x) for x in xs]))


def test_what_is_no_truth():
    with pytest.raises(OptionError, match="fast_math is 1; it must be True or False"):
        autobatch.vmap(shifted, fast_math=1)
