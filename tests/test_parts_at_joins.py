# ruff: noqa
"""A part that plain Python runs may begin in a block that ends in a join: its threads go past it.

The program is as a generator has made it; with anything less in it nothing is a part there.
"""

from __future__ import annotations

import pytest
import torch

from tests.oracle import assert_matches_loop


def walk_1(n, x, acc):
    if n < 2:
        return x + x
    acc.append(n)
    left = walk_2(n - 1, x, acc)
    return max(abs(left), 2)


def walk_2(n, x, acc):
    if n <= 0:
        return 0.0 + n
    if x < (x % 3.0) ** 2:
        return walk_1(n - 1, n, [])
    left = walk_1(n - 1, n, [])
    return (x := x) * 0.5


def helper_3(p_4, p_5, p_6):
    i_7 = 0
    while True:
        i_7 += 1
        if i_7 > 4 or not i_7 % 2:
            break
    if i_7 % 3 == 1:
        i_8 = 0
        while True:
            i_8 += 1
            if i_8 > 4 or p_6 > float(torch.tensor([0.5, -1.0, 2.0]).max()):
                break
    return i_7 / 8 * (p_4 % 1.5 % 2.0)


def program(a, b):
    n = int(a)
    s = 0.0
    xs = []
    y = torch.ones(3)
    s = walk_1(n % 6, n % 1.5, xs)
    i_9 = 0
    while i_9 < 4 and n > abs(n):
        i_9 += 1
        if i_9 > 2 or any((e == n for e in xs[:5])):
            break
        if n < n * 3 + 3:
            break
        if i_9 > (5 or 1):
            if len(xs) > 0 and xs[0] > n:
                ints_10 = list(reversed(xs))
                y -= (torch.tensor([0.5, -1.0, 2.0]) + s + walk_1(n % 5, 1.5, xs)) * 1.0
            else:
                a += 1
                b.add_(1)
                ints_10 = sorted(xs)
            float_11 = helper_3(
                (lambda p: p + n)(1), torch.where(torch.tensor(2) > 0, a, a), torch.tensor(1.5)
            )
        elif y is y:
            if a > n % 9:
                bool_12 = any([True and True, False])
                if y is y:
                    with torch.no_grad():
                        y = torch.zeros(3, dtype=torch.float64).mean() * y.clamp(-2, 2)
                elif n > 2 or n in [3]:
                    n, *xs = (sorted(xs).count(2 // 3), 2 // 3 * 3, (i_9 % 5) ** 2 or 5 % -3)
                else:
                    n -= n & 7
                    n = n = int((b * y).argmax())
                    xs.append(n if n is not None else len(xs))
            elif y.sum() > walk_1(i_9 % 5, s, xs):
                with torch.no_grad():
                    y = y.flip(0) if True == True else y.float()
            elif n < n + 0.0:
                assert (n if n is not None else n) % -3 > -(10**40), "never"
            else:
                n = i_9 + max(i_9, 0, 1)
            i_13 = 0
            while i_13 < 3 and (n > 2 or (y > i_13).any()):
                i_13 += 1
            else:
                pass
    return {"result": (a, b, n, s, len(xs), sum(xs), xs[0] if xs else -99, y)}


@pytest.mark.parametrize("plain", ["auto", "never"])
def test_threads_that_a_part_takes_past_a_join_go_on(plain: str) -> None:
    args = (torch.arange(-20, 44), torch.linspace(-2, 2, 64, dtype=torch.float64))
    assert_matches_loop(program, args, plain=plain)
