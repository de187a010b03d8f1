"""``zip(..., strict=True)``: batched where the sequences are as long as each other."""

from __future__ import annotations

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

XS = torch.arange(12.0).reshape(4, 3)
LENGTHS = (3, 1, 0, 2)


def of_tensors(x):
    total = x.sum() * 0
    for a, b, c in zip(x, x * 2, (1, 2, 3), strict=True):
        total = total + a * b + c
    return total


def of_lists(x):
    ends = [x[0]]
    for step in range(int(x[1]) % 3 + 1):
        ends.append(x[2] * step)
    return sum(a * b for a, b in zip(ends, [*ends[1:], x[0]], strict=True))


def of_rows(x, y):
    total = torch.zeros(())
    for a, b in zip(x, y, strict=True):
        total = total + a * b
    return total


def unequal(x):
    total = x.sum()
    other = x[: 2 + int(x[0] < 6)]
    for a, b in zip(x, other, strict=True):
        total = total + a - b
    return total


def shared_iterator(x):
    rest = iter([x[0], x[1]])
    return next(a + b for a, b in zip(rest, rest, strict=True))


def ragged(seed, lengths=LENGTHS):
    draw = torch.Generator().manual_seed(seed)
    return autobatch.ragged([torch.randn(length, generator=draw) for length in lengths])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("func", [of_tensors, of_lists, unequal, shared_iterator])
def test_results_are_the_loops(func):
    assert_matches_loop(func, (XS,))


@pytest.mark.parametrize("lengths", [LENGTHS, (3, 1, 0, 3)])
def test_ragged_results_are_the_loops(lengths):
    """The second time the last example's two are of different lengths."""
    assert_matches_loop(of_rows, (ragged(0), ragged(1, lengths)))


@pytest.mark.parametrize("func, args", [(of_tensors, (XS,)), (of_rows, (ragged(0), ragged(1)))])
def test_nothing_runs_thread_by_thread(func, args):
    autobatch.vmap(func, fallback="error")(*args)
