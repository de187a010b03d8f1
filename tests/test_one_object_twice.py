"""What is one list in two arguments of a thread is one in the program, too, and a private one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch

Program = Callable[[Any, Any, Any], Any]
WAYS: list[dict[str, Any]] = [
    {},
    {"plain": "never"},
    {"executor": "vmap"},
    {"trace_after": 0, "plain": "never"},
    {"engine": "sequential"},
    {"engine": "program_counter", "trace_after": 0, "plain": "never"},
]


def appended(a: Any, b: Any, x: Any) -> Any:
    a.append(5)
    return x * len(b)


def of_a_tensor(a: Any, b: Any, x: Any) -> Any:
    a[0] = x
    return b[0] + 1


def beside_a_branch(a: Any, b: Any, x: Any) -> Any:
    total = x * 0
    for number in list(b):
        total = total + number
        if x > 1:
            a.append(number + x)
        else:
            b[0] = 7
    return total, len(a), len(b), a[0]


def in_a_call(a: Any, b: Any, x: Any) -> Any:
    def grown(a: Any, n: int) -> Any:
        if n > 0:
            a.append(n)
            grown(b, n - 1)
        return a

    return len(grown(a, 3)), sum(b), a == b


def sorted_after(a: Any, b: Any, x: Any) -> Any:
    first = a[0]
    a.sort(reverse=True)
    b.append(0)
    return first * 10 + b[0], a[-1], a[0]


def identical(a: Any, b: Any, x: Any) -> Any:
    return sum(a) + x, a is b, a == b


PROGRAMS = [appended, of_a_tensor, beside_a_branch, in_a_call, sorted_after, identical]


def rows() -> list[tuple[list[int], list[int], float]]:
    """Some threads have one list twice, some the list of another thread, some lists alike."""
    one, two = [1, 2], [4, 3]
    pairs = [(one, one), (one, two), (two, two), (two, [4, 3]), ([9], [9]), (one, one)]
    return [(a, b, float(x)) for x, (a, b) in enumerate(pairs)]


def looped(program: Program, given: list[tuple[Any, ...]]) -> list[Any]:
    return [program(a, b, torch.tensor(x)) for a, b, x in map(copy.deepcopy, given)]


def flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [leaf for part in value for leaf in flat(part)]
    return [float(value)]


def row_of(result: Any, row: int) -> Any:
    return tuple(part[row] for part in result) if isinstance(result, tuple) else result[row]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_of_each_thread(program: Program, way: dict[str, Any]) -> None:
    given = rows()
    want = looped(program, given)
    columns = [autobatch.objects(list(each)) for each in list(zip(*given, strict=True))[:2]]
    batched = autobatch.vmap(program, **way)
    for _ in range(3):
        got = batched(*columns, torch.tensor([x for _, _, x in given]))
        assert [flat(row_of(got, row)) for row in range(len(given))] == list(map(flat, want))
    assert given == rows()


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_of_all_threads(program: Program, way: dict[str, Any]) -> None:
    one = [1, 2]
    want = looped(program, [(one, one, 0.0), (one, one, 3.0)])
    batched = autobatch.vmap(program, in_dims=(None, None, 0), **way)
    for _ in range(3):
        got = batched(one, one, torch.tensor([0.0, 3.0]))
        assert [flat(row_of(got, row)) for row in range(2)] == list(map(flat, want))
    assert one == [1, 2]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_of_a_stream(program: Program) -> None:
    given = rows()
    want = looped(program, given)
    examples = ((a, b, torch.tensor(x)) for a, b, x in given)
    for way in ({}, {"plain": "never"}, {"engine": "program_counter"}):
        for index, got in autobatch.stream(program, list(examples), width=4, **way):
            assert flat(got) == flat(want[index])
        examples = ((a, b, torch.tensor(x)) for a, b, x in given)
