"""Captured launches on a CUDA device: what ``tests.test_graphed`` holds with a stand-in."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.batching.graphed import CudaCapture, Graphed
from autobatch.batching.stretches.executors import GraphExecutor
from autobatch.batching.trace import Input
from programs import PROGRAMS
from tests.oracle import assert_matches_loop
from tests.test_graphed import ALWAYS, each_row, waves

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def capturing() -> GraphExecutor:
    return GraphExecutor(CudaCapture(), 0, least=ALWAYS)


def made(stretch: Any, *inputs: Input) -> Graphed:
    found = capturing().compile(stretch, inputs)
    assert type(found) is Graphed
    return found


def on_device(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda")


def held(found: Graphed, k: int, *values: Any) -> Any:
    got = found(k, *values)
    want = found.trace.replay(k, *values)
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    return got


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_the_loops(name: str) -> None:
    module: Any = importlib.import_module(f"programs.{name}")
    example = module.example(7, module.DTYPES[-1]).to("cuda")
    function, args = example.function, example.mapped(autobatch.objects, autobatch.ragged)
    executor = capturing()
    way = {"executor": executor, "trace_after": 0}
    options = example.options()
    with torch.device("cuda"):  # where programs make tensors of their own
        assert_matches_loop(function, args, configurations=(way,), rtol=1e-4, atol=2e-3, **options)
    assert not any("Error" in each.told for each in executor.made)


def test_one_launch_for_a_stretch() -> None:
    found = made(each_row(waves), *(Input("column", on_device(5, 3)),) * 2)
    for k in (5, 6, 8, 3, 7, 1000):
        for _ in range(3):
            held(found, k, on_device(k, 3), on_device(k, 3))
    assert found.widths == [4, 8, 1024], found.told
    given = on_device(8, 3), on_device(8, 3)
    found(8, *given)
    found(8, *given)
    assert found.launched == 3  # copied in, the graph, copied out


def test_results_outlive_the_next_launch() -> None:
    found = made(each_row(waves), *(Input("column", on_device(4, 3)),) * 2)
    rounds = [(on_device(4, 3), on_device(4, 3)) for _ in range(6)]
    found(4, *rounds[0])
    kept = [found(4, *given) for given in rounds]
    for given, got in zip(rounds, kept, strict=True):
        torch.testing.assert_close(got, found.trace.replay(4, *given))


def test_captures_that_share_memory_do_not_disturb_each_other() -> None:
    executor = capturing()
    row = Input("column", on_device(4, 3))
    first, second = (executor.compile(each_row(one), [row]) for one in (heavy, light))
    for _ in range(4):
        x = on_device(6, 3)
        for run, one in ((first, heavy), (second, light), (first, heavy)):
            (got,) = run(6, x)
            torch.testing.assert_close(got, torch.vmap(one)(x), rtol=1e-4, atol=1e-5)


def heavy(x: Tensor) -> Tensor:
    return (x[:, None] * x).sin().exp().sum(0).cos()


def light(x: Tensor) -> Tensor:
    return (x.cos() * 2 + 1).tanh().exp()


def test_streams_wait_for_each_other() -> None:
    found = made(each_row(waves), *(Input("column", on_device(4, 3)),) * 2)
    given = on_device(4096, 3), on_device(4096, 3)
    for _ in range(2):
        found(4096, *given)
    (want,) = found.trace.replay(4096, *given)
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    results = []
    for stream in streams * 5:
        with torch.cuda.stream(stream):
            results.append(found(4096, *given)[0])
    torch.cuda.synchronize()
    for got in results:
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_a_read_on_the_host_is_a_reason() -> None:
    @torch.library.custom_op("autobatch_tests::read_on_host", mutates_args=())
    def read_on_host(x: Tensor) -> Tensor:
        return x * x.sum().item()

    read_on_host.register_fake(torch.empty_like)
    read_on_host.register_vmap(lambda info, dims, x: (read_on_host(x), 0))
    found = made(each_row(lambda x: read_on_host(x).sin()), Input("column", on_device(4, 3)))
    x = on_device(4, 3)
    want = (x * x.sum().item()).sin()
    for _ in range(3):
        torch.testing.assert_close(found(4, x)[0], want)
    assert found.told.startswith("not captured: ") and "Error" in found.told
    stream = torch.cuda.current_stream()
    assert stream == torch.cuda.default_stream()
    assert len(torch.rand(7, device="cuda").unique()) == 7  # torch's generator is none of it
    good = made(each_row(waves), *(Input("column", on_device(4, 3)),) * 2)
    for _ in range(2):
        held(good, 4, on_device(4, 3), on_device(4, 3))
    assert good.widths == [4], good.told


def test_a_parameter_is_read_where_it_is() -> None:
    weight = on_device(3)
    kinds = (Input("column", on_device(4, 3)), Input("tensor", weight))
    found = made(each_row(waves, (0, None)), *kinds)
    for _ in range(4):
        held(found, 4, on_device(4, 3), weight)
        weight += 1.0
    assert not found.moving
    for _ in range(3):
        held(found, 4, on_device(4, 3), on_device(3))
    assert found.moving == {1} and not found.why


def test_operands_on_the_host_are_a_reason() -> None:
    kinds = (Input("column", on_device(4, 3)), Input("tensor", torch.tensor(2.0)))
    found = made(each_row(waves, (0, None)), *kinds)
    held(found, 4, on_device(4, 3), torch.tensor(2.0))
    assert found.told == "not captured: a tensor among its operands is not on a CUDA device"


def test_the_option() -> None:
    def settle(x: Tensor) -> Tensor:
        while x > 0.1:
            x = x.sin() * 0.9 + (x * x).cos() * 0.01 - 0.01
        return x

    x = torch.linspace(0.2, 1.0, 1000, device="cuda")
    quick = autobatch.function(executor="cudagraph")(settle)
    with autobatch.counts() as plain:
        want = autobatch.vmap(settle)(x)
    for _ in range(4):
        quick.batch(x)
    with autobatch.counts() as found:
        torch.testing.assert_close(quick.batch(x), want, rtol=1e-4, atol=1e-5)
    assert found.launches < plain.launches
    assert "from here on captured: " in str(autobatch.explain(quick, x))
