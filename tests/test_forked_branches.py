"""Loops that branch on what calls of themselves give: as wide as the recursion, values the loop's.

The calls of all rounds run first, then the branches, round after round; so exceptions are those of
the loop, and what decides which calls are made is not taken ahead.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop
from tests.test_forked_stores import TREES, Node

# What forks.


def best_row(node):
    best = None
    for child in node.children:
        found = best_row(child)
        if best is None or found[0] > best[0]:
            best = found
    return node.row if best is None else best * 0.5 + node.row


def best_place(node):
    best, place = None, -1
    for i, child in enumerate(node.children):
        score, _ = best_place(child)
        if best is None or score > best:
            best, place = score, i
    return node.value if best is None else best + 0.25 * node.value, place


def negamax(node):
    if not node.children:
        return node.row.sum() * node.value
    best = -1000.0
    for child in node.children:
        score = -negamax(child)
        if score > best:
            best = score
    return best


def smallest_and_largest(node):
    low = high = node.value
    for child in node.children:
        if child.value < -1:
            continue
        less, more = smallest_and_largest(child)
        if less < low:
            low = less
        if more > high:
            high = more
    return low, high - 0.1


def number_of_large(node):
    found = 0
    for child in node.children:
        inside = number_of_large(child)
        if inside > 1:
            found += 1
        elif inside == 0:
            found += 2
    return found


def number_or_tensor(node):
    best = 0.5
    for child in node.children:
        found = number_or_tensor(child)
        if found > best:
            best = found
    return node.row[1] * node.value + best


def kept_and_written(node):
    seen, best = [], torch.zeros(2)
    for child in node.children:
        found = kept_and_written(child)
        seen.append(found)
        if found[0] >= best[0]:
            best = found
    best += node.row  # one of those in the list
    return best + sum(seen, torch.zeros(2))


FORKED: dict[Callable[..., Any], tuple[int, int]] = {
    best_row: (133, 489),
    best_place: (128, 448),
    negamax: (124, 381),
    smallest_and_largest: (156, 284),
    number_of_large: (122, 351),
    number_or_tensor: (104, 300),
    kept_and_written: (113, 315),
}


# What does not.


def cut_off(node):
    best = node.value
    for child in node.children:
        found = cut_off(child)
        if found > 1.5:
            break
        if found > best:
            best = found
    return best


def bounded(node, bound=3.0):
    best = node.value
    for child in node.children:
        found = bounded(child, best)
        if found > best:
            best = found
    return best if best < bound else bound


def last_of_some(node):
    for i, child in enumerate(node.children):
        found = last_of_some(child)
        if found < node.value:
            place = i
    return place if node.value > 0 and len(node.children) > 1 else node.value


def on_a_tensor_that_others_know(node):
    best = row = node.row.clone()
    for child in node.children:
        found = on_a_tensor_that_others_know(child)
        if found[0] > row[0]:
            best += found
    return best + row


IN_TURN = (cut_off, bounded, last_of_some, on_a_tensor_that_others_know)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("func", [*FORKED, *IN_TURN], ids=lambda f: f.__name__)
def test_values_are_the_loops(func: Callable[..., Any]) -> None:
    assert_matches_loop(func, [autobatch.objects(TREES)], batch_sizes=(1, 7), plain="never")


def executions(func: Callable[..., Any], fork: str) -> int:
    batched = autobatch.vmap(func, fork=fork, executor="vmap", plain="never", on_error="isolate")
    with autobatch.counts() as counted:
        batched(autobatch.objects(TREES))
    return counted.block_executions


@pytest.mark.sampled(2)
@pytest.mark.parametrize("func", FORKED, ids=lambda f: f.__name__)
def test_calls_of_all_rounds_run_as_one(func: Callable[..., Any]) -> None:
    assert (executions(func, "auto"), executions(func, "off")) == FORKED[func]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("func", IN_TURN, ids=lambda f: f.__name__)
def test_calls_that_a_round_decides_on_run_in_turn(func: Callable[..., Any]) -> None:
    assert executions(func, "auto") == executions(func, "off")


def fails_here_or_there(node):
    best = -3.0
    for child in node.children:
        found = fails_here_or_there(child)
        if 1 / (found - 2.5) > best:
            best = found
    return best + math.floor(math.sqrt(node.value + 3.5 - 2.5 * len(node.children))) + 2.5


def failing(number: int, seed: int) -> list[Node]:
    draw = random.Random(seed)

    def one(depth: int) -> Node:
        count = draw.choice([0, 1, 2, 2]) if depth else 0
        return Node(
            draw.choice([0.5, 2.5, 2.5, 6.0]),
            torch.zeros(1),
            [one(depth - 1) for _ in range(count)],
        )

    return [one(3) for _ in range(number)]


@pytest.mark.parametrize("seed", range(6))
def test_exceptions_are_those_of_the_loop(seed: int) -> None:
    trees = autobatch.objects(failing(3, seed))
    configurations: list[dict[str, Any]] = [{}, {"executor": "vmap"}]
    assert_matches_loop(fails_here_or_there, [trees], configurations=configurations, plain="never")


def test_each_thread_fails_as_by_itself() -> None:
    trees = failing(24, 0)
    batched = autobatch.vmap(fails_here_or_there, on_error="isolate", plain="never")
    kinds = set()
    for each, one in zip(batched(autobatch.objects(trees)), trees, strict=True):
        value, kind = None, type(None)
        try:
            value = fails_here_or_there(one)
        except Exception as error:
            kind = type(error)
        assert type(each.exception) is kind
        assert value is None or each.value == value
        kinds.add(kind)
    assert kinds == {type(None), ValueError, ZeroDivisionError}


def test_notes_of_exceptions_tell_of_calls_in_the_program_alone() -> None:
    notes = []
    for fork in ("auto", "off"):
        with pytest.raises(ZeroDivisionError) as caught:
            batched = autobatch.vmap(fails_here_or_there, fork=fork, plain="never")
            batched(autobatch.objects(failing(3, 4)))
        notes.append(caught.value.__notes__)
    assert notes[0] == notes[1]


def weighted(node, weight):
    best = None
    for child in node.children:
        found = weighted(child, weight)
        if best is None or found > best:
            best = found
    return (node.row @ weight) * node.value + (0.0 if best is None else torch.tanh(best))


def test_gradients_flow() -> None:
    weight = torch.tensor([0.3, -0.7], requires_grad=True)
    batched = autobatch.vmap(weighted, in_dims=(0, None), plain="never")
    results = batched(autobatch.objects(TREES), weight)
    (gradient,) = torch.autograd.grad(results.sum(), weight)
    (expected,) = torch.autograd.grad(sum(weighted(each, weight) for each in TREES), weight)
    torch.testing.assert_close(gradient, expected)
