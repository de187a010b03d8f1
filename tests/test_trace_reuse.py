"""Where no gradient flows, results go into the memory of operands that nobody reads any more."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.batching.trace import Input, Trace, record
from tests.test_trace_rewrites import operations, trace_of


def writes(trace: Trace) -> list[str]:
    """The operations of a replay that run in place."""
    return written(trace.source)


def written(source: str) -> list[str]:
    return re.findall(r"= (\w+[a-z]_)\(", source)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: ((x * 2).exp() + 1).tanh(), ["exp_", "add_", "tanh_"]),
        (lambda x: x.exp() * x, ["mul_"]),
        (lambda x: x * x.exp(), ["mul_"]),  # over the second operand
        (lambda x: x - x.exp(), []),  # the second operand of a difference is none
        (lambda x: (y := x.exp(), y.tanh()), []),  # it goes out
        (lambda x: (y := x.exp(), y[:2], y.tanh())[1:], []),  # a view of it goes out
        (lambda x: (y := x.exp(), y[1:] + y.tanh()[1:])[1], []),  # a view of it is read
        (lambda x: (y := x.exp(), y * y)[1], ["mul_"]),
        (lambda x: (y := (x[None] + x[:, None]).exp(), y * y.T)[1], ["exp_"]),
        (lambda x: x.exp() > 1.0, []),  # another dtype
        (lambda x: x.exp()[None] + torch.zeros(3, 1), []),  # another shape
        (lambda x: (x > 0).logical_not(), ["logical_not_"]),
        (lambda x: (x.double().exp() + 1).float(), ["exp_", "add_"]),
    ],
)
def test_what_is_dead_is_written_over(fn: Callable[[Tensor], Tensor], expected: list[str]) -> None:
    assert writes(trace_of(fn, 4)) == expected


def test_nothing_is_where_gradients_may_flow() -> None:
    def fn(k: int, x: Tensor) -> tuple[Tensor, ...]:
        return (((x * 2).exp() + 1).tanh(),)

    x = torch.randn(3, 4, requires_grad=True)
    assert writes(record(fn, [Input("column", x)])) == []
    with torch.no_grad():
        assert writes(record(fn, [Input("column", x)])) == ["exp_", "add_", "tanh_"]


def test_a_product_is_added_to_where_it_stands() -> None:
    weight, bias = torch.randn(4, 4), torch.randn(4)
    linear = torch.nn.functional.linear
    trace = trace_of(lambda x, w, b: x.exp() + linear(x, w, b), 4, uniform=(weight, bias))
    assert operations(trace) == ["exp", "permute", "add", "addmm"]
    assert writes(trace) == ["add_", "addmm_"]


def test_an_inner_product_is_one_kernel() -> None:
    v = (torch.tensor([0.5, -1.0, 2.0, 0.25]),)
    assert operations(trace_of(lambda x, v: (x * v).sum(), 4, uniform=v)) == ["mv"]
    assert operations(trace_of(lambda x, v: (v * x.tanh()).sum(), 4, uniform=v)) == ["tanh", "mv"]
    assert operations(trace_of(lambda x: (x * x).sum(), 4)) == ["mul", "sum"]
    kept = trace_of(lambda x, v: ((y := x * v).sum(), y), 4, uniform=v)
    assert operations(kept) == ["mul", "sum"]


def test_long_rows_are_looked_up_whole() -> None:
    table, labels = torch.randn(5, 32), torch.tensor([0, 4, -5, -1, 2])

    def looked_up(i: Tensor) -> Tensor:
        return table[i] * 2

    with autobatch.counts() as counts:
        found = autobatch.vmap(looked_up, trace_after=0)(labels)
    assert counts.traces == 1
    torch.testing.assert_close(found, table[labels] * 2)
    with pytest.raises(IndexError):
        autobatch.vmap(looked_up, trace_after=0)(torch.tensor([0, 5]))
    with pytest.raises(IndexError):
        autobatch.vmap(looked_up, trace_after=0)(torch.tensor([-6, 0]))


def straight(x: Tensor, y: Tensor) -> Tensor:
    return x.exp() * y + x.tanh() * y


@pytest.mark.parametrize("outer", ["jvp", "vmap", "grad"])
def test_within_transforms(outer: str) -> None:
    """What cannot be written over there runs untraced."""
    x, y = torch.randn(5, 4), torch.rand(5, 4)
    mapped = autobatch.vmap(straight, trace_after=0)
    with torch.no_grad():
        for _ in range(3):  # recorded without gradients, as the transform may find it
            mapped(x, y)
        found, wanted = (transformed(outer, f, x, y) for f in (mapped, straight))
    torch.testing.assert_close(found, wanted)


def transformed(outer: str, f: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    if outer == "jvp":
        tangent: Tensor = torch.func.jvp(lambda y: f(x, y), (y,), (y,))[1]
        return tangent
    if outer == "grad":
        return torch.func.grad(lambda y: f(x, y).sum())(y)
    return torch.vmap(lambda y: f(x, y))(torch.stack((y, 2 * y)))


def without_gradient(x: Tensor, w: Tensor) -> Tensor:
    y = x * 2
    with torch.no_grad():
        z = y + x
    return z * x


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (without_gradient, []),  # z has none, though y has one
        (lambda x, w: (x * 2) + x, ["add_"]),
        (lambda x, w: x * x + (x * 3 - x), ["sub_", "add_"]),
        (lambda x, w: x.exp() + x, []),  # the derivative of exp is its result
        (lambda x, w: (y := x * 2, y + y.sin())[1], []),  # the derivative of sin needs y
        (lambda x, w: (x * 2) * x, []),  # a product keeps its operands
        (lambda x, w: (x * 2)[None] + x, []),  # it is a view of another
        (lambda x, w: x * 2 + x @ w, ["addmm_"]),
    ],
)
def test_sums_are_written_over_what_no_derivative_needs(
    fn: Callable[[Tensor, Tensor], Tensor], expected: list[str]
) -> None:
    def batched(k: int, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        result: Tensor = torch.vmap(fn, (0, None))(x, w)
        return (result,)

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    trace = record(batched, [Input("column", x), Input("tensor", w)])
    calm, _, watchful = trace.source.partition("return")  # where all is finite, and where not
    assert written(calm) == expected
    if "is_watchful" in calm:
        assert written(watchful) + re.findall(r"product_over\(\w+, (\w+)", watchful) == expected
    found = torch.autograd.grad(trace(3, x, w)[0].square().sum(), (x, w), allow_unused=True)
    wanted = torch.autograd.grad(batched(3, x, w)[0].square().sum(), (x, w), allow_unused=True)
    torch.testing.assert_close(found, wanted)
