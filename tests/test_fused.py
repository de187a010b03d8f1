"""Fused kernels: stretches that Inductor compiles give what the recordings and the loop give."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autobatch
from autobatch.batching.fused import Hot, Prices, hot, paying, reason_against
from autobatch.batching.fused.elements import Whole
from autobatch.batching.fused.inductor import by_element, in_whole, missing
from autobatch.batching.fused.pure import Impure, without_writes
from autobatch.batching.fused.regions import parts_of, without_unread
from autobatch.batching.stretches.executors import COMPILING, CompiledExecutor
from autobatch.batching.trace import Input, record
from programs import fixed_point, lstm, runge_kutta
from tests.oracle import assert_matches_loop

needs_compiler = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def mapped(one: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
    def run(k: int, *values: Tensor) -> tuple[Tensor, ...]:
        out = torch.vmap(one)(*values)
        return out if isinstance(out, tuple) else (out,)

    return run


def made(one: Callable[..., Any], *tensors: Tensor) -> Hot:
    """The replay of a function of one row that is compiled the first time it runs."""
    found = CompiledExecutor(0).compile(mapped(one), [Input("column", each) for each in tensors])
    assert type(found) is Hot
    found(len(tensors[0]), *tensors)
    return found


def held(found: Hot, *tensors: Tensor) -> None:
    """Hold a compiled replay to its recording."""
    k = len(tensors[0])
    for got, want in zip(found(k, *tensors), found.trace.replay(k, *tensors), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)
        assert (got.dtype, got.stride()) == (want.dtype, want.stride())


@needs_compiler
def test_a_solver_is_one_kernel_a_round_for_any_number_of_threads() -> None:
    executor = CompiledExecutor(0)
    given = runge_kutta.example(64)
    solve = autobatch.vmap(given.function, executor=executor)
    with autobatch.counts() as first:
        solve(*given.args)
        solve(*given.args)
    assert first.compilations + first.reloaded == 3  # before the loop, a round, several rounds
    assert first.compile_seconds > 0
    for size in (1, 2, 7, 64, 200):
        some = runge_kutta.example(size, seed=size)
        assert_matches_loop(
            runge_kutta.runge_kutta,
            some.args,
            configurations=({"executor": executor},),
            rtol=1e-3,
            atol=1e-5,
        )
    with autobatch.counts() as later:
        solve(*given.args)
    assert (later.compilations, later.reloaded) == (0, 0)
    assert later.launches <= 2 * later.block_executions


def many(x: Tensor, y: Tensor, flag: Tensor) -> tuple[Tensor, ...]:
    chosen = torch.where(flag & (x < y), x.exp(), y.sigmoid().log1p())
    norm = torch.linalg.vector_norm(chosen, dim=0, keepdim=True)
    top = chosen.amax(0) - chosen.max(0).values + chosen.mean(0) - chosen.sum(0)
    odd = F.softplus(x.tanh() / norm).clamp(-0.5, 2.0) ** 1.5
    whole = torch.stack((chosen[1:], odd[:-1]), 1).transpose(0, 1)
    return whole.contiguous(), top, ~flag, (odd > 0.7).any(), x.isnan() | (norm == 1.0)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernels_give_what_recordings_give(dtype: torch.dtype) -> None:
    def rows(k: int) -> list[Tensor]:
        return [*torch.randn(2, k, 5, dtype=dtype), torch.rand(k, 5) < 0.5]

    found = made(many, *rows(9))
    assert found.made is not None, found.told
    for k in (2, 3, 33, 1000):
        held(found, *rows(k))
    odd = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf")], dtype=dtype)
    held(found, odd.expand(4, 5).contiguous(), *rows(4)[1:])
    spread = torch.randn(4, 5, 2, dtype=dtype)[..., 0]  # not laid out as in the recording
    held(found, spread, *rows(4)[1:])


@needs_compiler
def test_what_a_kernel_may_not_hold_stays_torch() -> None:
    weight = torch.randn(5, 5)

    def mixed(x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        y = (x * 2.0).tanh().exp()
        z = weight.sum() * x + y
        return (z.softmax(0) * y).sin().cos(), n // 2 + 1

    def of(count: int) -> list[Tensor]:
        return [torch.randn(count, 5), torch.arange(count)]

    executor = CompiledExecutor(0)
    doubled = autobatch.vmap(lambda x, n: mixed(x, n), executor=executor)
    for _ in range(3):
        doubled(*of(6))
    assert_matches_loop(mixed, of(9), configurations=({"executor": executor},))
    assert any(each.made is not None for each in executor.made)


def test_regions_are_convex_and_hold_no_integers_that_overflow() -> None:
    def one(x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        y = x.exp().sin() * 2.0
        z = torch.cumsum(y, 0).cos().tan().sqrt()
        return z + y, n * 3 + 1, x + 0.0

    graph = record(
        mapped(one), [Input("column", torch.randn(4, 3)), Input("column", torch.arange(4))]
    ).graph
    parts = parts_of(graph, ())
    assert [(part.is_region, part.size) for part in parts] == [(True, 3), (False, 4), (True, 4)]
    names = [{str(node.op) for node in part.graph.nodes} for part in parts]
    assert names[1] == {"aten.cumsum.default", "aten.mul.Tensor", "aten.add.Tensor"}
    seen = set(range(graph.inputs))
    for part in parts:
        assert set(part.ins) <= seen
        seen |= set(part.outs)
    assert set(graph.outputs) <= seen


def test_reasons_are_told() -> None:
    column = Input("column", torch.randn(4, 3).requires_grad_())
    with torch.enable_grad():
        assert reason_against([column]) == "gradients flow through it"
    assert reason_against([column]) == ""
    assert made(lambda n: n * 3 + 1, torch.arange(4)).told == (
        "not compiled: no operations that a kernel may hold follow each other"
    )


def test_a_kernel_that_gives_something_else_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(graph: Any, traced: Any, numbers: Any) -> Any:
        def replay(k: int, *values: Tensor) -> tuple[Tensor, ...]:
            return tuple(out + 1 for out in traced(k, *values))

        return hot.FusedReplay(replay, "", 1, 1, 3, 1, frozenset(), True)

    monkeypatch.setattr(hot, "fused", wrong)
    x = torch.randn(4, 3)
    found = made(lambda x: x.exp().sin().cos(), x)
    assert found.told == "not compiled: its kernels gave another result than torch"
    torch.testing.assert_close(found(4, x)[0], x.exp().sin().cos())


@needs_compiler
def test_explain_says_what_is_compiled() -> None:
    def waves(x: Tensor) -> Tensor:
        for _ in range(20):
            x = x.sin().cos().exp().tanh() * x.sum()
        return x

    def ints(n: Tensor) -> Tensor:
        for _ in range(20):
            n = (n * 3 + 1) % 1000 - n.sum()
        return n

    for function, x, start in (
        (waves, torch.randn(4, 3), "from here on compiled: 6 operations in 1 kernel"),
        (ints, torch.ones(4, 3, dtype=torch.int64), "from here on not compiled: no operations"),
    ):
        quick = autobatch.function(executor="compiled", max_steps=10**6)(function)
        for _ in range(1 + 1000 // (20 * 4)):
            quick.batch(x)
        text = str(autobatch.explain(quick, x))
        assert start in text
    assert len(COMPILING["compiled", False].made) > 0


SECOND = """
import torch
import autobatch
from autobatch.batching.stretches.executors import CompiledExecutor
from programs import fixed_point
torch.set_num_threads(1)
with torch.no_grad(), autobatch.counts() as found:
    given = fixed_point.example(8)
    run = autobatch.vmap(given.function, executor=CompiledExecutor(0))
    run(*given.args)
    run(*given.args)
