"""Loop rotation: a round of a simple loop is one block; what the program does stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from autobatch.frontend import lower_function
from autobatch.ir.verifier import verify
from autobatch.passes.rotation import MOST, rotate_loops
from autobatch.passes.simplify import simplify
from tests.building import Lines, block, function
from tests.language import cases

FUNCTIONS = list(dict.fromkeys(func for func, _ in cases() if func.__name__ != "matching"))


def shape(func: Callable[..., Any]) -> list[tuple[int, ...]]:
    made = simplify(rotate_loops(simplify(lower_function(func))))
    return [each.successors() for each in made.blocks]


def count(n):
    i = 0
    while i < n:
        i += 1
    return i


def both_ways(n):
    i = 0
    while i < n:
        if i % 3 == 0:
            i += 2
            continue
        i += 1
    return i


def nested(n):
    found = 0
    for i in range(n):
        for j in range(i):
            found += j
    return found


def under_mode(x):
    while x.sum() < 3:
        with torch.no_grad():
            x = x + 1
    return x


def test_a_round_is_one_block():
    assert shape(count) == [(1, 2), (1, 2), ()]


def test_a_test_that_several_ways_come_back_to_is_not_copied():
    """They meet at it; each for itself would ask it for fewer threads at a time."""
    assert shape(both_ways) == [(1,), (2, 5), (3, 4), (1,), (1,), ()]


def test_the_inner_loop_only():
    """The outer one is left to its inner test, which is no jump."""
    assert shape(nested) == [(1,), (2, 4), (3, 1), (3, 1), ()]


def test_modes_are_kept_apart():
    made = rotate_loops(simplify(lower_function(under_mode)))
    for each in made.blocks:
        assert not (each.modes and any(op.name == "lt" for op in each.ops))


@pytest.mark.parametrize("ops, copied", [(MOST, True), (MOST + 1, False)])
def test_long_tests_are_not_copied(ops, copied):
    at = Lines()
    head = block(*(at.op("x = copy x") for _ in range(ops)), at.branch("x", 1, 2))
    made = function("f", "x", head, block(at.jump(0)), block(at.give("x")))
    assert (len(rotate_loops(made).blocks[1].ops) == ops) is copied


@pytest.mark.sampled(6)
@pytest.mark.parametrize("func", FUNCTIONS, ids=lambda func: func.__name__)
def test_the_corpus_is_well_formed(func):
    assert verify(rotate_loops(simplify(lower_function(func)))) == []


def test_steps_of_a_loop():
    with autobatch.counts() as counts:
        autobatch.vmap(count)(torch.tensor([3, 1, 0]))
    assert counts.block_executions == 1 + 3 + 1
    assert counts.host_reads == 1 + 3
