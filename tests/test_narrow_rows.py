"""Rows of few elements: the same bits by other kernels, and only where no gradient flows."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import autobatch
from autobatch.batching.trace import Input, Trace, record
from autobatch.presence.wide_rows import FEWEST, FEWEST_MOVED, rows_at, where

MANY = 2 * FEWEST_MOVED
DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool)
Row = Callable[..., tuple[Tensor, ...]]


def traced(fn: Row, *inputs: Tensor) -> Trace:
    """A recording of a function of rows, held to ``torch.vmap`` at counts of all sizes."""

    def run(k: int, *columns: Tensor) -> tuple[Tensor, ...]:
        return torch.vmap(fn)(*columns)

    trace = record(run, [Input("column", data) for data in inputs])
    for k in (1, 7, FEWEST, MANY):
        rows = [data[:k].clone() for data in inputs]
        for got, meant in zip(trace(k, *rows), run(k, *rows), strict=True):
            assert got.dtype == meant.dtype and got.stride() == meant.stride()
            assert torch.equal(got.nan_to_num(7.0), meant.nan_to_num(7.0))
            assert torch.equal(got.isnan(), meant.isnan())
    return trace


def tables(*widths: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Columns ``[MANY, width]``, or ``[MANY]`` where that is 0, with some that are not finite."""
    made = []
    for place, width in enumerate(widths):
        draw = torch.Generator().manual_seed(place)
        data = torch.randn(MANY, *([width] if width else []), generator=draw) * 100
        if dtype.is_floating_point:
            data[::5], data[1::5], data[2::5] = float("nan"), float("inf"), -0.0
        made.append(data.to(dtype))
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [2, 3, 4, 12])
def test_elements_that_two_operations_meet_are_spread_once(width: int, dtype: torch.dtype) -> None:
    def fn(s: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (s * x + y) * s, s - y

    trace = traced(fn, *tables(0, width, width, dtype=dtype))
    assert trace.source.count("spread(") == 1
    assert trace.kernels == 5


def test_what_one_operation_meets_is_not_spread() -> None:
    trace = traced(lambda s, x: (s * x,), *tables(0, 2))
    assert "spread(" not in trace.source and trace.kernels == 1


def test_long_rows_are_left_alone() -> None:
    trace = traced(lambda s, x: (s * x, s + x), *tables(0, 13))
    assert "spread(" not in trace.source


def test_what_is_spread_may_be_written_over_where_it_was_made() -> None:
    """Where rows are few, what is spread is the very tensor that it was made of."""

    def fn(s: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        made = s.exp()
        wide = made * x
        return wide + made, made * s

    assert "spread(" in traced(fn, *tables(0, 2)).source


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize(("width", "made"), [(2, "imum"), (3, "amax|amin")])
def test_the_largest_of_a_row_without_its_place(name: str, width: int, made: str) -> None:
    trace = traced(lambda x: (getattr(x, name)(0).values,), *tables(width))
    assert re.search(made, trace.source) and trace.kernels == 1


def test_the_place_of_the_largest_is_still_given() -> None:
    trace = traced(lambda x: tuple(x.max(0)), *tables(2))
    assert "maximum" not in trace.source


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [2, 4, 8])
def test_rows_chosen_by_a_condition(width: int, dtype: torch.dtype) -> None:
    condition, one, other = tables(0, width, width, dtype=dtype)

    def fn(c: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (torch.where(c, x, y),)

    trace = traced(fn, condition > 0, one, other)
    wide = width * dtype.itemsize in (8, 16)
    assert (re.search(r"where_?\d*\(", trace.source) is not None) and trace.kernels == 1
    assert any(each is where for each in trace.replay.__globals__.values()) is wide


def test_gradients_flow_through_torchs_own_kernels() -> None:
    s, x = (data.nan_to_num(1.0, 1.0).requires_grad_() for data in tables(0, 2))

    def run(k: int, s: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        return (torch.where(s[:, None] > 0, s[:, None] * x, s[:, None] + x).max(1)[0],)

    trace = record(run, [Input("column", s), Input("column", x)])
    assert "spread(" not in trace.source and "maximum" not in trace.source
    (out,) = trace(MANY, s, x)
    (meant,) = run(MANY, s, x)
    slopes = (torch.autograd.grad(each.sum(), (s, x)) for each in (out, meant))
    for got, expected in zip(*slopes, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("offset", [0, 1, 2])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 8])
def test_rows_that_move(width: int, dtype: torch.dtype, offset: int) -> None:
    data = (torch.arange(MANY * width + 2) % 251).to(dtype)[offset : offset + MANY * width]
    data = data.view(MANY, width)
    index = torch.randint(0, MANY, (FEWEST_MOVED,), generator=torch.Generator().manual_seed(0))
    found = rows_at(data, index)
    assert torch.equal(found, data.index_select(0, index)) and found.is_contiguous()


def test_rows_of_lazy_and_of_dual_tensors() -> None:
    index = torch.arange(FEWEST_MOVED)
    lazy = torch.randn(MANY, 2, dtype=torch.complex64).conj()
    for data in (lazy, lazy.imag.contiguous(), torch.view_as_real(lazy.resolve_conj()).neg()):
        assert torch.equal(rows_at(data, index), data.index_select(0, index))
    with forward_ad.dual_level():
        data, tangent = torch.randn(MANY, 2), torch.randn(MANY, 2)
        dual = forward_ad.make_dual(data, tangent)
        condition = torch.randn(MANY, 1) > 0
        moved = forward_ad.unpack_dual(rows_at(dual, index)).tangent
        chosen = forward_ad.unpack_dual(where(condition, dual, -dual)).tangent
        assert torch.equal(moved, tangent[: len(index)])
        assert torch.equal(chosen, torch.where(condition, tangent, -tangent))


def test_threads_part_with_rows_of_two() -> None:
    def walk(x: Tensor, n: Tensor) -> Tensor:
        while n > 0:
            x = torch.where(x[0] > x[1], x * n, x + n) / n
            n = n - x.abs().max().clamp(1.0, 2.0)
        return x

    x, n = torch.randn(MANY, 2), torch.rand(MANY) * 5
    run = autobatch.function(walk, trace_after=0)
    found = run.batch(x, n)
    few = torch.arange(0, MANY, MANY // 40)
    assert torch.equal(found[few], torch.stack([walk(x[i], n[i]) for i in few.tolist()]))
