"""Iterators that came in through ``objects(...)`` are unpacked once for each example."""

from __future__ import annotations

from typing import Any

import pytest

import autobatch
from tests.oracle import CONFIGURATIONS


class Own:
    """An iterator of the user's."""

    def __init__(self, items):
        self.items = iter(items)

    def __iter__(self):
        return self

    def __next__(self):
        item = next(self.items)
        if item is None:
            raise ValueError("an item is missing")
        return item


def pair(it):
    a, b = it
    return a + b


def first(it):
    a, *b = it
    return a, str(b)


def last(it):
    next(it)
    (a,) = it
    return a


def caught(it):
    try:
        a, b = it
    except ValueError as error:
        return f"{error}; then {next(it, 'nothing')}"
    return str(a + b)


LISTS = (
    [[1, 2], [1, 2], [3, 4]],
    [[1, 2], [1, 2, 3], [1]],
    [[1, 2], [1], [1, 2, 3]],
    [[1], [1, 2, 3], [1]],
    [[1, 2], [3, None], [1]],
    [[1, 2, 3], [1, 2]],
)


def outcome(run: Any) -> Any:
    try:
        return run()
    except Exception as error:
        return type(error), str(error)


def stacked(rows: list[Any]) -> Any:
    return [list(column) for column in zip(*rows, strict=True)] if type(rows[0]) is tuple else rows


def listed(result: Any) -> Any:
    if isinstance(result, tuple) and not isinstance(result[0], type):
        return [list(map(listed, part)) for part in result]
    return result.tolist() if hasattr(result, "tolist") else result


@pytest.mark.sampled(4)
@pytest.mark.parametrize("options", CONFIGURATIONS, ids=str)
@pytest.mark.parametrize("kind", [iter, Own])
@pytest.mark.parametrize("program", [pair, first, last, caught])
def test_the_first_failure_is_the_loops(program, kind, options):
    for lists in LISTS:
        expected = outcome(lambda lists=lists: stacked([program(kind(own)) for own in lists]))
        batched = autobatch.vmap(program, **options)
        actual = outcome(
            lambda lists=lists, run=batched: listed(run(autobatch.objects([*map(kind, lists)])))
        )
        assert actual == expected, lists
