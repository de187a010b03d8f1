"""Numbers that leave int64 in some threads, whose groups part, meet, and go through handlers."""

from __future__ import annotations

import pytest
import torch

from tests.oracle import assert_matches_loop

NUMBERS = torch.tensor([3, 2**40, 5, 2**62, -(2**63), 2**33, 7, 2**31 + 1])
FLOATS = torch.tensor([1.5, 1e30, 2.0, 1e19, -1e25, 3.0, 9e18, 1e300], dtype=torch.float64)
WAYS = torch.tensor([0, 1, 2, 3, 4, 5, 1, 3])
SIZES = (1, 2, 7, 8)


def in_one_arm(n, m):
    x = n * n if m % 2 else n + 1
    y = x * 2
    if y > 100:
        y = y - 1
    return str(y)


def in_loops(n, m):
    x = 1
    for _ in range(m):
        x = x * n
        if x % 7 == 3:
            x = x + 1
    return str(x)


def of_floats(x, m):
    k = m
    if m > 1:
        k = int(x)
    z = k + m
    return str(z // 3 if z > 5 else z)


def by_powers(n, m):
    z = n
    if m % 2:
        z = n**m
    elif m == 2:
        z = (n * n) // 3
    w = z + m
    while w > 10**20:
        w = w // 10
    return str(w)


def within_try(n, m):
    t = 0
    try:
        t = n * n
        if m == 3:
            t = t * (n // (n - 2**62))
    except ZeroDivisionError:
        t = t + 1
    return str(t - 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("func", [in_one_arm, in_loops, by_powers, within_try])
def test_ints_that_leave_in_groups_that_meet(func):
    assert_matches_loop(func, (NUMBERS, WAYS), batch_sizes=SIZES, scalars="python")


def test_floats_that_are_no_int64():
    assert_matches_loop(of_floats, (FLOATS, WAYS), batch_sizes=SIZES, scalars="python")


def assigned_as_it_is(x, n):
    y = x * 1.0
    if n > 4:
        y[0] = 3 * 2**62
    return y


def assigned_in_part(x, n):
    y = x * 1.0
    y[:2] = 3 * 2**62
    return y.sum() * n


@pytest.mark.parametrize("func", [assigned_as_it_is, assigned_in_part])
def test_an_int_beyond_int64_that_is_assigned_raises_as_in_torch(func):
    rows = torch.arange(12.0).reshape(4, 3)
    for numbers in (WAYS[:4], WAYS[1:5], torch.tensor([1, 9, 7, 2])):
        assert_matches_loop(func, (rows, numbers), batch_sizes=(1, 2, 4), scalars="python")
