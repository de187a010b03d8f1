"""Forked calls wait: what fails in a later call meanwhile is not what the thread raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch


def refuses(n: int) -> int:
    if n == 2:
        raise ValueError(n)
    return n


def divides(n: int) -> int:
    return 10 // (n - 2)


def divides_on_a_way(n: int) -> int:
    return 10 // (n - 2) if n == 2 else n


def within(n: int) -> int:
    return divides_on_a_way(n) + divides(n)


def in_a_loop(n: int) -> int:
    for _ in range(2):
        refuses(n)
        divides(n)
    return n


def of_other_rounds(n: int) -> int:
    total = 0
    for i in range(3):
        total += refuses(n + i) + divides(n + 1 - i)
    return total


def in_a_list(n: int) -> int:
    return sum([refuses(n) + divides(n) for _ in range(2)])


def in_a_sum_before(n: int) -> int:
    return sum([refuses(n + i) for i in range(2)]) + divides(n)


def two_calls_deep(n: int) -> int:
    total = 0
    for _ in range(2):
        total += refuses(n)
        total += within(n)
    return total


def in_a_recursion(n: int, depth: int = 2) -> int:
    if depth == 0:
        return refuses(n)
    return in_a_recursion(n, depth - 1) + divides(n) + in_a_recursion(n, depth - 1)


def divided_first(n: int) -> int:
    for i in range(2):
        divides(n + i)
        refuses(n + 1 - i)
    return n


def caught(n: int) -> int:
    try:
        for _ in range(2):
            refuses(n)
            divides(n)
    except ValueError:
        return -1
    except ZeroDivisionError:
        return -2
    return n


def after_a_choice(n: int) -> int:
    """What is still to be seen of a group comes after what it has forked."""
    found = 0
    for _ in range(2):
        found = n * n - (n and divides_on_a_way(n + 1))
        found = sum([refuses(n), divides(n)]) * len([divides_on_a_way(3) for _ in range(n % 3)])
    return found


def of_rows_in_another_order(n: int) -> int:
    """Threads that meet after a loop are in another order than they came."""
    total, seen = 0, [0]
    for i in range(n % 3):
        total += i + len([refuses(3) for _ in range(n % 3)])
    for _ in range(2):
        total += in_a_recursion(len(seen) + 2, 1) + sum([refuses(n), divides(n)])
    return total


def in_lists_of_other_lengths(n: int) -> int:
    """What is forked goes into a list that each thread has of its own: it runs first."""
    found: list[Any] = []
    if n % 2:
        found.append(n)
    found.append(in_a_recursion(n + 3, 1))
    return refuses(n) * divides_on_a_way(n - 1) + sum(found)


PROGRAMS = [
    in_lists_of_other_lengths, after_a_choice, of_rows_in_another_order,
    in_a_loop, of_other_rounds, in_a_list, in_a_sum_before, two_calls_deep, in_a_recursion,
    divided_first, caught,
]  # fmt: skip
WAYS: list[dict[str, Any]] = [
    {}, {"plain": "never"}, {"plain": "never", "trace_after": 0}, {"fork": "off"},
    {"engine": "program_counter"},
]  # fmt: skip


def told(program: Callable[[int], int], n: int) -> Any:
    try:
        return program(n)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_thread_raises_what_comes_first_in_the_program(
    program: Callable[[int], int], way: dict[str, Any]
) -> None:
    for order in ([0, 1, 2], [2, 6], [2, 1, 0], [1, 3, 2, 0, 2], [3, 4]):
        expected = [told(program, n) for n in order]
        ns = torch.tensor(order)
        results = autobatch.vmap(program, scalars="python", on_error="isolate", **way)(ns)
        found = [
            r.value if r.exception is None else (type(r.exception), str(r.exception))
            for r in results
        ]
        assert found == expected
        first = next((each for each in expected if isinstance(each, tuple)), None)
        if first is not None:
            with pytest.raises(first[0]) as caught_now:
                autobatch.vmap(program, scalars="python", **way)(ns)
            assert str(caught_now.value) == first[1]
