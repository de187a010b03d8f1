"""Rewrites of recorded graphs: each leaves the operations one would write by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autobatch.batching.trace import Input, Trace, record
from tests.oracle import assert_matches_loop


def operations(trace: Trace) -> list[str]:
    """The operators of a trace, without the namespace and the overload."""
    return re.findall(r"= \w+\.(\w+)\.", trace.graph_text())


def trace_of(
    fn: Callable[..., Any], *event: int, uniform: tuple[Tensor, ...] = (), grad: bool = False
) -> Trace:
    """Record a mapped function of one column and uniform tensors; its values must be right."""

    def run(k: int, x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        out = torch.vmap(lambda row: fn(row, *rest))(x)
        return out if isinstance(out, tuple) else (out,)

    x = torch.randn(5, *event, requires_grad=grad)
    trace = record(run, [Input("column", x), *[Input("tensor", w) for w in uniform]])
    for k in (1, 5):
        given = x[:k].clone()
        got = trace(k, given, *uniform)
        torch.testing.assert_close(got, run(k, x[:k], *uniform))
        torch.testing.assert_close(given, x[:k])
    return trace


W, U, B = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)


def test_what_no_result_needs_goes() -> None:
    assert operations(trace_of(lambda x: (x.exp() + 1, x * 2)[1], 4)) == ["mul"]


def test_a_write_that_no_result_reads_goes() -> None:
    def fn(x: Tensor) -> Tensor:
        unread = x * 2
        unread[0].add_(1.0)
        return x.exp()

    assert operations(trace_of(fn, 4)) == ["exp"]


def test_a_write_through_a_view_stays() -> None:
    def fn(x: Tensor) -> Tensor:
        made = x * 2
        made[0].add_(1.0)
        return made

    assert operations(trace_of(fn, 4)) == ["mul", "select", "add_"]


def test_in_place_on_a_copy_becomes_pure() -> None:
    assert operations(trace_of(lambda x: x.clone().mul_(x).tanh_() + 1.0, 4)) == [
        "mul", "tanh", "add",
    ]  # fmt: skip


def test_in_place_on_a_part_that_nobody_else_sees_becomes_pure_for_gradients() -> None:
    def fn(x: Tensor) -> Tensor:
        first, second = torch.unsafe_chunk(x * 2, 2)
        return first.sigmoid_() + second.tanh_()

    assert operations(trace_of(fn, 4)) == ["mul", "unsafe_split", "sigmoid_", "tanh_", "add"]
    assert operations(trace_of(fn, 4, grad=True)) == [
        "mul", "unsafe_split", "sigmoid", "tanh", "add",
    ]  # fmt: skip


def test_in_place_that_would_promote_stays() -> None:
    trace = trace_of(lambda x: x.clone().add_(x.double()), 4)
    assert operations(trace)[-1] == "add_"


@pytest.mark.parametrize("name", ["float", "contiguous", "to"])
def test_copies_that_change_nothing_go(name: str) -> None:
    fns: dict[str, Callable[[Tensor], Tensor]] = {
        "float": lambda x: x.float() + 1.0,
        "contiguous": lambda x: x.clone().contiguous() + 1.0,
        "to": lambda x: x.to(torch.float32, copy=True) + 1.0,
    }
    assert operations(trace_of(fns[name], 4)) == ["add"]


def test_a_copy_that_leaves_stays_a_copy() -> None:
    trace = trace_of(lambda x: (x.clone(), x.clone()[0]), 4)
    assert operations(trace) == ["clone", "clone", "select"]
    assert trace.aliases == (None, None)


def test_views_that_undo_each_other_go() -> None:
    assert operations(trace_of(lambda x: x.t().t().movedim(0, 1).transpose(0, 1) + 1.0, 4, 3)) == [
        "add"
    ]
    assert operations(trace_of(lambda x: x.view(2, 6).view(12).view(4, 3) + 1.0, 4, 3)) == ["add"]
    assert operations(trace_of(lambda x: x.expand(4, 3)[:, :].exp(), 4, 3)) == ["exp"]


def test_equal_views_are_made_once() -> None:
    assert operations(trace_of(lambda x: x[0] * x[0] + x[0], 4, 3)) == ["select", "mul", "add"]


def test_equal_operations_are_done_once() -> None:
    fn = lambda x: (x.exp() + 1.0) * (x.exp() + 1.0)  # noqa: E731
    assert operations(trace_of(fn, 3)) == ["exp", "add", "mul"]
    twice = trace_of(lambda x: (x.exp(), x.exp()), 3)
    assert operations(twice) == ["exp", "exp"]


def test_a_uniform_matrix_times_a_vector_keeps_threads_first() -> None:
    trace = trace_of(lambda x, w: torch.tanh(w @ x), 4, uniform=(W,))
    assert operations(trace) == ["permute", "mm", "permute", "tanh", "permute"]
    assert trace(5, torch.randn(5, 4), W)[0].is_contiguous()


def test_rows_of_a_product_are_reduced_along_memory() -> None:
    trace = trace_of(lambda x, w: torch.softmax(w @ x, 0).norm(), 4, uniform=(W,))
    assert operations(trace)[:2] == ["permute", "mm"]


def test_products_and_additions_become_addmm() -> None:
    trace = trace_of(lambda x, w, u, b: w @ x + u @ x + b, 4, uniform=(W, U, B))
    assert operations(trace) == ["permute", "permute", "addmm", "addmm"]
    trace = trace_of(lambda x, w, u, b: b + w @ x + u @ (x + 1.0), 4, uniform=(W, U, B))
    assert sorted(operations(trace)) == ["add", "addmm", "addmm", "permute", "permute"]
    assert trace.kernels == 3
    assert "addmm" in operations(trace_of(F.linear, 4, uniform=(W, B)))


def test_layers_over_several_rows_a_thread_are_one_product() -> None:
    trace = trace_of(lambda x, w, b: F.linear(x, w, b).relu(), 3, 4, uniform=(W, B))
    assert operations(trace) == ["permute", "view", "addmm", "view", "relu"]


def test_two_layers_added_are_two_products() -> None:
    trace = trace_of(lambda x, w, b: F.linear(x, w, b) + F.linear(x + 1.0, w, b), 4, uniform=(W, B))
    assert sorted(operations(trace)) == ["add", "add", "addmm", "addmm", "permute"]
    assert trace.kernels == 4


def test_a_product_that_is_read_twice_stays() -> None:
    def fn(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        product = w @ x
        return (product + b) * product

    assert operations(trace_of(fn, 4, uniform=(W, B))) == ["permute", "mm", "add", "mul"]


def test_a_product_of_integers_stays() -> None:
    w, b = torch.randint(5, (4, 4)), torch.randint(5, (4,))
    trace = trace_of(lambda x, w, b: w @ x.long() + b, 4, uniform=(w, b))
    assert "addmm" not in operations(trace)


def test_constants_are_made_once() -> None:
    trace = trace_of(lambda x: x + torch.zeros(4) + torch.eye(4)[1] * torch.tensor(2.0), 4)
    assert operations(trace) == ["add", "add"]


def test_a_constant_that_leaves_is_made_anew() -> None:
    trace = record(lambda k, x: (torch.zeros(3), x), [Input("column", torch.randn(2))])
    x = torch.randn(2)
    trace(2, x)[0].add_(1.0)
    assert trace(2, x)[0].sum() == 0


def test_number_operands_keep_values_and_dtypes() -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        n = (x * 10).long()
        return (
            x * 0.1, x.double() * 0.1, x.half() * 0.1, n * 3, n * 0.5, n // 3, n % 3, n == 2,
            x > 0.1, n > 0.5, x.int() + 2**20, torch.add(x, 2, alpha=3), x[0] * 0.1,
        )  # fmt: skip

    trace_of(fn, 4)


def test_work_without_gradients_is_left_alone() -> None:
    def fn(k: int, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            quiet = torch.vmap(lambda x: w @ x)(x).view(k, 4)
        return (quiet + x, quiet)

    x, w = torch.randn(3, 4, requires_grad=True), W.clone().requires_grad_()
    trace = record(fn, [Input("column", x), Input("tensor", w)])
    got = trace(3, x, w)
    torch.testing.assert_close(got, fn(3, x, w))
    assert [out.requires_grad for out in got] == [True, False]
    assert torch.autograd.grad(got[0].sum(), [x, w], allow_unused=True)[1] is None


def test_temporaries_are_freed_as_soon_as_they_are_dead() -> None:
    trace = trace_of(lambda x: torch.tanh(torch.exp(x) + 1.0), 4)
    assert "del v1" in trace.source
    assert trace.source.count("del") == 2


def unread_quotient(a, c):
    for _ in range(3):
        if a < -9:
            break
        a = a + (c // 2)
        unread = c // a.long()  # noqa: F841
    return a


def test_what_nobody_reads_still_fails():
    xs, cs = torch.arange(1.0, 8.0), torch.tensor([1, 2, 1, 3, 4, 5, 1])
    assert_matches_loop(unread_quotient, [xs, cs])
    xs[4] = -4.0
    assert_matches_loop(unread_quotient, [xs, cs])


ROWS = torch.randn(8, 3)


def looked_up(k: int, at: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    inside = at.clamp(-8, 7)
    return rows.index_select(0, inside % 8), inside != at


def named_too(k: int, at: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    inside = at.clamp(-8, 7)
    return inside, inside != at


def of_another(k: int, at: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    inside = at.clamp(-8, 7)
    return rows.index_select(0, inside % 8), inside != at * 2


@pytest.mark.parametrize("fn", [looked_up, named_too, of_another])
def test_where_masks_are_known_to_be_false_nothing_is_looked_at(fn: Callable[..., Any]) -> None:
    trace = record(fn, [Input("column", torch.arange(5)), Input("tensor", ROWS)])
    sure = trace.sure(1)
    assert "ne" not in operations(sure)
    assert ("clamp" in operations(sure)) is (fn is not looked_up)
    for at in (torch.arange(-8, 8), torch.tensor([3])):
        (got,), (expected, _) = sure(len(at), at, ROWS), fn(len(at), at, ROWS)
        assert torch.equal(got, expected)
        assert got.data_ptr() != at.data_ptr()
