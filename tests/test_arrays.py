"""Lists whose lengths differ by thread: they hold what Python's hold, and run batched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.oracle import assert_matches_loop
from tests.test_counts import counted

NS = torch.tensor([3, 0, 5, 1, 0, 7, 2])
MS = torch.tensor([1, 2, 0, 4, 3, 1, 6])
SIZES = (0, 1, 2, 7)


def appended(n: int, m: int) -> tuple[int, int]:
    out = []
    for i in range(n):
        out.append(i * m)
    out.append(m)
    return len(out), sum(out)


def read(n: int, m: int) -> tuple[int, int, int]:
    out = [m]
    for i in range(n):
        out.append(out[-1] + i)
        out[0] += out[i // 2]
    total = 0
    for j in range(len(out)):
        total = total * 3 + out[j]
    return total, out[m % len(out)], out[-1 - m % len(out)]


def walked(n: int, m: int) -> tuple[float, int]:
    xs = [0.5 * i for i in range(n)]
    total, count = 0.0, 0
    for place, x in enumerate(xs):
        total = total / 2 + x
        if place < m and len(xs) < 12:
            xs.append(x + m)
        count += 1
    return total, count


def stacked(n: int, m: int) -> int:
    stack, seen = [(n, 1)], 0
    while stack:
        node, weight = stack.pop()
        seen = seen * 2 % 9973 + node * weight
        for child in range(node // 2):
            stack.append((child + m % 2, weight + 1))
    return seen


def halves(n: int, m: int) -> list[int]:
    xs = [(i * 7 + m) % 5 for i in range(n + 2)]
    left, right = xs[: m % 3], xs[m:]
    both = left + right + [m]
    both += left
    return [len(left), len(right), len(both), both[0], both[-1], sum(both), sum(xs[1:-1])]


def aliased(n: int, m: int) -> tuple[int, int, bool, bool]:
    xs = []
    ys = xs
    for i in range(n):
        if i % 2 == m % 2:
            xs.append(i)
        else:
            ys.append(-i)
        if len(ys) > 3:
            xs = xs[1:]
    zs = ys.copy()
    if zs:
        zs[0] = 100
    return sum(xs), sum(ys), xs is ys, ys == zs


def add_to(xs: list[int], n: int) -> int:
    if n > 0:
        xs.append(n)
        return add_to(xs, n - 1) + len(xs)
    return 0


def recursive(n: int, m: int) -> tuple[int, int]:
    xs = [m]
    total = add_to(xs, n)
    total += add_to(xs, m)
    return total, sum(xs)


def collected(n: int) -> list[int]:
    if n <= 0:
        return [0]
    left = collected(n - 1)
    right = collected(n - 2)
    return [*left, n, *right]


def joined(n: int, m: int) -> tuple[int, int]:
    xs = collected(n % 5) + collected(m % 4)
    return len(xs), sum(x * (i + 1) for i, x in enumerate(xs))


def sieve(n: int, m: int) -> int:
    flags = [True] * 0
    for _ in range(n + m):
        flags.append(True)
    i = 2
    while i < len(flags):
        if flags[i]:
            j = i * i
            while j < len(flags):
                flags[j] = False
                j += i
        i += 1
    return sum(1 for flag in flags if flag)


def caught(n: int, m: int) -> tuple[int, int]:
    xs = list(range(n))
    missed = 0
    for i in range(m):
        try:
            xs.append(xs.pop() + xs[i])
        except IndexError:
            missed += 1
            xs.append(m)
    return sum(xs), missed


def counted_up(n: int, m: int) -> int:
    counts = [0] * 3
    longer = []
    for i in range(n * 4):
        counts[(i * m) % 3] += 1
        longer.append(i)
        longer[(i * m) % len(longer)] += 1
    return counts[0] * 100 + counts[1] * 10 + counts[2] + sum(longer)


def emptied(n: int, m: int) -> tuple[int, int, bool]:
    xs = list(range(n))
    while xs and xs[-1] >= m:
        xs.pop()
    again = bool(xs)
    while not xs or len(xs) < m:
        xs.append(m)
        if len(xs) > 9:
            break
    del xs[-1]
    return len(xs), sum(xs), again


def mixed(n: int, m: int) -> tuple[str, int]:
    xs = [1]
    for i in range(n):
        xs.append(i)
    if m % 2:
        xs.append("a")
    if m % 3:
        xs[0] = 0.5
    return str(xs), len(xs)


def searched(n: int, m: int) -> tuple[bool, bool, int]:
    xs = [i * i for i in range(n)]
    return m in xs, 4 in xs, max(xs, default=-1)


PROGRAMS = [
    appended, read, walked, stacked, halves, aliased, recursive, joined, sieve, caught,
    counted_up, emptied, mixed, searched,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_lists_of_numbers_are_as_in_the_loop(program: Callable[..., Any]) -> None:
    assert_matches_loop(program, (NS, MS), scalars="python", batch_sizes=SIZES)


def popped(n: int, m: int) -> int:
    xs = list(range(n))
    for _ in range(m):
        xs.pop()
    return len(xs)


def out_of_range(n: int, m: int) -> int:
    xs = list(range(n))
    return xs[m]


def assigned(n: int, m: int) -> int:
    xs = list(range(n))
    xs[-m] = 3
    return sum(xs)


@pytest.mark.parametrize("program", [popped, out_of_range, assigned])
@pytest.mark.parametrize("first", range(5))
def test_the_lowest_thread_s_error_is_pythons(program: Callable[..., Any], first: int) -> None:
    args = (NS[first:], MS[first:])
    assert_matches_loop(program, args, scalars="python")


def pushes(n: int) -> int:
    out = []
    while len(out) < n:
        out.append(len(out))
    return out[-1] if out else -1


def test_a_loop_that_appends_is_as_long_as_its_longest_thread() -> None:
    ns = torch.tensor([3, 40, 0, 25, 11, 6, 33, 1, 18, 29, 22, 14])
    for count in (40, 80):
        longest = torch.where(ns == 40, count, ns)
        counts = counted(pushes, longest, scalars="python", executor="vmap")
        blocks = sorted(counts.by_block.values())[-1]
        assert blocks == count
        assert counts.fallbacks == 0


def kept_down(xs: list[int], n: int) -> int:
    if n <= 0:
        return len(xs)
    xs.append(n)
    return kept_down(xs, n - 2) if n % 3 else kept_down(xs, n - 1)


@pytest.mark.parametrize("program", [pushes, lambda n: kept_down([], n)])
def test_rows_that_are_copied_do_not_grow_with_the_list(program: Callable[[int], int]) -> None:
    """Twice the rounds copy twice the rows: each split and meeting moves what it did before."""

    def copies(n: int) -> int:
        ns = torch.arange(n - 16, n)
        return counted(program, ns, scalars="python", executor="vmap").row_copies

    short, long, longer = copies(40), copies(80), copies(120)
    assert longer - long <= 1.1 * (long - short)
