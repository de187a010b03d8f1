"""What a stream draws, and when: places that few threads free, iterables that are slow or that use
one buffer again and again, results that wait for one before them.
"""

from __future__ import annotations

import gc
import itertools
import time
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.vm.invariants import checking
from tests.test_stream import ENGINES, WAYS, loop, same, trips


def endless(n):
    while n < 0:
        n = n + 0
    return n


def endless_rounds(n):
    while n < 0:
        left = 3
        while left > 0:
            left -= 1
    return n


def halved(x, n):
    while n > 0:
        x = x * 0.5 + 1
        n -= 1
    return x


# Few places.


@pytest.mark.sampled(4)
@ENGINES
@pytest.mark.parametrize("func", [endless, endless_rounds])
@pytest.mark.parametrize("few", [1, 4])
def test_places_are_filled_again_where_most_threads_never_end(func, few, engine):
    """A tenth of the width is never free, but what is does not wait for ever."""
    source = (n if n >= 64 - few else -1 for n in itertools.count())
    stream = autobatch.stream(func, source, 64, engine=engine, max_steps=20000)
    with checking(False):
        found = list(itertools.islice(stream, 5 * few))
        stream.close()
    assert sorted(found) == [(n, n) for n in range(64 - few, 64 + 4 * few)]


def test_few_places_wait_until_that_costs_as_much_as_filling_them():
    """Four of 64: 32 * 60 / 4 block executions."""
    drawn: list[int] = []
    taken: list[int] = []
    steps = itertools.count()

    def source() -> Iterator[int]:
        for n in itertools.count():
            drawn.append(n)
            taken.append(next(steps))
            yield n if n >= 60 else -1

    stream = autobatch.stream(endless, source(), 64, listeners=lambda step: next(steps))
    with checking(False):
        while len(drawn) < 72:
            next(stream)
    stream.close()
    assert drawn == list(range(72))
    waits = np.diff(np.array(taken)[[63, 64, 68]])
    assert (waits >= 480).all() and (waits <= 720).all(), waits


# Slow iterables.


@pytest.mark.sampled(2)
@ENGINES
def test_an_example_that_never_ends_does_not_keep_a_slow_iterable(engine):
    def slow() -> Iterator[int]:
        for n in (-1, 5, 7):
            time.sleep(0.12)
            yield n

    stream = autobatch.stream(endless, slow(), 8, engine=engine)
    with checking(False):
        assert [next(stream), next(stream)] == [(1, 5), (2, 7)]
    stream.close()


# Results that wait.


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_results_that_wait_for_one_before_them_are_bounded(engine):
    drawn: list[int] = []
    source = (drawn.append(n) or (-1 if n == 0 else n % 3) for n in itertools.count())
    stream = autobatch.stream(endless, source, 4, "input", engine=engine, max_steps=5000)
    with checking(False), pytest.raises(autobatch.StepLimitError):
        list(stream)
    assert 64 * 4 <= len(drawn) <= 65 * 4


def test_an_order_is_kept_beyond_that_bound():
    ns = [3000, *[1] * 1000]
    with checking(False):
        found = list(autobatch.stream(trips, iter(ns), 4, "input"))
    assert found == list(enumerate(2 * n for n in ns))


# Buffers.


def tensors() -> Iterator[Any]:
    buffer = torch.zeros(2)
    for n in range(10):
        yield buffer.fill_(n), n % 3


def views_of_arrays() -> Iterator[Any]:
    buffer = np.zeros((2, 3))
    for n in range(10):
        buffer += n
        yield {"x": buffer[n % 2], "n": n % 4}


def gradients() -> Iterator[Any]:
    buffer = torch.ones(2, requires_grad=True) * 1
    for n in range(5):
        yield buffer.mul_(2), n


@WAYS
@pytest.mark.parametrize("source", [tensors, views_of_arrays, gradients])
def test_iterables_that_fill_one_buffer(source, way):
    """An example is what it was when it was drawn."""
    wanted = []
    for example in source():
        example = {"x": example[0], "n": example[1]} if type(example) is tuple else example
        wanted += loop(halved, [{**example, "x": torch.as_tensor(example["x"]).clone()}])
    found = dict(autobatch.stream(halved, source(), 4, **way))
    same([found[index] for index in range(len(wanted))], wanted)