print(found.compilations, found.reloaded)
"""


@needs_compiler
def test_another_process_compiles_nothing_again() -> None:
    given = fixed_point.example(8)
    with autobatch.counts() as found:
        run = autobatch.vmap(given.function, executor=CompiledExecutor(0))
        run(*given.args)
        run(*given.args)
    here = found.compilations + found.reloaded
    assert here > 0
    root = Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", SECOND]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root)
    assert done.stdout.split() == ["0", str(here)], done.stderr


def unpriced() -> CompiledExecutor:
    """As ``"auto"`` does, but as if compiling took no time."""
    return CompiledExecutor(0, seconds=0.0, prices=Prices(1, 0.0))


@needs_compiler
def test_auto_keeps_what_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(graph: Any, traced: Any, numbers: Any) -> Any:
        def replay(k: int, *values: Tensor) -> Any:
            time.sleep(0.01)
            return traced(k, *values)

        return hot.FusedReplay(replay, "", 1, 1, 3, 1, frozenset(), True)

    x = torch.randn(4, 3)
    monkeypatch.setattr(hot, "fused", slow)
    found = unpriced().compile(mapped(lambda x: x.exp().sin().cos()), [Input("column", x)])
    found(4, x)
    assert type(found) is Hot
    assert found.told == "not compiled: its kernels are slower than torch's"
    assert_matches_loop(lambda x: x.exp().sin().cos(), (x,), configurations=({"executor": "auto"},))


def seen_at(found: Any, *tensors: Tensor) -> Hot:
    """A recording that has run for long enough to be asked whether compiling it pays."""
    assert type(found) is Hot
    found.seconds = 0.0
    found(len(tensors[0]), *tensors)
    return found


def test_explain_tells_what_ordinary_runs_have_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPILING, ("auto", False), CompiledExecutor(1000, seconds=100.0))
    run, x = (
        autobatch.function(waved, executor="auto", trace_after=0, max_steps=9),
        torch.randn(4, 3),
    )
    for _ in range(3):
        run.batch(x)
    said = str(autobatch.explain(run, x))
    assert re.search(
        r"often enough \(\d+ µs a replay as recorded, on average of [1-3] earlier", said
    )


def waved(x: Tensor) -> Tensor:
    return x.exp().sin().cumsum(0)


@needs_compiler
def test_auto_compiles_once_that_pays() -> None:
    x = torch.randn(4, 3)
    executor = CompiledExecutor(0, seconds=1.0, prices=Prices(2, 10.0))
    found = seen_at(
        executor.compile(mapped(lambda x: x.exp().sin().cos()), [Input("column", x)]), x
    )
    assert found.made is None and not found.why
    assert found.seconds == pytest.approx(5.0, abs=0.1)  # all of a replay, so what a kernel takes
    seen_at(found, x)
    assert found.made is not None or "slower" in found.why
    assert executor.prices.kernels == 3 and executor.prices.seconds > 10.0


@needs_compiler
def test_auto_gives_up_where_kernels_could_spare_little() -> None:
    def heavy(x: Tensor) -> Tensor:
        return (x @ x @ x @ x)[0].exp().sin().cos()

    x = torch.randn(4, 200, 200) / 100.0
    found = seen_at(unpriced().compile(mapped(heavy), [Input("column", x)]), x)
    assert found.told.startswith("not compiled: kernels could hold only")
    one = unpriced().compile(mapped(lambda x: x @ x), [Input("column", x)])
    assert seen_at(one, x).told.startswith("not compiled: no operations that a kernel may hold")


def test_without_a_compiler_auto_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paying, "missing", lambda: "there is no C++ compiler")
    x = torch.randn(4, 3)
    found = unpriced().compile(mapped(lambda x: x.exp().sin().cos()), [Input("column", x)])
    assert seen_at(found, x).told == "not compiled: there is no C++ compiler"
    torch.testing.assert_close(found(4, x)[0], x.exp().sin().cos())


def test_writes_that_nobody_sees_become_pure() -> None:
    def gates(k: int, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        x = x @ torch.eye(4)
        x.add_(y)
        a, b = torch.unsafe_split(x, 2, 1)
        a.sigmoid_()
        b.tanh_()
        return (a * b,)

    graph = record(gates, [Input("column", torch.randn(3, 4)) for _ in range(2)]).graph
    assert any(node.mutates for node in graph.nodes)
    made = without_writes(graph)
    assert not any(node.mutates for node in made.nodes)
    x, y = torch.randn(2, 3, 4)
    (out,) = in_whole(made, 3, {0: x, 1: y, **graph.literals})
    torch.testing.assert_close(out, gates(3, x.clone(), y)[0])


def test_writes_that_show_elsewhere_stay() -> None:
    def seen(k: int, x: Tensor) -> tuple[Tensor, ...]:
        x = x.exp()
        first = x[:, 0]
        x.mul_(2.0)
        return x, first.sin()

    graph = record(seen, [Input("column", torch.randn(3, 4))]).graph
    with pytest.raises(Impure):
        without_writes(graph)


@needs_compiler
def test_an_lstm_cell_is_products_and_a_kernel() -> None:
    executor = CompiledExecutor(0)
    given = lstm.example(8, longest=5, hidden=16, inputs=8)
    assert_matches_loop(given.function, given.args, configurations=({"executor": executor},) * 3)
    assert "compiled: 10 operations in 1 kernel" in {each.told for each in executor.made}


SMALL: dict[str, Callable[[Tensor], Any]] = {
    "select and stack": lambda x: torch.stack((x[1], -x[0], x[2]), 0) * x,
    "rows of a matrix": lambda x: x[:2].reshape(2, 1) * x[1:] + x[1:].reshape(2, 1).sin(),
    "sums": lambda x: (x.sum(0) * x.sum(0, keepdim=True), x.mean(0).exp()),
    "extremes": lambda x: (x.amax(0) - x.amin(0), x.max(0).values * x.min(0).values),
    "norm": lambda x: x / torch.linalg.vector_norm(x, dim=0, keepdim=True),
    "truths": lambda x: ((x > 0).any(0), (x > 0).all(0), (x > 0) & ~(x > 1)),
    "joined": lambda x: torch.cat((x.exp(), x[:1].reshape(1).sin() * 2.0), 0),
    "chosen": lambda x: torch.where(x > 0.3, x.sqrt(), x.abs().log1p()).clamp(-1.0, 0.9),
    "spread": lambda x: x[0].reshape(1).expand(3) * x * torch.tensor(1.5),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_element_by_element_is_the_same(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(6, 3, dtype=dtype)
    graph = without_unread(record(mapped(SMALL[name]), [Input("column", x)]).graph)
    given = {0: x, **graph.literals}
    try:
        results = by_element(graph, 6, given)
    except Whole:
        pytest.fail(f"left in whole tensors:\n{graph}")
    for got, want in zip(results, in_whole(graph, 6, given), strict=True):
        torch.testing.assert_close(got, want)
        assert got.dtype == want.dtype


def test_what_threads_have_many_of_is_left_whole() -> None:
    for one, x in (
        (lambda x: x.exp() * 2.0, torch.randn(4, 9)),
        (lambda x: x.flip(0) + 1.5, torch.randn(4, 3)),
    ):
        graph = record(mapped(one), [Input("column", x)]).graph
        with pytest.raises(Whole):
            by_element(graph, 4, {0: x, **graph.literals})
