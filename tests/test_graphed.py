"""Captured launches: stretches that run as graphs give what the recordings and the loop give.

Most tests capture on the CPU, with a stand-in that launches again what it has captured, in the same
memory (``tests.captures``); those with CUDA graphs are skipped without a device.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import autobatch
from autobatch import OptionError
from autobatch.batching.graphed import CudaCapture, Graphed, reason_against
from autobatch.batching.graphed.buffers import width_of
from autobatch.batching.graphed.captured import Captured
from autobatch.batching.graphed.replays import MOST_NUMBERS, formed
from autobatch.batching.stretches.executors import CAPTURE, COMPILED, GRAPHS, GraphExecutor, chosen
from autobatch.batching.trace import Input, record
from programs import PROGRAMS
from tests import captures
from tests.captures import StandIn
from tests.generator import FAMILIES, programs
from tests.oracle import assert_matches_loop
from tests.sweeps import case
from tests.test_programs import CASES, check_batch
from tests.test_properties import QUICK as FEW
from tests.test_properties import hold_to_loop

ALWAYS = -1000
"""How many launches a capture has to spare where everything is to be captured."""
QUICK = ("collatz", "fixed_point", "lstm", "treelstm", "nuts", "adaptive_computation", "quicksort")


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def capturing(after: int = 0, least: int = ALWAYS) -> tuple[GraphExecutor, StandIn]:
    capture = StandIn()
    return GraphExecutor(capture, after, least=least), capture


def each_row(one: Callable[..., Any], dims: Any = 0) -> Callable[..., tuple[Tensor, ...]]:
    def run(k: int, *values: Any) -> tuple[Tensor, ...]:
        out = torch.vmap(one, in_dims=dims)(*values)
        return out if isinstance(out, tuple) else (out,)

    return run


def made(stretch: Callable[..., Any], *inputs: Input) -> tuple[Graphed, StandIn]:
    """A replay that is captured the first time that a width comes."""
    executor, capture = capturing()
    found = executor.compile(stretch, inputs)
    assert type(found) is Graphed
    return found, capture


def held(found: Graphed, k: int, *values: Any) -> Sequence[Tensor]:
    """The results of a replay, held to those of its recording."""
    got = found(k, *values)
    want = found.trace.replay(k, *values)
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
        assert (mine.dtype, mine.stride()) == (theirs.dtype, theirs.stride())
    return got


def waves(x: Tensor, y: Tensor) -> Tensor:
    return (x.sin() * y + x.cos()).exp().tanh()


# The results are the loop's.


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        case(*param.values, name=param.id, default=param.values[0] in QUICK)  # type: ignore[arg-type]
        for param in CASES
    ],
)
def test_programs_are_the_loops(name: str, dtype: torch.dtype) -> None:
    executor, capture = capturing()
    way = {"executor": executor, "trace_after": 0}
    check_batch(name, dtype, (1, 7), configurations=[way])
    assert capture.launched > 0
    captured = [each for each in executor.made if not each.why]
    assert captured and all(each.widths for each in captured)


def test_every_program_is_named() -> None:
    assert set(QUICK) <= set(PROGRAMS)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(FEW, max_examples=12)
@drawn(data=st.data())
def test_generated_programs_are_the_loops(data: st.DataObject, family: str) -> None:
    way = {"executor": capturing()[0], "trace_after": 0}
    hold_to_loop(data.draw(programs(family)), 0, 5, configurations=(way,))


def test_draws_run_as_they_come() -> None:
    executor, _ = capturing()

    def walk(x: Tensor) -> Tensor:
        while x < 3:
            x = x + torch.rand(()).abs().sqrt() * 2 + 0.1
        return x

    x = torch.zeros(9)
    run = autobatch.vmap(walk, seed=3, executor=executor, trace_after=0)
    want = autobatch.vmap(walk, seed=3, executor="vmap")(x)
    for _ in range(4):
        assert torch.equal(run(x), want)
    ways = ({"executor": executor, "trace_after": 0},)
    assert_matches_loop(walk, (x,), configurations=ways, seed=3)
    free = autobatch.vmap(walk, randomness="different", executor=executor, trace_after=0)
    results = [free(x) for _ in range(3)]
    assert not torch.equal(results[1], results[2])
    assert all(bool((each >= 3).all()) for each in results)


def test_exceptions_are_the_loops() -> None:
    executor, capture = capturing()

    def share(x: Tensor, n: Tensor) -> Any:
        y = (x.sin() * 2).exp().cos()
        return y + 6 // n

    given = (torch.randn(6), torch.tensor([1, 2, 3, 0, 2, 0]))
    ways = ({"executor": executor, "trace_after": 0},)
    assert_matches_loop(share, given, configurations=ways)
    good = (given[0], given[1] + 1)
    assert_matches_loop(share, good, configurations=ways)
    assert capture.launched > 0


# Padding and buffers.


def test_widths_are_powers_of_two() -> None:
    assert [width_of(k) for k in (1, 2, 3, 4, 5, 8, 9, 1000, 1024)] == [
        1, 2, 4, 4, 8, 8, 16, 1024, 1024,
    ]  # fmt: skip


def test_rows_behind_the_last_repeat_it() -> None:
    found, capture = made(each_row(waves), *(Input("column", torch.randn(5, 3)),) * 2)
    for k, width, captured in ((5, 8, 1), (6, 8, 1), (8, 8, 1), (3, 4, 2), (7, 8, 2), (1, 1, 3)):
        held(found, k, *torch.randn(2, k, 3))
        held(found, k, *torch.randn(2, k, 3))
        assert len(capture.launches) == captured
        (one,) = [each for each in found.captured.values() if each.width == width]
        assert one.lookup.tolist() == [min(row, k - 1) for row in range(width)]
        assert one.outs[0][k - 1 :].eq(one.outs[0][k - 1]).all()  # what the padding has computed


def test_a_row_that_is_no_threads_is_never_computed() -> None:
    """What lay in the buffers before, of threads that have left, does not reach an operator."""
    seen: list[Tensor] = []

    @torch.library.custom_op("autobatch_tests::looked_at", mutates_args=())
    def looked_at(x: Tensor) -> Tensor:
        seen.append(x.clone())
        return x * 2

    looked_at.register_fake(torch.empty_like)
    looked_at.register_vmap(lambda info, dims, x: (looked_at(x), 0))
    x = torch.arange(8.0)
    found, _ = made(each_row(lambda x: looked_at(x).sin()), Input("column", x))
    held(found, 8, x)
    held(found, 8, -x)
    seen.clear()
    found(5, x[:5] + 100)
    assert [rows.tolist() for rows in seen] == [[100, 101, 102, 103, 104, 104, 104, 104]]


def test_results_outlive_the_next_launch() -> None:
    found, capture = made(each_row(waves), *(Input("column", torch.randn(4, 3)),) * 2)
    rounds = [torch.randn(2, 4, 3) for _ in range(6)]
    found(4, *rounds[0])
    kept = [found(4, *given) for given in rounds]
    assert capture.launched == 1 + len(rounds)
    for given, got in zip(rounds, kept, strict=True):
        torch.testing.assert_close(got, found.trace.replay(4, *given))
    addresses = {out.data_ptr() for (out,) in kept}
    assert len(addresses) == len(rounds)


def test_a_result_that_comes_back_in_is_copied_first() -> None:
    found, capture = made(each_row(waves), *(Input("column", torch.randn(4, 3)),) * 2)
    x, y = torch.randn(2, 4, 3)
    want = x
    for _ in range(5):
        x, want = *found(4, x, y), *found.trace.replay(4, want, y)
    torch.testing.assert_close(x, want)
    assert capture.launched == 5


def test_results_share_memory_as_the_recordings_do() -> None:
    def parts(x: Tensor) -> tuple[Tensor, ...]:
        y = x.exp() * x.sin()
        return y, y[1], x[2], y.reshape(3, 1), x.cos()

    found, capture = made(each_row(parts), Input("column", torch.randn(5, 3)))
    for k in (5, 6, 3):
        for _ in range(2):
            x = torch.randn(k, 3)
            y, second, third, tall, _ = held(found, k, x)
            y[:, 1] = 7.0
            assert second.eq(7.0).all() and tall[:, 1].eq(7.0).all()
            x[:, 2] = 5.0
            assert third.eq(5.0).all()
    assert capture.launched > 0


def test_layouts_are_the_recordings() -> None:
    def turned(x: Tensor) -> tuple[Tensor, ...]:
        y = x.sin() * 2
        return y.transpose(0, 1).contiguous().transpose(0, 1), y + 1

    given = torch.randn(6, 3, 4).transpose(1, 2)
    found, _ = made(each_row(turned), Input("column", given))
    for k in (6, 7, 8):
        for _ in range(3):
            held(found, k, torch.randn(k, 3, 4).transpose(1, 2))


# What all threads share.


def test_a_shared_tensor_is_read_where_it_is() -> None:
    weight = torch.randn(3)
    kinds = (Input("column", torch.randn(4, 3)), Input("tensor", weight))
    found, capture = made(each_row(waves, (0, None)), *kinds)
    for _ in range(4):
        held(found, 4, torch.randn(4, 3), weight)
        weight += 1.0  # as an optimizer does
    assert len(capture.launches) == 1 and not found.moving
    (one,) = found.captured.values()
    assert list(one.statics) == [0]


def test_a_shared_tensor_that_is_another_one_each_time_is_copied() -> None:
    kinds = (Input("column", torch.randn(4, 3)), Input("tensor", torch.randn(3)))
    found, capture = made(each_row(waves, (0, None)), *kinds)
    for _ in range(6):
        held(found, 4, torch.randn(4, 3), torch.randn(3))
        gc.collect()
    assert len(capture.launches) == 2 and found.moving == {1} and not found.why


def test_memory_that_moves_under_a_tensor_is_noticed() -> None:
    weight = torch.nn.Parameter(torch.randn(3))
    kinds = (Input("column", torch.randn(4, 3)), Input("tensor", weight))
    found, _ = made(each_row(waves, (0, None)), *kinds)
    for _ in range(4):
        held(found, 4, torch.randn(4, 3), weight)
        weight.data = torch.randn(3)


def test_large_shared_tensors_are_not_copied() -> None:
    def product(x: Tensor, table: Tensor) -> Tensor:
        return (x.sin() @ table[:3]).cos()

    def large() -> Tensor:
        return torch.zeros(2**18 + 1, 3)

    kinds = (Input("column", torch.randn(4, 3)), Input("tensor", large()))
    found, _ = made(each_row(product, (0, None)), *kinds)
    for _ in range(3):
        held(found, 4, torch.randn(4, 3), large())
    assert found.told == (
        "not captured: 3,145,740 bytes that all threads share are others each time"
    )


def test_numbers_are_part_of_a_capture() -> None:
    def scaled(k: int, x: Tensor, n: float) -> tuple[Tensor, ...]:
        return ((x * n).sin() * n,)

    found, capture = made(scaled, Input("column", torch.randn(4)), Input("float", 2.5))
    for n in (2.5, 2.5, 0.0, -0.0, 0.0, -0.0):
        (got,) = held(found, 4, torch.ones(4), n)
        assert torch.signbit(got).tolist() == torch.signbit(torch.tensor([n * n] * 4)).tolist()
    assert len(capture.launches) == 3
    for n in range(MOST_NUMBERS):
        held(found, 4, torch.randn(4), n + 0.5)
    assert found.told == "not captured: numbers that all threads share are others each time"
    assert not found.captured


# Counts.


def test_launches_and_host_reads_of_a_step() -> None:
    executor, capture = capturing(least=1)

    def settle(x: Tensor, y: Tensor) -> Tensor:
        while x > 0.1:
            x = x.sin() * 0.9 + (x * y).cos() * 0.01 - 0.01
        return x

    given = (torch.linspace(0.2, 1.0, 64), torch.linspace(0.0, 1.0, 64))
    run = autobatch.vmap(settle, executor=executor, trace_after=0)
    for _ in range(3):
        run(*given)
    before = capture.launched
    with autobatch.counts() as found:
        run(*given)
    (loop,) = [each for each in executor.made if each.trace.kernels > 5]
    assert loop.told.startswith(f"captured: {loop.trace.kernels} kernels in 1 launch")
    rounds = capture.launched - before
    steps = {place: n for place, n in found.by_block.items() if n > 1}
    (place,) = steps
    assert steps[place] == rounds == found.reads_by_block[place]
    # One launch of the graph, one copy in (floats), two copies out (floats, truths); and one more
    # where the number of threads is another than at the last launch of that width.
    launches = found.launches_by_block[place]
    assert 4 * rounds <= launches <= 5 * rounds < loop.trace.kernels * rounds


def test_what_spares_no_launch_is_replayed_as_recorded() -> None:
    executor, capture = capturing(least=1)
    run = autobatch.vmap(lambda x: x + 1, executor=executor, trace_after=0)
    for _ in range(3):
        assert torch.equal(run(torch.ones(3)), torch.full((3,), 2.0))
    assert {each.told for each in executor.made} == {
        "not captured: 1 kernels are too few to spare any launches"
    }
    assert capture.launched == 0


def test_widths_are_captured_once_they_come_often_enough() -> None:
    executor, capture = capturing(after=2)
    found = executor.compile(each_row(waves), [Input("column", torch.randn(4, 3))] * 2)
    assert type(found) is Graphed
    assert found.told == "not captured: it has not run often enough"
    for times, k in ((1, 4), (2, 3), (2, 7), (3, 4)):
        held(found, k, *torch.randn(2, k, 3))
        assert (len(capture.launches) == 1) is (times == 3)
    assert found.widths == [4]


# What cannot be captured.


def test_without_a_device_it_runs_traced_and_says_why() -> None:
    def settle(x: Tensor) -> Tensor:
        while x > 0.1:
            x = x.sin() * 0.9
        return x

    quick = autobatch.function(executor="cudagraph")(settle)
    x = torch.linspace(0.2, 1.0, 9)
    for _ in range(5):
        torch.testing.assert_close(quick.batch(x), torch.stack([settle(row) for row in x]))
    report = autobatch.explain(quick, x)
    own = "not captured: a tensor among its operands is not on a CUDA device"
    if not torch.cuda.is_available():
        assert report.compiled == "not captured, traced instead: there is no CUDA device"
        own = "not captured: there is no CUDA device"
    assert f"from here on {own}" in str(report)


def test_reasons_are_told() -> None:
    capture = StandIn()
    column = Input("column", torch.randn(4, 3).requires_grad_())
    with torch.enable_grad():
        assert reason_against([column], capture) == "gradients flow through it"
    with torch.autocast("cpu", torch.bfloat16):
        assert reason_against([column], capture) == "autocast is on"
    meta = Input("tensor", torch.ones(3, device="meta"))
    for given in ([column, meta], [meta]):
        expected = "a tensor among its operands is not on a CPU device"
        assert reason_against(given, capture) == expected
    assert reason_against([], capture) == "its operands are not on one device"
    assert reason_against([column], capture) == ""
    if not torch.cuda.is_available():
        assert reason_against([column], CudaCapture()) == "there is no CUDA device"


def test_gradients_flow_as_ever() -> None:
    executor, capture = capturing()
    x = torch.randn(5, requires_grad=True)
    run = autobatch.vmap(lambda x: waves(x, x), executor=executor, trace_after=0)
    for _ in range(3):
        x.grad = None
        with torch.enable_grad():
            run(x).sum().backward()
            (want,) = torch.autograd.grad(waves(x, x).sum(), x)
        torch.testing.assert_close(x.grad, want)
    assert capture.launched == 0
    assert {each.told for each in executor.made} == {"not captured: gradients flow through it"}


def test_tangents_pass_by() -> None:
    executor, _ = capturing()
    run = autobatch.vmap(lambda x: waves(x, x), executor=executor, trace_after=0)
    x, tangent = torch.randn(2, 5)
    for _ in range(3):
        run(x)
    _, got = torch.func.jvp(run, (x,), (tangent,))
    _, want = torch.func.jvp(lambda x: waves(x, x), (x,), (tangent,))
    torch.testing.assert_close(got, want)


def test_what_a_device_refuses_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "FORBIDDEN", frozenset({"aten.sin.default"}))
    found, capture = made(each_row(waves), *(Input("column", torch.randn(4, 3)),) * 2)
    for _ in range(3):
        held(found, 4, *torch.randn(2, 4, 3))
    assert found.told == (
        "not captured: RuntimeError: operation not permitted when stream is capturing"
    )
    assert not capture.launches


def test_what_takes_all_threads_together_is_not_padded() -> None:
    def centred(k: int, x: Tensor) -> tuple[Tensor, ...]:
        return ((x - x.mean(0)).sin(),)

    found, capture = made(centred, Input("column", torch.randn(5, 3)))
    held(found, 5, torch.randn(5, 3))
    assert found.told == "not captured: an operation takes what all threads have together"
    assert not capture.launches


class Wrong(StandIn):
    def capture(self, run: Any, device: torch.device) -> Any:
        launch, outs = super().capture(run, device)

        def other() -> None:
            launch()
            outs[0].add_(1)

        return other, outs


def test_a_capture_that_gives_something_else_is_dropped() -> None:
    executor = GraphExecutor(Wrong(), 0, least=ALWAYS)
    found = executor.compile(each_row(waves), [Input("column", torch.randn(4, 3))] * 2)
    assert type(found) is Graphed
    for _ in range(2):
        held(found, 4, *torch.randn(2, 4, 3))
    assert found.told == "not captured: its launches gave another result than the recording"


def test_the_option() -> None:
    with pytest.raises(OptionError, match="'auto', 'traced', 'vmap', 'compiled', 'cudagraph'"):
        autobatch.vmap(waves, executor="cuda")
    with pytest.raises(OptionError, match='executor must be "traced"'):
        autobatch.vmap(waves, executor="cudagraph", save="recompute")
    assert chosen("cudagraph", True, False) is GRAPHS
    assert GRAPHS.capture is CAPTURE


def test_a_default_device_is_nothing_that_looks_on() -> None:
    with torch.device("cpu"):
        assert chosen("cudagraph", True, False) is GRAPHS
        assert chosen("compiled", True, False) is COMPILED

    class Looking(torch.overrides.TorchFunctionMode):
        pass

    with Looking():
        assert chosen("cudagraph", True, False) is not GRAPHS


class Nothing(StandIn):
    """Captures what has no data: there is nothing to launch."""

    def capture(self, run: Any, device: torch.device) -> Any:
        return lambda: None, run()


def test_all_of_a_capture_is_on_the_device() -> None:
    """On tensors without data, which still tell one device from another."""
    device = "cuda" if torch.backends.cuda.is_built() else "meta"
    with FakeTensorMode() as mode:
        values = [torch.empty(5, 3, device=device), torch.empty(3, device=device)]
        kinds = ["column", "tensor"]
        inputs = [Input(kind, value) for kind, value in zip(kinds, values, strict=True)]  # type: ignore[arg-type]
    trace = record(each_row(waves, (0, None)), inputs)
    form = formed(trace, kinds, {1}, values)
    with mode:
        made = Captured.of(form, values[0].device, Nothing(), 5, values)
        outs = [*made.run(5, values), *made.run(3, [values[0][:3], values[1]])]
    assert [tuple(out.shape) for out in outs] == [(5, 3), (3, 3)]
    for tensor in (*outs, *made.statics.values(), *made.outs, made.lookup):
        assert tensor.device.type == device