class Pair(NamedTuple):
    x: Any
    n: int


def arrays_in_dicts(x, n):
    return {"x": x.numpy(), "n": n}


def arrays_in_lists(x, n):
    return [[x.numpy()], n]


def named(x, n):
    return Pair(x, n)


def named_in_lists(x, n):
    return [Pair(x.numpy(), n)]


@pytest.mark.sampled(2)
@WAYS
@pytest.mark.parametrize("made", [arrays_in_dicts, arrays_in_lists, named, named_in_lists])
def test_iterables_that_fill_one_buffer_within_a_structure(made, way):
    def source() -> Iterator[Any]:
        buffer = torch.zeros(2)
        for n in range(10):
            yield (made(buffer.fill_(n), n % 3),)

    def last(example):
        while isinstance(example, list) and len(example) == 1:
            example = example[0]
        x, n = (example["x"], example["n"]) if isinstance(example, dict) else example
        x = torch.as_tensor(x[0] if isinstance(x, list) else x) + 0
        while n > 0:
            x = x * 0.5 + 1
            n -= 1
        return x

    wanted = [last(made(torch.full((2,), float(n)), n % 3)) for n in range(10)]
    found = dict(autobatch.stream(last, source(), 4, **way))
    same([found[index] for index in range(len(wanted))], wanted)


def test_bytes_that_are_filled_again():
    def source() -> Iterator[bytearray]:
        buffer = bytearray(1)
        for n in range(9):
            buffer[0] = n
            yield buffer

    assert dict(autobatch.stream(lambda b: b[0] * 2, source(), 4)) == {n: 2 * n for n in range(9)}


@WAYS
def test_iterables_that_fill_one_list(way):
    def lists() -> Iterator[list[int]]:
        made: list[int] = []
        for n in range(9):
            made.append(n)
            yield made

    def total(items):
        items.append(100)
        return sum(items)

    found = dict(autobatch.stream(total, lists(), 4, **way))
    assert found == {n: 100 + n * (n + 1) // 2 for n in range(9)}


# What an example is.


@ENGINES
def test_a_named_tuple_is_one_argument(engine):
    """A program takes it for a record, as a data loader gives it; a plain tuple is arguments."""

    def difference(pair, scale=1):
        return pair.x * scale - pair.n

    pairs = [Pair(torch.tensor(float(n)), n) for n in range(4)]
    for examples in (pairs, [(pair, 1) for pair in pairs], [{"pair": pair} for pair in pairs]):
        found = dict(autobatch.stream(difference, examples, engine=engine))
        assert found == {n: difference(pair) for n, pair in enumerate(pairs)}
    apart = dict(autobatch.stream(halved, map(tuple, pairs), engine=engine))
    assert apart == {n: halved(*pair) for n, pair in enumerate(pairs)}


# Interrupts.


@ENGINES
@pytest.mark.parametrize("order", ["completion", "input"])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_ends_a_stream_at_once(interrupt, order, engine):
    """What has been yielded stays, in the order that was asked for; nothing is kept of the rest."""
    alive: list[weakref.ref[Tensor]] = []

    def interrupted():
        for n in range(20):
            if n == 11:
                raise interrupt
            x = torch.tensor(float(n))
            alive.append(weakref.ref(x))
            yield x, n

    stream = autobatch.stream(halved, interrupted(), 4, order, engine=engine)
    found = {}
    with pytest.raises(interrupt):
        for index, result in stream:
            found[index] = result
    assert found
    assert found == {n: halved(torch.tensor(float(n)), n) for n in found}
    assert order == "completion" or list(found) == list(range(len(found)))
    assert next(stream, None) is None
    del stream
    gc.collect()
    assert not any(each() is not None for each in alive)
    again = autobatch.stream(halved, [(torch.tensor(1.0), 3)], engine=engine)
    assert dict(again) == {0: halved(torch.tensor(1.0), 3)}
