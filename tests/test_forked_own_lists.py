"""Calls that write to lists, dicts and sets of their own alone: they run together with others.

What each example's call makes has a length of its own, so that methods run thread by thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop


def shortened(n):
    found = [f"{i}" for i in range(n + 2)]
    found.reverse()
    found.remove("0")
    found.sort()
    return len(found.pop()) + len(found)


def without(n):
    found = {f"{i}" for i in range(n)}
    found.discard("0")
    return len(sorted(found))


def of_keys(n):
    found = {f"{i}": i for i in range(n + 1)}
    found.setdefault("x", n)
    del found["0"]
    return found.pop("x") + len(str(found))


def deep(step: Callable[..., Any]) -> Callable[..., Any]:
    def down(n):
        if n <= 1:
            return step(n)
        return down(n - 1) + down(n - 2) + step(n)

    return down


@pytest.mark.parametrize("step", [shortened, without, of_keys])
def test_methods_of_own_containers_are_no_effects(step: Callable[..., Any]) -> None:
    counts, down = torch.tensor([1, 5, 6, 3]), deep(step)
    with autobatch.counts() as seen:
        found = autobatch.vmap(down, scalars="python", plain="never")(counts)
    assert found.tolist() == [down(n) for n in counts.tolist()]
    assert seen.block_executions < 150


def best_path(steps, weights):
    score, back = weights[0], []
    for _ in range(1, len(steps)):
        score, best = (score[:, None] + weights).max(dim=0)
        back.append(best)
    state = score.argmax()
    path = [state]
    for best in back:
        state = best[state]
        path.append(state)
    path.reverse()
    return torch.stack(path), score.max()


def rows_of(steps, weights):
    rows = torch.empty(len(steps), 3)
    for t in range(len(steps)):
        rows[t] = weights[0]
    return rows


def path_and_rows(steps, weights):
    path, score = best_path(steps, weights)
    return path.sum(), score, rows_of(steps, weights).sum()


def test_a_path_turned_round_is_the_calls_own() -> None:
    weights = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, 0.0], [-0.5, 1.0, 0.75]])
    steps = autobatch.ragged([torch.arange(2 + i * 5 % 7) for i in range(7)])
    found = autobatch.vmap(path_and_rows, in_dims=(0, None))(steps, weights)
    for i, values in enumerate(zip(*found, strict=True)):
        for value, expected in zip(
            values, path_and_rows(torch.arange(2 + i * 5 % 7), weights), strict=True
        ):
            torch.testing.assert_close(value, expected)


# A list that a forked call has given, or is to.


def lists_of(x):
    return ([x * 2, x], [x]) if x > 0 else ([x], [])


def given_round_after_round(x):
    found = [x]
    for _ in range(2):
        found.append(x)
        found, rest = lists_of(x)
    return len(found), len(rest)


def appended_between(x):
    first, second = lists_of(x)
    first.append(x)
    third, _ = lists_of(x * 2)
    third.extend(first)
    return len(first), len(second), torch.stack(third).sum()


def inserted_into_a_copy(x):
    first = lists_of(x)[0]
    for k in range(2):
        again = first
        again.insert(0, x * k)
        first, _ = lists_of(x - k)
        again.append(first[0])
    return torch.stack(again).sum(), len(first)


def sets_of(x):
    return {1, 2} if x > 0 else {3}


def added_to_a_set(x):
    found = sets_of(x)
    found.add(5)
    other = sets_of(-x)
    other.update(found)
    return len(other)


GIVEN = [given_round_after_round, appended_between, inserted_into_a_copy, added_to_a_set]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("func", GIVEN, ids=lambda f: f.__name__)
def test_a_list_that_a_forked_call_gives_is_there_before_it_is_asked(
    func: Callable[..., Any],
) -> None:
    assert_matches_loop(func, [torch.tensor([1.0, -1.0, 2.0])])
