"""What a loop's round has made is written over by the next one, where nobody else holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.batching.trace import Trace
from autobatch.batching.trace.codegen import Replay
from tests.oracle import assert_matches_loop
from tests.test_trace_rewrites import trace_of

XS = torch.linspace(-1.0, 2.0, 64 * 3).reshape(64, 3)


@pytest.mark.parametrize(
    ("fn", "is_spent"),
    [
        (lambda x: (y := torch.tanh(x), y - x), True),  # by out=
        (lambda x: x - torch.tanh(x), True),  # by sub_
        (lambda x: torch.tanh(x) - x, False),  # over what this made
        (lambda x: (y := x * 2, torch.maximum(y, x)), True),
        (lambda x: (y := torch.tanh(x), torch.linalg.vector_norm(y - x)), True),  # never fails
        (lambda x: (y := torch.tanh(x), torch.linalg.inv(torch.diag(y - x))), False),  # may
        (lambda x: (x - torch.tanh(x), x), False),  # it goes out
        (lambda x: (x - torch.tanh(x), x[:2]), False),
        (lambda x: torch.cat([torch.tanh(x), x]), False),  # no operation in place
        (lambda x: (x - torch.tanh(x))[:2] + x[:2], False),  # read later
        (lambda x: x > 0.5, False),  # another dtype
    ],
)
def test_an_input_that_nobody_else_holds(fn: Callable[[Tensor], Any], is_spent: bool) -> None:
    trace = trace_of(fn, 3)
    assert trace.aliases[0] is None
    spending = trace.spending({0: 0})
    assert (spending is not None) is is_spent
    if spending is not None:
        x, before = XS.clone(), XS.clone()
        torch.testing.assert_close(spending(64, x), trace(64, before))
        assert torch.equal(before, XS) and not torch.equal(x, XS)


def test_results_that_share_memory_are_not_spent() -> None:
    trace = trace_of(lambda x: (y := x - torch.tanh(x), y[:2]), 3)
    assert trace.spending({0: 0}) is None  # another result shows it
    assert trace_of(lambda x: (x * 2, x[:2]), 3).spending({0: 1}) is None


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each loop's replay that was asked for writes over what the last round has made."""
    found: list[bool] = []
    spending = Trace.spending

    def noted(self: Trace, results: Mapping[int, int]) -> Replay | None:
        replay = spending(self, results)
        found.append(replay is not None)
        return replay

    monkeypatch.setattr(Trace, "spending", noted)
    return found


def relaxed(x: Tensor) -> Tensor:
    h = x
    for _ in range(12):
        h = h * 0.5 - torch.tanh(x)
    return h


def until_near(x: Tensor) -> tuple[Tensor, Tensor]:
    """Threads leave in many rounds; what they leave with is theirs."""
    h, change = x, x
    for _ in range(40):
        new = torch.cos(h) * 0.9
        change = new - h
        h = new
        if change.abs().sum() < 0.02:
            break
    return h, change


def two_names(x: Tensor) -> tuple[Tensor, Tensor]:
    """The last value has another name, until the next round."""
    h, before = x, x
    for _ in range(12):
        before = h
        h = torch.tanh(h) * 0.5 - h
    return h, before


def swapped(x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x, x * 2
    for _ in range(11):
        a, b = torch.sin(b) - a, torch.maximum(b * 0.5, a)
    return a, b


def collected(x: Tensor) -> Tensor:
    """A list holds each."""
    found = []
    for _ in range(8):
        x = torch.sin(x) * 0.9 - x
        found.append(x)
    return torch.stack(found)


def of_large_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that stay where they are until they are used."""
    h = x.repeat(400)
    for _ in range(20):
        h = torch.tanh(h * 0.7) - h * 0.5
        if h[0].abs() < 0.05:
            break
    return h, h[:2] * 2


@pytest.mark.parametrize(
    ("func", "expected"),
    [
        (relaxed, True),
        (until_near, True),
        (two_names, False),
        (swapped, True),
        (collected, False),
        (of_large_rows, True),
    ],
)
def test_the_loops_results(func: Callable[..., Any], expected: bool, spent: list[bool]) -> None:
    assert_matches_loop(func, (XS,), chunk_sizes=(None, 25))
    assert any(spent) is expected


def near(x: Tensor) -> Tensor:
    h = torch.zeros_like(x)
    for _ in range(40):
        new = torch.cos(h + x) * 0.9
        change = new - h
        h = new
        if torch.linalg.vector_norm(change) < 0.02:
            break
    return h


def test_memory_that_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that has written over what it began with is not run again: all of them are."""
    spending, left = Trace.spending, [0]

    def failing(self: Trace, results: Mapping[int, int]) -> Replay | None:
        replay = spending(self, results)

        def run(k: int, *values: Any) -> tuple[Tensor, ...]:
            assert replay is not None
            outs = replay(k, *values)
            left[0] -= 1
            if not left[0]:
                raise RuntimeError("can't allocate memory")
            return outs

        return None if replay is None else run

    monkeypatch.setattr(Trace, "spending", failing)
    batched = autobatch.vmap(near, plain="never", trace_after=0)
    wanted = torch.stack([near(x) for x in XS])
    for _ in range(3):
        torch.testing.assert_close(batched(XS), wanted)
    for after in (1, 3, 9, 15):
        left[0] = after
        torch.testing.assert_close(batched(XS), wanted)
        assert left[0] < 0
