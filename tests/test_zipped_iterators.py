# ruff: noqa: B905
"""Iterators that are zipped with ones that end first in some examples: they stay where they are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import autobatch

COUNTS = torch.tensor([0, 3, 1, 5])
TABLE = [1.0, 2.0, 4.0, 8.0]


def of_a_list(n):
    rest = iter([1.0, 2.0, 4.0, 8.0])
    total = 0.0
    for _, item in zip(range(n), rest):
        total += item
    return total, sum(rest)


def counted(n):
    rest = iter([1.0, 2.0, 4.0, 8.0])
    total = 0.0
    for _, (at, item) in zip(range(n), enumerate(rest)):
        total += item * at
    return total, sum(rest)


def of_a_range(n):
    rest = iter(range(1, n + 7))
    total = 0
    for _, item in zip(range(n), rest):
        total += item
    return total, sum(rest)


def of_a_dict(n):
    rest = iter({"a": 1.0, "b": 2.0, "c": 4.0})
    names = ""
    for _, name in zip(range(n), rest):
        names += name
    return len(names), len(list(rest))


def backwards(n):
    rest = reversed([1.0, 2.0, 4.0, 8.0])
    total = 0.0
    for _, item in zip(range(n), rest):
        total += item
    return total, sum(rest)


def by_a_generator_expression(n):
    seen = []
    rest = (seen.append(item) or item for item in TABLE)
    total = 0.0
    for _, item in zip(range(n), rest):
        total += item
    return total, len(seen)


def of_the_host(n):
    seen = []

    def told(item):
        seen.append(item)
        return item

    own = iter(sorted([0.5] * n)) if n > 1 else iter({1.0: 0})
    total = 0.0
    for first, second in zip(own, map(told, TABLE)):
        total += first * second
    return total, len(seen)


def zipped_twice(n):
    first, second = iter([1.0, 2.0, 4.0, 8.0]), iter([3.0, 5.0, 7.0, 9.0])
    total = 0.0
    for _, (left, right) in zip(range(n), zip(first, second)):
        total += left * right
    return total, sum(first) - sum(second)


def asked_by_name(n):
    rest = iter([1.0, 2.0, 4.0, 8.0])
    pairs = zip(range(n), rest)
    a = next(pairs, (0, 0.0))
    b = next(pairs, (0, 0.0))
    return a[1] + b[1], sum(rest)


def in_a_comprehension(n):
    rest = iter([1.0, 2.0, 4.0, 8.0])
    total = sum([item for _, item in zip(range(n), rest)])
    return total, sum(rest)


def with_the_longest(n):
    """CPython lets go of an iterator that has ended, and leaves no object in its place."""
    total = 0.0
    for item, at in itertools.zip_longest([1.0, 2.0], range(n)):
        total += (item or 0.5) * (at or 1)
    return total, len(list(itertools.zip_longest([n], [1, n, 2], fillvalue=n)))


def in_part_with_the_longest(n):
    rest = itertools.zip_longest([1.0], [2.0, 4.0, 8.0], fillvalue=0.0)
    first, second = next(rest), next(rest)
    if n > 1:
        first = second
    return first[1], sum(last for _, last in rest)


PROGRAMS: list[Callable[..., Any]] = [
    *(of_a_list, counted, of_a_range, of_a_dict, backwards, by_a_generator_expression),
    *(of_the_host, zipped_twice, asked_by_name, in_a_comprehension, with_the_longest),
    in_part_with_the_longest,
]
OPTIONS: Iterator[dict[str, Any]] = (
    {"engine": "stackless", "plain": "never"},
    {"engine": "program_counter", "plain": "never"},
    {"executor": "compiled"},
)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options.values())))
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_zip_takes_nothing_where_an_iterator_before_has_ended(program, options):
    found = autobatch.vmap(program, scalars="python", **options)(COUNTS)
    want = [program(n) for n in COUNTS.tolist()]
    for place, column in enumerate(found):
        assert column.tolist() == [row[place] for row in want]
