"""Which signatures of a place are recorded, and when: counted, since the rule goes by counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.batching.stretches import TracedExecutor
from autobatch.batching.stretches.budget import FEW_CALLS, PAID, Budget
from autobatch.batching.stretches.signature import shapeless
from autobatch.batching.trace import Input


@dataclass(eq=False)
class Counting:
    """An executor that counts the recordings, and the runs of what they made."""

    recordings: int = 0
    runs: list[tuple[int, ...]] = field(default_factory=list)

    def compile(self, stretch: Any, inputs: Sequence[Input]) -> Any:
        self.recordings += 1
        run = TracedExecutor().compile(stretch, inputs)

        def counted(k: int, *values: Any) -> Sequence[Tensor]:
            self.runs.append(tuple(values[0].shape))
            return run(k, *values)

        return counted


def halves(x: Tensor) -> Tensor:
    return torch.tanh(x) * 0.5


def halved(executor: Counting, size: int, **options: Any) -> None:
    xs = torch.linspace(-1.0, 1.0, 3 * size).reshape(3, size)
    got = autobatch.vmap(halves, executor=executor, **options)(xs)
    assert torch.equal(got, torch.tanh(xs) * 0.5)


def test_four_event_shapes_are_recorded_and_go_on_being_replayed() -> None:
    executor = Counting()
    for size in range(1, 9):
        halved(executor, size, trace_after=0)
    assert executor.recordings == 4
    executor.runs.clear()
    for size in (2, 4, 5, 8):
        halved(executor, size, trace_after=0)
    assert executor.recordings == 4
    assert executor.runs == [(3, 2), (3, 4)]


def test_another_dtype_has_four_event_shapes_of_its_own() -> None:
    executor = Counting()
    for dtype in (torch.float32, torch.float64):
        for size in range(1, 7):
            xs = torch.ones(2, size, dtype=dtype)
            autobatch.vmap(halves, executor=executor, trace_after=0)(xs)
    assert executor.recordings == 8


@pytest.mark.parametrize(("trace_after", "met"), [(1, [2, 3, 5, 9]), (2, [3, 5, 9, 17])])
def test_each_recording_doubles_what_the_next_signature_must_be_met(
    trace_after: int, met: list[int]
) -> None:
    executor = Counting()
    for recorded, times in enumerate(met):
        for _ in range(times - 1):
            halved(executor, 2 + recorded, trace_after=trace_after)
        assert executor.recordings == recorded
        halved(executor, 2 + recorded, trace_after=trace_after)
        assert executor.recordings == recorded + 1


def decoded(n: int, x: Tensor) -> Tensor:
    """A memory that grows by a row each step, which each step reads whole."""
    seen = x[None]
    for _ in range(n):
        x = torch.softmax(seen @ x, 0) @ seen
        seen = torch.cat([seen, x[None]])
    return x


def test_lengths_that_come_again_are_recorded_in_time() -> None:
    """A memory goes through the same nine lengths in each call: all of them, in the end."""
    xs = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    mapped = autobatch.vmap(decoded, in_dims=(None, 0), trace_after=1)
    traces = []
    for _ in range(40):
        with autobatch.counts() as counts:
            got = mapped(9, xs)
        traces.append(counts.traces)
    assert sum(traces[:34]) < 9 <= sum(traces) and traces[-1] == 0
    torch.testing.assert_close(got, torch.stack([decoded(9, x) for x in xs]))


def summed(n: int, x: Tensor) -> Tensor:
    parts = []
    for step in range(n):
        parts.append(x * step)
        x = x + torch.stack(parts).sum(0)
    return x


def test_lists_of_changing_length_are_recorded_four_times() -> None:
    """The place that reads the list is recorded for four lengths, all others once."""
    xs = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    mapped = autobatch.vmap(summed, in_dims=(None, 0), trace_after=0)
    with autobatch.counts() as few:
        mapped(5, xs)
    with autobatch.counts() as many:
        got = mapped(12, xs)
    assert few.traces > 4
    assert many.traces == 0
    assert torch.equal(got, torch.stack([summed(12, x) for x in xs]))


def test_signatures_that_never_come_again_use_up_nothing() -> None:
    budget = Budget()
    assert budget.is_cold(2) and budget.is_cold(2) and not budget.is_cold(2)
    assert budget.grants(("first",), 2)
    for number in range(1000):
        assert not budget.grants((("function", number),), 2)
    assert budget.recordings == 1 and len(budget.met) <= 256
    assert [budget.grants(("again",), 2) for _ in range(5)] == [False] * 4 + [True]


def test_a_place_is_recorded_once_it_has_run_as_long_as_a_recording_takes() -> None:
    budget, ran = Budget(), 0
    while budget.is_unpaid(3, call=1):
        ran += 3
    assert PAID - 3 <= ran < PAID


def test_a_place_that_some_calls_have_come_to_is_recorded() -> None:
    budget = Budget()
    waited = [budget.is_unpaid(0, call) for call in (5, 5, 6, 9, 12, 12, 13, 13)]
    assert waited == [True] * 6 + [False] * 2 and FEW_CALLS == 4


def looped(x: Tensor) -> Tensor:
    for _ in range(20):
        x = torch.tanh(x) * 0.5
    return x


def test_recordings_wait_for_that_where_nobody_asks_for_them() -> None:
    traces = []
    for _ in range(3):
        with autobatch.counts() as counts:
            autobatch.vmap(looped, plain="never")(torch.ones(3, 2))
        traces.append((counts.traces, counts.trace_seconds > 0))
    assert traces == [(0, False), (0, False), (1, True)]


def test_what_makes_two_event_shapes_of_one_kind() -> None:
    flat = (torch.float32, torch.Size([3]), False, "cpu")
    wide = (torch.float32, torch.Size([3, 4]), False, "cpu")
    needs = (torch.float32, torch.Size([3]), True, "cpu")
    assert shapeless((flat,)) == shapeless((wide,)) != shapeless((needs,))
    static = (type(None), None)
    assert shapeless(((list, 1, static), flat)) == shapeless(((list, 2, static), flat, wide))
    assert shapeless(((int, 3), flat)) != shapeless(((int, 4), flat))


def added_at(x, places):
    out = torch.zeros(5)
    out.index_add_(0, places, x)
    return out * 2


def test_what_torch_runs_thread_by_thread_is_found_out_once_for_each_place() -> None:
    """The stretches before and behind ``index_add_`` are recorded, once each."""
    x, places = torch.randn(6, 3), torch.randint(0, 5, (6, 3))
    mapped = autobatch.vmap(added_at)
    expected = torch.stack([added_at(*row) for row in zip(x, places, strict=True)])
    recorded = []
    for _ in range(24):
        with autobatch.counts() as counts:
            torch.testing.assert_close(mapped(x, places), expected)
        recorded.append(counts.traces)
    assert sum(recorded) <= 4 and not sum(recorded[16:])
