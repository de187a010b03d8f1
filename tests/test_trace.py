"""Traces: a replay computes what the recorded function does, for any thread count and number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from autobatch.batching.trace import Input, Trace, Untraceable, record
from tests.custom_gradient import Doubled

COUNTS = (1, 2, 7, 33)


def columns(*tensors: Tensor) -> list[Input]:
    return [Input("column", tensor) for tensor in tensors]


def mapped(one: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
    """The function of columns that maps ``one`` over their rows."""

    def run(k: int, *values: Tensor) -> tuple[Tensor, ...]:
        out = torch.vmap(one)(*values)
        return out if isinstance(out, tuple) else (out,)

    return run


def check(
    fn: Callable[..., Sequence[Tensor]],
    make: Callable[[int], Sequence[Tensor]],
    uniform: Sequence[Input] = (),
) -> Trace:
    """Record ``fn`` once and hold its replay to it at several thread counts."""
    rest = [each.value for each in uniform]
    trace = record(fn, [*columns(*make(5)), *uniform])
    for k in COUNTS:
        values = make(k)
        got, want = trace(k, *values, *rest), fn(k, *values, *rest)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, equal_nan=True)
    return trace


def rows(*event: int) -> Callable[[int], list[Tensor]]:
    return lambda k: [torch.randn(k, *event)]


WEIGHT = torch.randn(4, 4)
OPERATIONS: dict[str, Callable[[Tensor], Any]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "linear": lambda x: F.linear(x, x.T @ x, x[0]),
    "index": lambda x: x[torch.stack([x[0, 0] > 0, x[1, 1] > 0]).long()],
    "cumsum": lambda x: x.cumsum(0),
    "where": lambda x: torch.where(x > 0, x, -1.0),
    "norm": lambda x: x.norm(dim=0) + torch.linalg.vector_norm(x, 3),
    "logsumexp": lambda x: x.logsumexp(0),
    "max": lambda x: x.max(dim=1),
    "attention": lambda x: _plain_attention(x[None]),
    "conv": lambda x: F.conv1d(x[None, None].flatten(2), x[:1, :3][None]),
    "split": lambda x: torch.cat(x.split(2)[::-1]) + torch.stack(x.unbind(0)),
    "reshape": lambda x: x.T.reshape(2, 8).unsqueeze(0).expand(3, 2, 8).flatten(),
    "factory": lambda x: x + torch.zeros(4, 4) + torch.arange(4) + torch.eye(4),
    "in place": lambda x: x.clone().mul_(2.0).add_(x),
    "in place, viewed": lambda x: _write_to_view(x),
    "einsum": lambda x: torch.einsum("ij,jk,kl->il", x, x, x),
    "sort": lambda x: x.sort(dim=0),
    "one hot": lambda x: F.one_hot((x[0] > 0).long(), 2),
    "literals": lambda x: x * torch.tensor(2.5) + torch.tensor([1.0, 2.0, 3.0, 4.0]),
    "inf": lambda x: x.masked_fill(x > 0, -math.inf).clamp(min=-1.0),
    "dtypes": lambda x: (x.double() * 2 + x.half().float(), x.long() // 2, x.bool() | (x > 0)),
    "number first": lambda x: 2.0 - 1.0 / (1.5 + x.abs()) ** 2,
    "inner grad": lambda x: torch.func.grad(lambda y: (y.tanh() @ y).sum())(x),
    "scalars": lambda x: (x.sum() * 2, x[0, 0] / 3, (x[0, 0] > 0) & (x[1, 1] > 0)),
}


def _plain_attention(x: Tensor) -> Tensor:
    """By torch's own decomposition: its kernel for the CPU has no rule of vmap's."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(x, x, x)


def _added_at(x: Tensor, places: Tensor) -> Tensor:
    return torch.zeros(5).index_add(0, places, x)


