"""Streams under ``on_error="isolate"``: each example's value or exception, and room for others."""

from __future__ import annotations

import gc
import itertools
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import autobatch
from autobatch import DepthLimitError, Result, StepLimitError
from autobatch.vm.invariants import checking
from autobatch.vm.stack import Stack
from tests.sweeps import case
from tests.test_isolation import Odd, assert_apart, loop
from tests.test_stream import ENGINES, ORDERS, WAYS, WIDTHS, same
from tests.test_stream import loop as plain_loop

EXAMPLES = [(k % 11, k % 4) for k in range(90)]


def divides(n, m):
    total = 0
    while n > 0:
        total = total + 12 // (n - m)
        n = n - 2
    if total > 12:
        raise ValueError(f"{total} is too much")
    return total


def deep(n, m):
    if n == 0:
        return 1 // m
    return deep(n - 1, m) + deep(n - 1, m - (n % 2))


def caught(n, m):
    done = 0
    for i in range(n):
        try:
            done = done + 12 // (i - m)
        except ZeroDivisionError as error:
            if m == 2:
                raise Odd(n, reason="two") from error
            done = done - 100
    return done


def check(func: Callable[..., Any], examples: list[Any], **options: Any) -> None:
    expected = loop(func, examples)
    with checking():
        found = list(autobatch.stream(func, iter(examples), on_error="isolate", **options))
    indices = [index for index, _ in found]
    if options.get("order") == "input":
        assert indices == list(range(len(examples)))
    assert sorted(indices) == list(range(len(examples)))
    assert_apart([result for _, result in sorted(found, key=lambda pair: pair[0])], expected)


OVER_WAYS = [
    case(
        *(func, way, width, order),
        name=f"{func.__name__}-{order}-{width}-{'-'.join(map(str, way.values()))}",
        default=(i + j + k + m) % 2 == 0,
    )
    for i, func in enumerate((divides, caught))
    for j, order in enumerate(ORDERS.args[1])
    for k, width in enumerate(WIDTHS.args[1])
    for m, way in enumerate(WAYS.args[1])
]


@pytest.mark.sampled(32)
@pytest.mark.parametrize(("func", "way", "width", "order"), OVER_WAYS)
def test_values_and_exceptions(func, way, width, order):
    check(func, EXAMPLES, width=width, order=order, **way)


@pytest.mark.sampled(12)
@WAYS
@pytest.mark.parametrize("width", [1, 7, 64])
def test_threads_that_fail_in_calls(way, width):
    check(deep, [(n % 5, m) for n, m in EXAMPLES], width=width, **way)


@WAYS
@pytest.mark.parametrize("place", [0, 1, 5])
def test_arguments_that_do_not_fit(way, place):
    examples: list[Any] = [(n, 3) for n in range(8)]
    examples[place] = (1, 2, 3)
    found = dict(autobatch.stream(divides, examples, 3, on_error="isolate", **way))
    assert type(found[place].exception) is TypeError
    assert "positional arguments but 3 were given" in str(found[place].exception)
    wanted = loop(divides, [(n, 3) for n in range(8)])
    for index in set(range(8)) - {place}:
        same(found[index].value, wanted[index].value)
        assert type(found[index].exception) is type(wanted[index].exception)


@ENGINES
def test_all_examples_fail(engine):
    with checking():
        found = list(autobatch.stream(divides, [(1, 1)] * 30, 4, on_error="isolate", engine=engine))
    assert sorted(index for index, _ in found) == list(range(30))
    assert all(type(result.exception) is ZeroDivisionError for _, result in found)
    assert len({id(result.exception) for _, result in found}) == 30


