"""Lists that machine code returns: read from the memory of the launch that has made them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from autobatch.compiled import kernel
from autobatch.errors import StackingError
from tests.of_its_own import of_its_own
from tests.oracle import assert_matches_loop
from tests.test_compiled import why_not
from tests.test_compiled_lists import COMPILED, EACH, program_of
from tests.test_compiled_rules import hold_each

pytest.importorskip("llvmlite")

N = torch.arange(70) % 23 - 3
F = N.double() * 0.37


def held(function: Callable[..., Any], *columns: Any) -> autobatch.Counts:
    """Hold a program to the loop, bit by bit; its counts."""
    sizes = [size for size in (1, 7) if size < len(columns[0])]
    assert_matches_loop(
        function, columns, batch_sizes=[*sizes, None], configurations=(COMPILED,),
        scalars="python", rtol=0.0, atol=0.0,
    )  # fmt: skip
    with autobatch.counts() as found:
        autobatch.vmap(function, **COMPILED)(*columns)
    return found


RESULTS = (
    "s = []\nfor i in range(a):\n    s.append(b * i)\nreturn s",
    "s = [a]\ns.append(b)\nreturn s, a, s",
    "s = [a]\ns.append(b)\nt = [s, s]\nt.append(s)\nreturn t",
    "s = [a]\ns.append(b)\ns.append(True)\nreturn s, b > 0, (a, s)",
    "s = [[i * j for j in range(3)] for i in range(a)]\nreturn s",
    "s = [(a, b)]\ns.append((1, 2.0))\nreturn s",
    "s = [None, a]\ns.append(b if a > 3 else None)\nreturn s",
    "s = []\nif a > 3:\n    return s\ns.append(b)\nreturn s if b > 2 else [1]",
    "s = ['x'] * a\ns.append('y')\nreturn s",
    "s = [a]\ns.append(7)\nreturn {'x': s, 'y': s[0], 'n': 1 / (a - 4)}",
    "s = [1]\ns.append(9223372036854775807 if a == 4 else 3)\ns[0] += s[1]\nreturn s",
    "s = [a]\nt = s\nt.append(1)\nreturn {'x': [s, t], 'y': t[:1]}",
)  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("body", RESULTS)
def test_each_example_has_its_own_list(body: str) -> None:
    hold_each(program_of(body), EACH, "python")


def test_two_names_of_one_list_are_two_of_one() -> None:
    program = program_of("s = [a]\ns.append(b)\nreturn s, [s, [a]]")
    for result in autobatch.vmap(program, on_error="isolate", **COMPILED)(*EACH):
        first, (second, third) = result.value
        assert first is second and first is not third


def in_order(n: int) -> Any:
    row = [n, 3, n * 2 % 7, -1]
    row.append(n % 5)
    return sorted(row), max(row), row if n > 3 else row[::-1]


def board(n: int) -> Any:
    rows = [[0] * 3 for _ in range(3)]
    rows[n % 3][n * 2 % 3] = n
    return rows


def mixed(n: int, x: float) -> Any:
    row: list[Any] = [n, n > 2, x]
    row[n % 3] = x
    return row, n / 2, n


def either(n: int) -> Any:
    row = [n]
    row.append(2)
    return row if n % 2 else [n, n + 1]


def pairs(n: int) -> Any:
    found = []
    for i in range(3):
        found.append((i, i * n / 2))
    return found


STACKED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "in order": (in_order, (N,)),
    "board": (board, (N,)),
    "mixed": (mixed, (N, F)),
    "either": (either, (N,)),
    "pairs": (pairs, (N,)),
}


@pytest.mark.parametrize("name", STACKED)
def test_lists_of_one_length_stack(name: str) -> None:
    function, columns = STACKED[name]
    found = held(function, *columns)
    assert (found.launches, found.given_up) == (1, 0)


def test_tensors_in_a_list_stack() -> None:
    def program(x: Any) -> Any:
        found = []
        for i in range(3):
            found.append(x * i)
        return found

    for dtype in (torch.float32, torch.int16, torch.bool):
        assert_matches_loop(
            program, (N.to(dtype),), batch_sizes=(1, 7), configurations=({"executor": "compiled"},)
        )


def counted(n: int) -> Any:
    return list(range(n))


def test_lists_of_several_lengths_are_told_with_the_line_that_returns_them() -> None:
    with pytest.raises(StackingError, match=r"list\(range") as caught:
        autobatch.vmap(counted, **COMPILED)(torch.tensor([3, 1]))
    assert "here a list of 3, in thread 0" in str(caught.value)


GIVING_UP = """
s = [i for i in range(a)]
s.append(7)
try:
    s.sort(key=lambda v: 1 // (v - 3))
except ZeroDivisionError:
    return -1, s
return 0, s
"""


def test_lists_from_machine_code_and_elsewhere_are_told_apart() -> None:
    with pytest.raises(StackingError, match="return different structures"):
        autobatch.vmap(program_of(GIVING_UP), **COMPILED)(N[[6, 3, 4, 1, 8, 11, 5]], F[:7])


def test_words_of_several_lengths_are_lists_of_their_own() -> None:
    def program(n: int) -> Any:
        found = ["a"] * n
        found.append("b")
        return found

    held(program, torch.tensor([3, 0, 1]))


def test_threads_that_give_up_return_lists_from_elsewhere() -> None:
    def program(n: int) -> Any:
        found = [n]
        for _ in range(3):
            found.append(found[-1] * 2)
        return [v // 8 for v in found]

    assert held(program, torch.tensor([1, 2**61, 5])).given_up == 1


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of 4 KiB, so that a launch ends early with those of few threads."""
    monkeypatch.setattr(kernel, "HEAP", 2**12)


@pytest.mark.usefixtures("few_bytes")
@pytest.mark.parametrize("function", [in_order, either, mixed])
def test_launches_end_where_their_memory_does(function: Any) -> None:
    columns = (N, F)[: function.__code__.co_argcount]
    found = held(of_its_own(function), *columns)
    assert found.given_up == 0


@pytest.mark.usefixtures("few_bytes")
def test_memory_of_a_thread_is_as_much_as_ever() -> None:
    def program(n: int) -> Any:
        found = [0] * n
        found.append(1)
        return found[-1:]

    assert held(program, torch.tensor([3, 2000, 9])).given_up == 1


def test_streams_hand_out_lists() -> None:
    columns = [(n,) for n in range(40)]
    stream = autobatch.stream(counted, columns, width=8, executor="compiled", scalars="python")
    assert dict(stream) == {at: counted(n) for at, (n,) in enumerate(columns)}


def test_a_list_that_may_hold_itself_is_told() -> None:
    def program(n: int) -> Any:
        found: list[Any] = [n]
        found.append(found)
        return found[1]

    options = {**COMPILED, "on_error": "isolate"}
    said = autobatch.explain(autobatch.function(**options)(program), N[:3]).compiled
    assert "it returns a list that may hold itself" in said


def named_twice(n: int) -> Any:
    one, other = [n], [n]
    if n > 1:
        other = one
    return one, (other, [n]), {"a": [one, one]}


def given_twice(given: list[int], n: int) -> Any:
    return given, [n, given]


@pytest.mark.parametrize("options", [{"on_error": "isolate"}, {"ragged_out": "list"}], ids=str)
def test_a_list_that_is_named_twice_is_one(options: dict[str, Any]) -> None:
    """Also where nobody writes it."""
    counts = torch.tensor([1, 2, 3])

    def alone(found: Any, at: int) -> Any:
        if "on_error" in options:
            return found[at].value
        one, (other, own), inner = found
        return one[at], (other[at], own[at]), {"a": inner["a"][at]}

    with autobatch.counts() as seen:
        found = autobatch.vmap(named_twice, **COMPILED, **options)(counts)
    assert seen.block_executions == 1
    for at, n in enumerate(counts.tolist()):
        one, (other, own), inner = alone(found, at)
        assert ((one, (other, own), inner)) == named_twice(n) and own is not one
        assert inner["a"][0] is inner["a"][1] is one and (other is one) == (n > 1)


def test_an_argument_that_is_named_twice_is_left_to_the_blocks() -> None:
    given = [torch.tensor([1, 2]), torch.tensor([3, 4])]
    batched = autobatch.vmap(given_twice, on_error="isolate", **COMPILED)
    for result in batched(given, torch.tensor([5, 6])):
        assert result.value[1][1] is result.value[0]


def test_an_object_in_a_list_is_told() -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    def program(n: int) -> Any:
        found = [Point(n)]
        found.append(Point(n + 1))
        return found

    assert "it returns an object of the type Point" in why_not(program, N[:3], scalars="python")
