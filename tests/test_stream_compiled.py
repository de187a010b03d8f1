"""Streams under ``executor="compiled"``: examples run as machine code as they are admitted."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.compiled import launching
from autobatch.llvm import is_installed
from autobatch.streams import streamed

pytestmark = pytest.mark.skipif(not is_installed(), reason="needs llvmlite")
QUICK = {"executor": "compiled", "trace_after": 0}
ORDERS = pytest.mark.parametrize("order", ["completion", "input"])


def throws(seed: int, sides: int) -> int:
    number = 1
    while seed % sides != 0:
        seed = (seed * 16807) % 2147483647
        number += 1
    return number


def share(n: int) -> int:
    while n > 100:
        n = n - 7
    return 1000 // n


@ORDERS
def test_an_admission_is_one_launch(order: str) -> None:
    with autobatch.counts() as found:
        stream = autobatch.stream(
            throws, range(1, 1001), 64, shared={"sides": 50}, order=order, **QUICK
        )
        results = list(stream)
    wanted = [(place, throws(seed, 50)) for place, seed in enumerate(range(1, 1001))]
    assert results == wanted
    assert found.block_executions == found.launches == -(-1000 // 64)
    # A way back for each throw but the first two: the loop is entered by the first test.
    assert found.iterations == sum(max(number - 2, 0) for _, number in wanted)
    assert (found.given_up, found.host_reads, found.traces) == (0, 0, 0)


@ORDERS
def test_threads_that_give_up_go_through_the_engine(order: str) -> None:
    def grown(n: int) -> int:
        total = 1
        for _ in range(n):
            total = total * 10
        return total

    lengths = [3, 30, 5, 19, 18, 40, 0, 7, 25] * 5  # from 19 on beyond 64 bits
    with autobatch.counts() as found:
        results = list(autobatch.stream(grown, lengths, 8, order=order, **QUICK))
    assert sorted(results) == [(place, 10**n) for place, n in enumerate(lengths)]
    assert order == "completion" or results == sorted(results)
    assert found.given_up == sum(n > 18 for n in lengths)


@ORDERS
def test_a_failure_is_raised_after_what_is_before_it(order: str) -> None:
    examples = [5, 300, 9, 0, 12, 107, 3]  # 0 fails
    found: list[Any] = []
    with pytest.raises(ZeroDivisionError, match="integer division or modulo by zero"):
        for result in autobatch.stream(share, examples, 2, order=order, **QUICK):
            found.append(result)
    wanted = [(place, share(n)) for place, n in enumerate(examples[:3])]
    assert found[:3] == wanted
    taken = 4  # those admitted with the one that fails, and none after
    assert all(place < taken for place, _ in found)


@ORDERS
def test_failures_are_isolated(order: str) -> None:
    examples = [5, 0, 9, 107, 0, 12] * 4
    stream = autobatch.stream(share, examples, 5, order=order, on_error="isolate", **QUICK)
    results = list(stream)
    assert sorted(place for place, _ in results) == list(range(len(examples)))
    assert order == "completion" or [place for place, _ in results] == list(range(len(examples)))
    for place, result in results:
        if examples[place]:
            assert result.value == share(examples[place]) and result.exception is None
        else:
            assert type(result.exception) is ZeroDivisionError


def test_an_endless_example_does_not_hold_the_others_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "FUEL", 100)
    monkeypatch.setattr(streamed, "MOST_ROUNDS", 400)

    def until(n: int) -> int:
        rounds = 0
        while n != 0:
            n = n - 1
            rounds += 1
        return rounds

    examples = itertools.chain([3, -1, 390, 150], itertools.repeat(2))
    stream = autobatch.stream(until, examples, 4, **QUICK)
    found = dict(itertools.islice(stream, 20))
    stream.close()
    assert found.pop(0) == 3 and found.pop(2) == 390 and found.pop(3) == 150
    assert 1 not in found and set(found.values()) == {2}


def test_an_infinite_iterable_is_drawn_as_far_as_the_width() -> None:
    drawn: list[int] = []

    def seeds() -> Any:
        for seed in itertools.count(1):
            drawn.append(seed)
            yield seed

    stream = autobatch.stream(throws, seeds(), 16, shared={"sides": 6}, **QUICK)
    first = list(itertools.islice(stream, 5))
    assert first == [(place, throws(place + 1, 6)) for place in range(5)]
    assert len(drawn) == 16
    stream.close()


def test_draws_go_through_the_engine_by_their_seeds() -> None:
    def steps(x: float, bound: float) -> int:
        count = 0
        while abs(x) < bound:
            x = x + torch.randn(()).item()
            count += 1
        return count

    def streamed_by(**options: Any) -> dict[int, int]:
        shared = {"bound": 3.0}
        return dict(autobatch.stream(steps, [0.0] * 50, 8, shared=shared, seed=7, **options))

    assert streamed_by(**QUICK) == streamed_by(executor="vmap")
    assert streamed_by(**QUICK) == streamed_by(engine="sequential")


def test_tensor_programs_go_block_by_block() -> None:
    def settled(x: Tensor, weight: Tensor) -> Tensor:
        while x.norm() > 0.5:
            x = torch.tanh(weight @ x) * 0.9
        return x

    weight = torch.randn(6, 6) / 3
    examples = list(torch.randn(40, 6))
    with torch.no_grad():
        stream = autobatch.stream(
            settled, examples, 8, shared={"weight": weight}, order="input", **QUICK
        )
        for place, found in stream:
            torch.testing.assert_close(found, settled(examples[place], weight))


def test_examples_of_several_types() -> None:
    def half(x: Any) -> Any:
        while x > 10:
            x = x / 2
        return x

    examples: list[Any] = [3, 40.0, torch.tensor(50.0), 7, torch.tensor(3), 99.5, True] * 3
    found = list(autobatch.stream(half, examples, 4, order="input", scalars="tensor", **QUICK))
    for (place, value), example in zip(found, examples, strict=True):
        assert place == found.index((place, value)) if type(value) is not Tensor else True
        want = half(example)
        assert type(value) is type(want)
        if isinstance(want, Tensor):
            assert value.dtype == want.dtype
        assert value == want