def endless(n):
    while n >= 5:
        n = n + 0
    return n


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
def test_steps_are_an_examples_own(engine):
    """However long the stream, those that end do so; each that does not is stopped in its turn."""
    source = [7 if index % 9 == 4 else 1 for index in range(200)]
    stream = autobatch.stream(endless, source, 5, on_error="isolate", engine=engine, max_steps=60)
    for index, result in stream:
        if source[index] == 1:
            assert result == Result(1)
        else:
            assert type(result.exception) is StepLimitError
            assert f"Example index: {index}" in "\n".join(result.exception.__notes__)
    raised = autobatch.stream(endless, [1] * 200, 5, engine=engine, max_steps=60)
    assert len(list(raised)) == 200


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
def test_too_many_steps(engine):
    stream = autobatch.stream(
        endless, [1, 7, 2, 8, 3], 5, on_error="isolate", engine=engine, max_steps=60
    )
    found = dict(stream)
    assert sorted(found) == [0, 1, 2, 3, 4]
    for index, value in ((0, 1), (2, 2), (4, 3)):
        assert found[index] == Result(value)
    for index in (1, 3):
        error = found[index].exception
        assert type(error) is StepLimitError
        assert re.search(rf"Example index: {index}$", "\n".join(error.__notes__), re.M)
        assert "while n >= 5" in str(error)


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
def test_too_deep(engine):
    examples = [(k % 9, 3) for k in range(40)]
    found = dict(
        autobatch.stream(deep, examples, 6, on_error="isolate", engine=engine, max_depth=6)
    )
    wanted = loop(deep, examples)
    for index, (n, _) in enumerate(examples):
        error = found[index].exception
        if n < 6:
            assert (found[index].value, type(error)) == (
                wanted[index].value,
                type(wanted[index].exception),
            )
        else:
            assert type(error) is DepthLimitError
            assert re.search(rf"Example index: {index}$", "\n".join(error.__notes__), re.M)


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
def test_failed_examples_are_let_go(engine):
    class Item:
        def __init__(self, n: int) -> None:
            self.n = n

    def fails(item):
        return 12 // item.n

    alive: list[weakref.ref[Item]] = []

    def items() -> Iterator[Item]:
        for n in itertools.cycle([0, 1, 0]):
            item = Item(n)
            alive.append(weakref.ref(item))
            yield item

    stream = autobatch.stream(fails, items(), 4, on_error="isolate", engine=engine)
    for _ in itertools.islice(stream, 400):
        pass
    gc.collect()
    assert sum(reference() is not None for reference in alive) < 100


def test_slots_of_failed_threads_are_released(monkeypatch):
    stacks: list[Stack] = []
    made = Stack.of.__func__
    monkeypatch.setattr(
        Stack, "of", classmethod(lambda cls, *a: stacks.append(made(cls, *a)) or stacks[-1])
    )
    examples = [(4, 0)] * 200 + [(4, 30)]
    stream = autobatch.stream(deep, examples, 8, on_error="isolate", engine="program_counter")
    for _ in stream:
        (stack,) = stacks
        assert len(stack.below) <= 2 * 8 * 5 + 16
    assert not stack.saved and not stack.depths.any()
    assert list(stack.faults()) == []


@ENGINES
def test_a_thread_that_fails_makes_room(engine):
    drawn: list[int] = []

    def examples() -> Iterator[tuple[int, int]]:
        for k in range(20):
            drawn.append(k)
            yield (0, 0) if k == 1 else (3000 if k == 0 else 5, 1)

    def trips(n, m):
        done = 12 // m
        while done < n:
            done += 1
        return done

    first, *_ = autobatch.stream(trips, examples(), 2, on_error="isolate", engine=engine)
    assert (first[0], type(first[1].exception)) == (1, ZeroDivisionError)
    results = dict(autobatch.stream(trips, examples(), 2, on_error="isolate", engine=engine))
    assert results[0] == Result(3000) and results[19] == Result(12)


def test_without_failures_results_are_those_of_the_loop():
    examples = [(k, 30) for k in range(20)]
    found = dict(autobatch.stream(divides, examples, 5, on_error="isolate"))
    assert [found[k].value for k in range(20)] == plain_loop(divides, examples)
    assert all(result.exception is None for result in found.values())


def test_tensors_and_shared_arguments():
    def picks(x, i, *, scale):
        return x[i] * scale

    examples = [(torch.arange(3.0) + k, k % 5) for k in range(12)]
    found = dict(
        autobatch.stream(
            picks, examples, 4, shared={"scale": torch.tensor(2.0)}, on_error="isolate"
        )
    )
    for k in range(12):
        if k % 5 < 3:
            same(found[k].value, (torch.arange(3.0) + k)[k % 5] * 2.0)
        else:
            assert type(found[k].exception) is IndexError
