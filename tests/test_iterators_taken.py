"""What takes items of an iterator leaves it where Python does, however it runs."""

from __future__ import annotations

import collections
import functools
import heapq
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.oracle import assert_matches_loop

Taken = Callable[..., Any]

ALL_OR_SOME: dict[str, Taken] = {
    "any": lambda it, n, y: any(it),
    "all": lambda it, n, y: all(it),
    "in": lambda it, n, y: (5 in it, n in it),
    "in, then any": lambda it, n, y: (5 in it, any(it)),
    "min": lambda it, n, y: min(it),
    "max": lambda it, n, y: max(it),
    "max of pairs": lambda it, n, y: max(enumerate(it)),
    "max, starred": lambda it, n, y: max(*it),
    "min by key": lambda it, n, y: min(it, key=lambda v: -v),
    "max or else": lambda it, n, y: max(it, default=3),
    "sum": lambda it, n, y: sum(it),
    "sum from": lambda it, n, y: sum(it, y),
    "sorted": lambda it, n, y: sorted(it, reverse=True),
    "zip": lambda it, n, y: list(zip(it, it, strict=False)),
    "dict": lambda it, n, y: dict(zip(it, it, strict=False)),
    "fromkeys": lambda it, n, y: {}.fromkeys(it),
    "filter": lambda it, n, y: list(filter(None, it)),
    "union": lambda it, n, y: sorted({3}.union(it)),
    "generator": lambda it, n, y: any(v > 2 for v in it),
    "islice": lambda it, n, y: list(itertools.islice(it, 2)),
    "takewhile": lambda it, n, y: list(itertools.takewhile(lambda v: v > 0, it)),
    "chain": lambda it, n, y: next(itertools.chain(it, [n])),
    "pairwise": lambda it, n, y: next(itertools.pairwise(it)),
    "accumulate": lambda it, n, y: next(itertools.accumulate(it)),
    "deque": lambda it, n, y: list(collections.deque(it, maxlen=1)),
    "reduce": lambda it, n, y: functools.reduce(operator.add, it),
    "fsum": lambda it, n, y: math.fsum(it),
    "nlargest": lambda it, n, y: heapq.nlargest(1, it),
    "indexOf": lambda it, n, y: operator.indexOf(it, y),
}

UNPACKED: dict[str, Taken] = {
    "iter": lambda n, y: iter([n, 0, y, 5.0]),
    "range": lambda n, y: iter(range(n)),
    "items": lambda n, y: iter({1: n, 100: 2, 200: y}.items()),
    "zip": lambda n, y: zip([n, 1, y], [y, 2, n], strict=True),
    "reversed": lambda n, y: reversed([n, 1, y]),
    "map": lambda n, y: map(operator.neg, [n, 1, y]),
}

FAILS: dict[str, Taken] = {
    "sum": lambda it, n, y: sum(it, []),  # noqa: RUF017
    "sum of a string": lambda it, n, y: sum(itertools.chain(it, "a")),
    "dict": lambda it, n, y: dict(it),
    "min": lambda it, n, y: min(it, "a"),
    "join": lambda it, n, y: "".join(it),
}


def rest_of(take: Taken) -> Callable[..., Any]:
    def func(n, y):
        it = iter([n, 0, y, 5.0])
        return str(take(it, n, y)), str(list(it))

    return func


def rest_after_failing(take: Taken) -> Callable[..., Any]:
    def func(n, y):
        it = iter([n, 0, y, 5.0])
        try:
            found = take(it, n, y)
        except TypeError:
            found = None
        return str(found), str(list(it))

    return func


ARGS = (torch.tensor([1, 3, 5, 0]), torch.tensor([7.0, 2.0, 0.5, 9.0], dtype=torch.float64))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("take", ALL_OR_SOME.values(), ids=list(ALL_OR_SOME))
def test_what_is_left(take):
    assert_matches_loop(rest_of(take), ARGS, batch_sizes=(1, 4), scalars="python")


@pytest.mark.parametrize("take", FAILS.values(), ids=list(FAILS))
def test_what_is_left_after_an_error(take):
    assert_matches_loop(rest_after_failing(take), ARGS, batch_sizes=(1, 4), scalars="python")


@pytest.mark.parametrize("make", UNPACKED.values(), ids=list(UNPACKED))
def test_who_has_too_many_items_to_unpack_keeps_those_that_nobody_has_asked_for(make):
    def func(n, y):
        it = make(n, y)
        try:
            a, b = it
        except ValueError as error:
            a, b = str(error), None
        return str((a, b)), str(list(it))

    assert_matches_loop(func, ARGS, batch_sizes=(1, 4), scalars="python")


def counted_from(n, y):
    return str([place for place, _ in enumerate([y, y], n)]), type(next(enumerate([y], n))[0])


def counted_from_a_float(n, y):
    return str(list(enumerate([n], y)))


def counted_from_a_bool(n, y):
    return str(list(enumerate([n, y], n > 2))), str(list(enumerate(iterable=[n], start=n)))


@pytest.mark.parametrize("scalars", ["python", "tensor"])
@pytest.mark.parametrize("func", [counted_from, counted_from_a_float, counted_from_a_bool])
def test_enumerate_counts_in_ints(func, scalars):
    assert_matches_loop(func, ARGS, batch_sizes=(1, 4), scalars=scalars)
