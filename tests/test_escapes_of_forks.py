"""Numbers that leave int64, or their type, in what waits for forked calls: all as in the loop."""

from __future__ import annotations

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

DEPTHS = torch.tensor([0, 1, 2, 3, 4, 2, 5, 1])
LARGE = torch.tensor([1, 2**40, 2**61, 2**62, 5, -(2**62), 3, 2**63 - 1])
SIZES = (0, 1, 2, 7, 8)


def summed(n, m):
    if n <= 0:
        return m
    t = 0
    for _ in range(2):
        t += summed(n - 1, m)
    return t


def as_text(n, m):
    return str(summed(n, m))


def multiplied(n, m):
    t = m
    for _ in range(3):
        t = t * length(n)
    return str(t)


def length(n):
    return 1 if n <= 0 else length(n - 1) + 1


def best(n, m):
    if n <= 0:
        return m
    found = 0
    for i in range(2):
        one = best(n - 1, m + i) * 2
        if one > found:
            found = one
    return found


def best_as_text(n, m):
    return str(best(n, m))


def gathered(n, m):
    found = []
    for i in range(3):
        found.append(summed(n, m + i) * 3)
    return str(found)


def fails_or_leaves(n, m):
    t = 0
    for i in range(3):
        t += summed(n, m) // (n - 3)
        t *= 1 + i
    return str(t)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("func", [as_text, multiplied, best_as_text, gathered, fails_or_leaves])
def test_ints_that_leave_where_calls_join(func):
    assert_matches_loop(func, (DEPTHS, LARGE), batch_sizes=SIZES, scalars="python")


def lists_in_part(n, x, acc):
    if n < 2:
        return x
    if x > 3:
        acc += [n]
    return lists_in_part(n - 1, x, acc[:]) + 1


def items_written(n, x, acc):
    if n < 2:
        return x
    acc[0] = n
    return items_written(n - 1, x, acc)


def least_of_what_ran_at_once(walk):
    def program(n, x):
        seen = [1]
        least = 0.0
        for _ in range(2):
            least = min(walk(n % 5, x, seen), 2.0)
        return str(least), len(seen)

    return program


@pytest.mark.parametrize("walk", [lists_in_part, items_written])
def test_a_result_that_is_at_hand_when_it_was_to_be_waited_for(walk):
    """``min`` of ints and a float differs in type; the calls write, so that none is forked."""
    args = (torch.tensor([1, 1, 4, 9, 8]), torch.tensor([9, -5, 2, 3, 1]))
    program = least_of_what_ran_at_once(walk)
    assert_matches_loop(program, args, batch_sizes=(0, 1, 2, 5), scalars="python")


def drawn_by(n, m):
    return (summed(n, m) % 7) + float(torch.rand(()))


def drawn_after_results(n, m):
    t = 0.0
    for _ in range(2):
        t += drawn_by(summed(n, m) % 3, m)
    return str(t), float(torch.rand(()))


def drawn_where_some_fail(n, m):
    t = 0.0
    for i in range(2):
        k = summed(n, m) // (n - i - 1)
        t += drawn_by(k % 3, m)
    return str(t), float(torch.rand(()))


class Asking:
    def __init__(self, yes):
        self.yes = yes

    def __bool__(self):
        print(end="")
        return self.yes


def squared_until(n, m, asking):
    t = 0
    while m < 2**70:
        t += length(n) + length(n + 1)
        m = m * m + 3
        if asking:
            t += 1
    return str(t + m)


def test_a_branch_that_waits_for_forked_calls():
    """The calls come before the branch, since it asks a class of the user's: after what waits."""
    asking = autobatch.objects([Asking(n % 2 == 0) for n in range(len(DEPTHS))])
    assert_matches_loop(squared_until, (DEPTHS, LARGE, asking), scalars="python")


WAYS = [
    {"executor": "vmap"},
    {"executor": "vmap", "fork": "off"},
    {"executor": "traced", "trace_after": 0, "plain": "never"},
    {"engine": "program_counter", "executor": "vmap"},
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("func", [drawn_after_results, drawn_where_some_fail])
def test_what_runs_again_draws_the_same(func, way):
    """As by the sequential engine, which runs nothing again."""
    shared = {"scalars": "python", "seed": 3, "on_error": "isolate"}
    expected = autobatch.vmap(func, engine="sequential", **shared)(DEPTHS, LARGE)
    assert str(autobatch.vmap(func, **way, **shared)(DEPTHS, LARGE)) == str(expected)