def _write_to_view(x: Tensor) -> Tensor:
    y = x * 2
    y[:2].add_(1.0)
    y.t()[0] = 5.0
    return y


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OPERATIONS)
def test_replay_computes_what_the_function_does(name: str) -> None:
    check(mapped(OPERATIONS[name]), rows(4, 4))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OPERATIONS)
def test_gradients_flow_through_a_replay(name: str) -> None:
    fn = mapped(OPERATIONS[name])
    x = torch.randn(3, 4, 4, requires_grad=True)
    trace = record(fn, columns(x))

    def gradient(outputs: Sequence[Tensor]) -> Tensor:
        parts = [out.cos().sum() for out in outputs if out.requires_grad]
        return torch.autograd.grad(sum(parts), x)[0] if parts else x  # type: ignore[arg-type]

    got, want = trace(3, x), fn(3, x)
    assert [out.requires_grad for out in got] == [out.requires_grad for out in want]
    torch.testing.assert_close(gradient(got), gradient(want))


def test_uniform_tensors_stay_whole() -> None:
    def cell(k: int, x: Tensor, h: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        def one(x: Tensor, h: Tensor) -> Tensor:
            i, f, g, o = (w @ torch.cat([x, h]) + b).chunk(4)
            return torch.sigmoid(o) * torch.tanh(torch.sigmoid(f) * h + torch.sigmoid(i) * g)

        return (torch.vmap(one)(x, h),)

    uniform = [Input("tensor", torch.randn(24, 11)), Input("tensor", torch.randn(24))]
    trace = check(cell, lambda k: [torch.randn(k, 5), torch.randn(k, 6)], uniform)
    assert "aten.bmm" not in trace.graph_text()


def test_gradients_reach_uniform_tensors() -> None:
    weight = torch.randn(6, 4, requires_grad=True)

    def fn(k: int, i: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        return (torch.vmap(lambda i: F.embedding(i, weight).tanh() @ weight[0])(i),)

    i = torch.tensor([1, 5, 5])
    trace = record(fn, [Input("column", i), Input("tensor", weight)])
    got = torch.autograd.grad(trace(3, i, weight)[0].sum(), weight)
    want = torch.autograd.grad(fn(3, i, weight)[0].sum(), weight)
    torch.testing.assert_close(got, want)


def test_a_uniform_integer_is_a_symbol() -> None:
    def fn(k: int, x: Tensor, t: int, u: int) -> tuple[Tensor, ...]:
        return (torch.vmap(lambda x: x[t] + x[u] * t)(x),)

    for t, u in ((0, 0), (3, 3), (5, 5), (5, 2)):
        x = torch.randn(3, 6, 2)
        trace = record(fn, [Input("column", x), Input("int", t), Input("int", u)])
        for now in ((0, 1), (4, 4), (5, 0)):
            torch.testing.assert_close(trace(3, x, *now), fn(3, x, *now))


def test_a_uniform_float_is_a_symbol() -> None:
    def fn(k: int, x: Tensor, a: float, b: float) -> tuple[Tensor, ...]:
        return (torch.vmap(lambda x: (x * a).clamp(min=b) + a)(x),)

    x = torch.randn(3, 6)
    trace = record(fn, [Input("column", x), Input("float", 0.5), Input("float", 0.5)])
    for now in ((0.5, 0.25), (-1.0, 2.0), (math.inf, 0.0)):
        torch.testing.assert_close(trace(3, x, *now), fn(3, x, *now), equal_nan=True)


@hypothesis.given(
    st.lists(
        st.floats(width=64)
        | st.sampled_from([k / 4 for k in range(-40, 41)])
        | st.sampled_from([1e17, -1e300, 1.7e308, 5e-324, -0.0, math.inf, math.nan]),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 3),
)
def test_every_uniform_float_is_a_symbol_of_its_own(floats: list[float], before: int) -> None:
    """None is taken for a constant or for another one, whatever the values recorded with."""

    def fn(k: int, *values: Any) -> tuple[Tensor, ...]:
        x = values[0]
        return tuple(x * number for number in values[1 + before :])

    x = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    ints = range(1, 1 + before)
    given_ints = [Input("int", n) for n in ints]
    given_floats = [Input("float", each) for each in floats]
    trace = record(fn, [Input("column", x), *given_ints, *given_floats])
    now = [float(place) + 0.5 for place in range(len(floats))]
    for got, number in zip(trace(2, x, *ints, *now), now, strict=True):
        assert got.tolist() == (x * number).tolist()


def test_a_float_that_must_stay_small() -> None:
    def fn(k: int, x: Tensor, p: float) -> tuple[Tensor, ...]:
        if not 0 <= p <= 1:  # as torch.quantile asks, which torch 2.11 has no fake tensors for
            raise ValueError(p)
        return (torch.lerp(x, x.sin(), p),)

    x = torch.randn(3, 6)
    trace = record(fn, [Input("column", x), Input("float", 0.9)])
    torch.testing.assert_close(trace(3, x, 0.1), fn(3, x, 0.1))


def test_slices_up_to_a_uniform_integer() -> None:
    def fn(k: int, x: Tensor, t: int) -> tuple[Tensor, ...]:
        return (x[:, :t].sum(1), x[:, t : t + 1] * 2)

    x = torch.randn(3, 6)
    trace = record(fn, [Input("column", x), Input("int", 2)])
    torch.testing.assert_close(trace(3, x, 5), fn(3, x, 5))


def test_the_thread_count_in_sizes() -> None:
    def fn(k: int, x: Tensor) -> tuple[Tensor, ...]:
        return x.new_zeros(k, 2) + 1, x.reshape(3 * k), torch.arange(k) + k, torch.tensor(k) * x

    trace = check(fn, rows(3))
    assert "3*k" in trace.graph_text()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_dtypes(dtype: torch.dtype) -> None:
    def make(k: int) -> list[Tensor]:
        return [torch.randint(0, 9, (k, 3)).to(dtype)]

    check(mapped(lambda x: (x + x, x * 2, x * 0.1, x == 1, x.sum(), x.float())), make)


def test_no_rows() -> None:
    fn = mapped(lambda x: x.reshape(2, 2).sum(0) + x.view(-1)[:2])
    assert record(fn, columns(torch.randn(5, 4)))(0, torch.randn(0, 4))[0].shape == (0, 2)


def test_columns_that_are_not_dense() -> None:
    fn = mapped(lambda x: (x.reshape(6), x.contiguous().view(3, 2), x.t() @ x))
    x = torch.randn(5, 2, 3)
    for made in (x, x[:, :, [2, 1, 0]], torch.randn(5, 3, 2).mT, torch.randn(10, 4, 3)[::2, :2]):
        trace = record(fn, columns(made))
        for given in (made, x, torch.randn(5, 9, 3)[:, ::5], x[:1].expand(5, 2, 3)):
            torch.testing.assert_close(trace(5, given), fn(5, given))


def test_results_that_are_inputs_or_share_their_storage() -> None:
    def fn(k: int, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        made = x + y
        return x, y[:, 1:], x.clone(), made, made.t(), y.reshape(k, 3, 1)

    x, y = torch.randn(4, 3), torch.randn(4, 3)
    trace = record(fn, columns(x, y))
    assert trace.aliases == (0, 1, None, None, None, 1)
    assert trace.storages[3] == trace.storages[4] != trace.storages[2]
    got = trace(4, x, y)
    assert got[0] is x
    owners = [x, y, None, None, None, y]
    for out, owner in zip(got, owners, strict=True):
        for tensor in (x, y):
            same = out.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
            assert same == (tensor is owner)


def test_kernels_are_counted_without_views() -> None:
    trace = record(mapped(lambda x: (x.t()[1:].exp() + 1).sum()), columns(torch.randn(4, 3, 3)))
    assert trace.kernels == trace.launches == 3


def test_detached_values_stay_detached() -> None:
    def fn(k: int, x: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            quiet = (x * 2).sum(1)
        return (x * 3 + x.detach(), quiet, x.sum(1) * quiet)

    x = torch.randn(3, 2, requires_grad=True)
    got, want = record(fn, columns(x))(3, x), fn(3, x)
    assert [out.requires_grad for out in got] == [True, False, True]
    for a, b in zip(got[::2], want[::2], strict=True):
        torch.testing.assert_close(
            torch.autograd.grad(a.sum(), x)[0], torch.autograd.grad(b.sum(), x)[0]
        )


CLOSED_OVER = torch.randn(3)
PARAMETER = torch.nn.Parameter(torch.randn(3))
REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "host read": (lambda k, x: (x * x.sum().item(),), "DataDependent"),
    "branch": (lambda k, x: (x if x.sum() > 0 else -x,), "DataDependent"),
    "dynamic shape": (lambda k, x: (x[x > 0],), "DynamicOutputShape"),
    "closure": (lambda k, x: (x + CLOSED_OVER,), "not among the inputs"),
    "closure that requires grad": (lambda k, x: (x * PARAMETER,), "not among the inputs"),
    "closed-over result": (lambda k, x: (CLOSED_OVER,), "not among the inputs"),
    "random": (lambda k, x: (x + torch.rand(3),), "random"),
    "dropout": (lambda k, x: (F.dropout(x),), "random"),
    "write to an input": (lambda k, x: (x.add_(1),), "in place"),
    "write to an input's view": (lambda k, x: (x[:, 0].mul_(2),), "in place"),
    "loop over threads": (lambda k, x: (sum(x.unbind(0)),), "thread count"),
    "count squared": (lambda k, x: (x * (k * k + 1),), "thread count"),
    "nested": (lambda k, x: record(lambda k: (), [])(k) or (x,), "inside a recording"),
    "user error": (lambda k, x: (x @ x,), "RuntimeError"),
    "custom gradient": (lambda k, x: (Doubled.apply(x),), "gradient"),
    "custom gradient, inside": (lambda k, x: ((Doubled.apply(x) + x).sum(1),), "gradient"),
    "custom gradient, mapped": (lambda k, x: (torch.vmap(Doubled.apply)(x) * x,), "gradient"),
    "torch's loop": (lambda k, x: (torch.vmap(_added_at)(x, x.long()),), "one after the other"),
    "not a tensor": (lambda k, x: (3,), "not a tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_traced_says_why(name: str) -> None:
    fn, reason = REFUSED[name]
    x = torch.randn(5, 3, requires_grad=True)
    if "write" in name:
        x = x.detach()
    with pytest.raises(Untraceable) as caught:
        record(fn, columns(x))
    assert re.search(reason, caught.value.reason), caught.value.reason


def test_a_run_that_is_too_long_is_refused() -> None:
    def fn(k: int, x: Tensor) -> tuple[Tensor, ...]:
        parts = x.unbind(0)
        for _ in range(20_000):
            x = x + parts[0]
        return (x,)

    with pytest.raises(Untraceable, match="operators run"):
        record(fn, columns(torch.randn(5, 3, requires_grad=True)))


def test_a_number_that_decides_what_runs_is_refused() -> None:
    def fn(k: int, x: Tensor, n: int) -> tuple[Tensor, ...]:
        for _ in range(n):
            x = x * 2
        return (x,)

    with pytest.raises(Untraceable, match="number"):
        record(fn, [*columns(torch.randn(2)), Input("int", 3)])


def test_random_numbers_where_allowed() -> None:
    def fn(k: int, x: Tensor) -> tuple[Tensor, ...]:
        return (x + torch.rand(k, 3),)

    x = torch.zeros(4, 3)
    trace = record(fn, columns(x), allow_random=True)
    torch.manual_seed(1)
    got = trace(4, x)
    torch.manual_seed(1)
    torch.testing.assert_close(got, fn(4, x))
    assert not torch.equal(trace(4, x)[0], trace(4, x)[0])


def test_event_sizes_that_are_the_usual_primes() -> None:
    check(mapped(lambda x: x.reshape(211, 1).sum(1) * 223), rows(211))
