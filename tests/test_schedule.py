"""Schedules: any order of waiting blocks gives the same results; what each costs is counted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

import autobatch
from programs.ackermann import ackermann
from programs.collatz import collatz
from programs.fibonacci import fibonacci
from programs.negamax import example as negamax_example
from tests.oracle import assert_matches_loop

ENGINES = ("stackless", "program_counter")


class Shuffled:
    """Picks at random; keeps what it was shown."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.seen: list[Sequence[autobatch.WaitingBlock]] = []

    def __call__(self, waiting: Sequence[autobatch.WaitingBlock]) -> int:
        self.seen.append(waiting)
        return self.draw.randrange(len(waiting))


def nested_loops(n):
    total = 0
    for i in range(n):
        k = i
        while k > 0:
            k = k // 2
            if k % 3 == 1:
                total += 1
        if total > 9:
            break
    return total


def parting(n):
    """Collatz's steps by branches that are no selects: lists are made."""
    steps = 0
    while n != 1:
        n = [n // 2][0] if n % 2 == 0 else [3 * n + 1][0]
        steps += 1
    return steps


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("schedule", ["most_threads", Shuffled(0), Shuffled(1)])
@pytest.mark.parametrize("func", [collatz, nested_loops, fibonacci], ids=lambda f: f.__name__)
def test_results_do_not_depend_on_it(func, schedule, engine):
    ns = torch.tensor([7, 1, 9, 3, 8, 6, 2])
    options: dict[str, Any] = {"engine": engine, "schedule": schedule}
    assert_matches_loop(
        func, [ns], scalars="python", batch_sizes=(0, 1, 2, 7), configurations=(options,)
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_schedule_is_shown(engine):
    policy = Shuffled(2)
    ns = torch.arange(1, 30)
    assert autobatch.vmap(parting, schedule=policy, engine=engine)(ns).tolist() == [
        parting(int(n)) for n in ns
    ]
    assert policy.seen
    for waiting in policy.seen:
        assert len(waiting) > 1
        assert [block.pc for block in waiting] == sorted({block.pc for block in waiting})
        assert 0 < sum(block.threads for block in waiting) <= len(ns)
        assert all(
            block.function == "parting" and block.block == f"b{block.pc}" for block in waiting
        )


def executions(**options: Any) -> int:
    with autobatch.counts() as counts:
        autobatch.vmap(ackermann, fork="off", scalars="python", **options)(
            torch.tensor([1, 2, 2, 0, 2]), torch.tensor([4, 1, 3, 5, 2])
        )
    return counts.block_executions


def test_counts_differ():
    """The same schedule costs the same each time, and another another number of executions."""
    earliest = executions(engine="program_counter")
    assert executions(engine="program_counter", schedule="earliest") == earliest
    most = executions(engine="program_counter", schedule="most_threads")
    assert executions(engine="program_counter", schedule="most_threads") == most
    assert most != earliest


@pytest.mark.parametrize("wrong", [-1, 99, None, True])
def test_a_choice_that_is_none(wrong):
    with pytest.raises(autobatch.OptionError, match="index of one of them"):
        autobatch.vmap(parting, schedule=lambda waiting: wrong)(torch.arange(1, 9))


def test_a_choice_may_be_an_int_of_numpys():
    xs = torch.arange(1, 9)
    chosen = autobatch.vmap(parting, schedule=lambda waiting: np.int64(len(waiting) - 1))
    assert torch.equal(chosen(xs), autobatch.vmap(parting)(xs))


def test_an_error_in_a_schedule_comes_out():
    def broken(waiting):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        autobatch.vmap(parting, schedule=broken)(torch.arange(1, 9))


def test_unlike_groups_with_forked_calls_wait_for_their_join():
    """More of them than turn into objects: what they have forked is none yet."""
    game = negamax_example(64)
    want = autobatch.vmap(game.function)(*game.mapped(autobatch.objects, autobatch.ragged))
    got = autobatch.vmap(game.function, schedule="most_threads")(
        *game.mapped(autobatch.objects, autobatch.ragged)
    )
    torch.testing.assert_close(got, want, rtol=0, atol=0)
