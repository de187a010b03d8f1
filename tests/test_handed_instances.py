"""Objects with a ``__call__``, made in the program, that host code is given to call."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import autobatch

X = torch.tensor([1.0, -2.0, 3.0])


class Count:
    def __init__(self) -> None:
        self.n = 0
        self.seen: list[Any] = []

    def __call__(self, value: Any, *others: Any) -> Any:
        self.n += 1
        self.seen.append(value)
        return -value - sum(others)


class Through(Count):
    """It can be gone through, too."""

    def __iter__(self) -> Iterator[Any]:
        return iter([1.0, 2.0])


class Shown(Through):
    """Nobody goes through it: that would write what existed before."""

    def __iter__(self) -> Iterator[Any]:
        LOG.append("through")
        return iter([1.0])


LOG: list[Any] = []
KEPT = Count()


def by_map(k, xs):
    return sum(list(map(k, xs)))


def by_filter(k, xs):
    return sum(list(filter(k, xs)))


def by_sorted(k, xs):
    return sorted(xs, key=k)[0]


def by_sort(k, xs):
    xs.sort(key=k)
    return xs[0]


def by_min_and_max(k, xs):
    return min(xs, key=k) - max(xs, key=k)


def by_reduce(k, xs):
    return functools.reduce(k, xs)


def by_a_partial(k, xs):
    return sum(list(map(functools.partial(k, xs[0]), xs)))


def by_a_method(k, xs):
    return sorted(xs, key=k.__call__)[0]


def by_the_largest(k, xs):
    return heapq.nlargest(1, xs, key=k)[0]


def by_accumulate(k, xs):
    return list(itertools.accumulate(xs, k))[-1]


def later(k, xs):
    lazy = map(k, xs)
    return next(lazy) + k.n


def called_and_gone_through(k, xs):
    return sum([a + b for a, b in zip(k, map(k, xs))]) + min(k) + max(k) + sorted(k)[1]  # noqa: B905


CALLS = [
    *(by_map, by_filter, by_sorted, by_sort, by_min_and_max, by_reduce, by_a_partial),
    *(by_a_method, by_the_largest, by_accumulate, later),
]
ENGINES: list[dict[str, Any]] = [
    {"engine": "stackless", "plain": "never"},
    {"engine": "program_counter", "plain": "never"},
    {"engine": "sequential"},
]


def held_to_the_loop(how, kind, options):
    def program(x):
        k = kind()
        found = how(k, [x, x * 2, x - 1])
        return found, k.n, sum(k.seen)

    value, count, total = autobatch.vmap(program, **options)(X)
    for place, x in enumerate(X):
        want = program(x)
        assert (value[place], count[place], total[place]) == want


@pytest.mark.sampled(6)
@pytest.mark.parametrize("options", ENGINES, ids=lambda each: each["engine"])
@pytest.mark.parametrize("kind", [Count, Through, Shown])
@pytest.mark.parametrize("how", CALLS)
def test_a_callable_of_the_programs_own_may_write_to_itself(how, kind, options):
    held_to_the_loop(how, kind, options)
    assert LOG == []


@pytest.mark.parametrize("options", ENGINES, ids=lambda each: each["engine"])
def test_what_can_be_called_can_still_be_gone_through(options):
    held_to_the_loop(called_and_gone_through, Through, options)


@pytest.mark.parametrize("options", ENGINES, ids=lambda each: each["engine"])
@pytest.mark.parametrize(
    "handed", [KEPT, KEPT.__call__, functools.partial(KEPT), functools.partial(KEPT.__call__)]
)
def test_one_that_existed_before_may_not(handed, options):
    def program(x):
        return sorted([x, x * 2], key=handed)[0]

    with pytest.raises(autobatch.SharedWriteError):
        autobatch.vmap(program, **options)(X)
    assert (KEPT.n, KEPT.seen) == (0, [])
