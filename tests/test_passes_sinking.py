"""The method of a list that grows is looked up where it is called, not before its argument."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.frontend import lower_function
from autobatch.ir.program import Function
from autobatch.ir.verifier import verify
from autobatch.passes import PIPELINE
from autobatch.passes.simplify import simplify
from autobatch.passes.sinking import sink_methods
from tests.language import cases
from tests.oracle import assert_matches_loop

FUNCTIONS = list(dict.fromkeys(func for func, _ in cases() if func.__name__ != "matching"))


def with_argument(x: Tensor, n: Tensor) -> Tensor:
    seen = []
    for i in range(4):
        seen.append(torch.tanh(x * i))
    return torch.stack(seen)


def by_copy(x: Tensor, n: Tensor) -> Tensor:
    total, seen = x, []
    for i in range(4):
        total = total + i
        seen.append(total * i)
    return torch.stack(seen)


def of_an_argument(x: Tensor, n: Tensor) -> Tensor:
    """Nobody knows what it is, nor what comes of the look-up."""
    x.append(n * 2)
    return x


def of_two_lists(x: Tensor, n: Tensor) -> Tensor:
    seen = [x]
    if n > 3:
        seen = [x, x]
    seen.append(x * 2)
    return torch.stack(seen).sum(0)


def of_another_then(x: Tensor, n: Tensor) -> int:
    """The list that was looked up is the one that grows."""
    seen = first = []
    seen.append(seen := [x, x])
    return len(first) * 10 + len(seen)


def order(function: Function) -> list[str]:
    """The look-ups of ``append``, and what else is called or computed."""
    found = []
    for block in function.blocks:
        for op in block.ops:
            if op.name == "getattr" and op.attr == "append":
                found.append("append")
            elif op.name in ("call", "mul", "add"):
                found.append(op.name)
    return found


def unsunk(func: object) -> Function:
    """What the pipeline comes to without the pass."""
    passes = [each for each in PIPELINE if each is not sink_methods]
    program = autobatch.lower(func, passes=passes)
    return program.functions[program.entry]


@pytest.mark.parametrize(
    ("func", "before", "after"),
    [
        (with_argument, "append mul call call", "mul call append call"),
        (by_copy, "add append mul call", "add mul append call"),
        (of_an_argument, "append mul", "append mul"),
        (of_two_lists, "append mul call", "append mul call"),
        (of_another_then, "append call", "append call"),
    ],
)
def test_look_ups_move(func, before, after):
    made = unsunk(func)
    assert before in " ".join(order(made))
    moved = sink_methods(made)
    assert after in " ".join(order(moved))
    assert verify(moved) == []
    assert sink_methods(moved) is moved or order(sink_methods(moved)) == order(moved)


@pytest.mark.parametrize("func", [with_argument, by_copy, of_two_lists, of_another_then])
def test_the_loops_results(func):
    xs, ns = torch.linspace(-1.0, 1.0, 7 * 3).reshape(7, 3), torch.arange(7)
    assert_matches_loop(func, (xs, ns), batch_sizes=(0, 1, 2, 7))


@pytest.mark.parametrize("func", FUNCTIONS, ids=lambda func: func.__name__)
def test_every_construct_stays_sound(func):
    made = simplify(lower_function(func))
    moved = sink_methods(made)
    assert verify(moved) == []
    assert sorted(map(id, ops_of(moved))) == sorted(map(id, ops_of(made)))


def ops_of(function: Function) -> list[object]:
    return [op for block in function.blocks for op in block.ops]
