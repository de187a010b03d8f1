"""Builtins and methods that are given too many arguments, too few, or such as they do not know."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.oracle import assert_matches_loop

NUMBERS = (torch.tensor([4, 3, 0]),)
BUILTINS: tuple[Callable[..., Any], ...] = (
    *(len, reversed, list, tuple, iter, next, sum, min, max, any, all, abs, sorted, isinstance),
    *(
        issubclass,
        getattr,
        hasattr,
        setattr,
        slice,
        bool,
        range,
        enumerate,
        functools.partial,
    ),
)
METHODS: tuple[tuple[type, str], ...] = (
    *((list, name) for name in ("append", "extend", "insert", "clear", "reverse", "copy", "pop")),
    *((dict, name) for name in ("get", "pop", "setdefault", "update", "clear", "copy")),
)


def told(call: Callable[[], Any]) -> str:
    try:
        return type(call()).__name__
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.sampled(12)
@pytest.mark.parametrize("function", BUILTINS, ids=lambda f: f.__name__)
def test_builtins(function):
    def counts(n):
        found = []
        for count in (0, 1, 2, 3, 4):
            given = [n] * count
            found.append(told(lambda given=given: function(*given)))
        return str(found)

    def names(n):
        xs = [n, 2]
        return told(lambda: function(xs, bogus=1)), told(lambda: function(xs, strict=n))

    assert_matches_loop(counts, NUMBERS, scalars="python")
    assert_matches_loop(names, NUMBERS, scalars="python")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind, name", METHODS, ids=lambda part: getattr(part, "__name__", part))
def test_methods(kind, name):
    def counts(n):
        found = []
        for count in (0, 1, 2, 3):
            own = [1, n] if kind is list else {1: n}
            given = [n] * count
            found.append((told(lambda o=own, g=given: getattr(o, name)(*g)), own))
        return str(found)

    assert_matches_loop(counts, NUMBERS, scalars="python")


def test_a_dict_updated_by_nothing():
    def func(n):
        own = {1: n}
        own.update()
        own.update(a=n)
        return own

    assert_matches_loop(func, NUMBERS)
