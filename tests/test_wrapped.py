"""Decorators of nested functions that take on the names of what they wrap."""

from __future__ import annotations

import functools

import pytest
import torch

from tests.oracle import assert_matches_loop

NUMBERS = torch.tensor([3, 1, 2])


def decorated(n):
    def twice(f):
        @functools.wraps(f)
        def g(*args):
            return f(*args) * 2

        return g

    @twice
    def h(x):
        return x + 1

    return h(n)


def wrapped_by_hand(n):
    def g(x):
        return x * 2

    def h(x):
        return x + 1

    functools.update_wrapper(g, h)
    return g(n) + h(n)


def names(n):
    def f(x):
        return x

    @functools.wraps(f)
    def g(x):
        return x + n

    return g(n), g.__name__


def wrapped_in_some(n):
    def h(x):
        return x + 1

    if n > 1:

        @functools.wraps(h)
        def g(x):
            return h(x) * 5

        return g(n)
    return h(n)


@pytest.mark.parametrize("program", [decorated, wrapped_by_hand, names, wrapped_in_some])
def test_the_wrapper_runs(program):
    assert_matches_loop(program, (NUMBERS,))
