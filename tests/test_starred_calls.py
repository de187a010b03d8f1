"""``f(*x)``: what ``x`` gives is taken once, and before what comes after it is worked out."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.oracle import assert_matches_loop

Takes = Callable[..., Any]

ARGS = (torch.tensor([4, 3, 5, 0, 2, 4]), torch.tensor([7, 2, 0, 9, 1, 3]).double())


def less(a: Any, b: Any = 0, *more: Any) -> Any:
    if a == 3:
        raise ValueError("three")
    return a - b + len(more)


def total(*numbers: Any) -> Any:
    return sum(numbers)


ITERATORS: dict[str, Callable[..., Any]] = {
    "a list": lambda n, y: iter([n - 3, n]),
    "a range": lambda n, y: iter(range(n)),
    "a chain": lambda n, y: itertools.chain([n, 2]),
    "a map": lambda n, y: map(operator.neg, [n, n]),
    "none": lambda n, y: iter([]),
}
CALLS: dict[str, Takes] = {
    "an operator": lambda it, n, y: operator.floordiv(*it),
    "a function of the library": lambda it, n, y: math.sqrt(*it),
    "max": lambda it, n, y: max(*it),
    "a list's method": lambda it, n, y: [1, 3].pop(*it),
    "a program": lambda it, n, y: less(*it),
    "either": lambda it, n, y: (less if n > 3 else total)(*it),
    "a program or not": lambda it, n, y: (less if n < 4 else operator.sub)(*it),
    "a tensor's method": lambda it, n, y: torch.zeros(2, 3).reshape(*it).shape[0],
    "and the next one": lambda it, n, y: less(*it, next(it)),
    "and what may fail": lambda it, n, y: total(*it, 1 / n),
    "twice": lambda it, n, y: total(*it, *it),
}
FAILURES = (ValueError, TypeError, IndexError, ZeroDivisionError, StopIteration, RuntimeError)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("make", ITERATORS.values(), ids=list(ITERATORS))
@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_an_iterator_is_used_up_once_whoever_fails(call: Takes, make: Callable[..., Any]) -> None:
    def caught(n, y):
        it = make(n, y)
        try:
            found = call(it, n, y)
        except FAILURES as error:
            found = str(error)
        return str(found), str(list(it))

    def uncaught(n, y):
        return str(call(make(n, y), n, y))

    for func in (caught, uncaught):
        assert_matches_loop(func, ARGS, batch_sizes=(1, 6), scalars="python")


def grown(n, y):
    xs = [n]
    return total(*xs, xs.append(n + 5) or 2), total(*xs, len(xs), *xs)


def grown_by_name(n, y):
    xs = [n]
    return str(dict(*[], a=xs.append(4), b=total(*xs))), max(*xs, key=lambda v: xs.append(v) or v)


@pytest.mark.parametrize("func", [grown, grown_by_name])
def test_it_is_laid_open_before_what_comes_after(func: Takes) -> None:
    assert_matches_loop(func, ARGS, batch_sizes=(1, 6), scalars="python")


class Taking:
    def all(self, *numbers: Any, **named: Any) -> Any:
        return numbers, named


def nested(n, y):
    def named(**others):
        return n, others

    each = lambda *those: those  # noqa: E731
    calls = (
        lambda: named(**[n]),
        lambda: named(k=1, **{"k": n}),  # noqa: PIE804
        lambda: each(*y),
        lambda: Taking().all(k=n, **{"k": 1}),  # noqa: PIE804
        lambda: Taking().all(**n),
        lambda: torch.nn.Identity()(**n),
        lambda: (named if n > 3 else Taking)(**n),
    )
    said = []
    for call in calls:
        try:
            said.append(call())
        except TypeError as error:
            said.append(str(error))
    return str(said)


def test_the_callee_is_named_as_python_names_it() -> None:
    assert_matches_loop(nested, ARGS, batch_sizes=(1, 6), scalars="python")


NO_ITERABLES: dict[str, Takes] = {
    "alone": lambda n, y: total(*n),
    "one for all": lambda n, y: total(*3),
    "none": lambda n, y: total(*None),
    "after another": lambda n, y: total(1, *n),
    "before another": lambda n, y: max(*3, n),
    "before what is worked out": lambda n, y: max(1, *n, 1 + n),
    "in a list": lambda n, y: [1, *n],
    "in a tuple": lambda n, y: (*3, n),
}


@pytest.mark.parametrize("call", NO_ITERABLES.values(), ids=list(NO_ITERABLES))
def test_what_is_no_iterable_is_told_as_python_tells_it(call: Takes) -> None:
    assert_matches_loop(call, ARGS, batch_sizes=(1, 6), scalars="python")
