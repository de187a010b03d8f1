"""Loops over tensors, tuples, ``enumerate`` and ``zip``: threads go round them on their own.

What a listener hears goes by the queue, so it says what a run without one must count.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from autobatch.batching.containers import in_step
from tests.going_round import hold_gradients_to_loop, times_asked
from tests.heard import counted_as_heard
from tests.of_its_own import of_its_own
from tests.oracle import assert_matches_loop

ROWS = torch.linspace(-1.0, 1.0, 16 * 12 * 3).reshape(16, 12, 3)
LIMITS = torch.linspace(0.5, 14.0, 16)


def over_rows(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        h = torch.tanh(h * 0.5 + row)
    return h


def left_early(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    h = torch.zeros(3)
    for row in x:
        h = h * 0.9 + row * row + 0.1
        limit = limit - 1
        if limit < 0:
            break
    else:
        h = h + 100
    return h, row


def counted(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for i, row in enumerate(x, 2):
        h = h + row * i
        if h.sum() > limit:
            return h * 2
    return h


def side_by_side(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row, last, i in zip(x, x.flip(0)[2:], range(20), strict=False):
        h = h * 0.5 + row * last + i
    return h


def numbered_pairs(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for i, (a, b) in enumerate(zip(x[1:], x)):  # noqa: B905
        h = torch.tanh(h + a * b * i)
    return h


def parts(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x.unbind(0):
        h = torch.tanh(h * 0.5 + row)
    return h


def unlike_parts(x: Tensor, limit: Tensor) -> Tensor:
    """Each round finds another kind of tensor."""
    a, h = x[0], torch.zeros(3, dtype=torch.float64)
    for part in (a, a.double(), a * 2, a.half(), a.double(), a, a + 1, a, a, a):
        h = h * 0.5 + part
    return h


def growing(x: Tensor, limit: Tensor) -> Tensor:
    """A list grows while it is gone through."""
    waiting, h = [x[0], x[1]], torch.zeros(3)
    for row in waiting:
        h = h * 0.5 + row
        if len(waiting) < 9:
            waiting.append(row * 0.5 + h)
    return h


def written(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """What is gone through changes, by the name of a row and by its own."""
    total = torch.zeros(3)
    for i, row in enumerate(x):
        row += 1
        x[-1] = x[-1] * 0.5 + row
        total = total + row
        if i == 8:
            x = x * 2
    return total, x


def kept(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    """An iterator that the program has a name for goes on where it stands, and ends for good."""
    rows = iter(x)
    h = torch.zeros(3)
    for row in rows:
        h = h * 0.5 + row
        limit = limit - 1
        if limit < 0:
            break
    for row in rows:
        h = h - row
    return h, len(list(rows))


def in_turns(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        for other in x[:4]:
            h = torch.tanh(h * 0.5 + row * other)
    return h


def none_at_all(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    h, i = torch.zeros(3), -1
    for row in x[:0]:
        h = h + row
    for i, _ in enumerate(()):  # noqa: B007
        h = h + 1
    return h, i


FUNCTIONS = [
    *(over_rows, left_early, counted, side_by_side, numbered_pairs, parts, unlike_parts, growing),
    *(written, kept, in_turns, none_at_all),
]
SPINNING = [over_rows, side_by_side, numbered_pairs, parts]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("func", FUNCTIONS)
def test_the_loops_results(func):
    assert_matches_loop(func, (ROWS, LIMITS), batch_sizes=(0, 1, 2, 7, 16), chunk_sizes=(None, 5))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("func", FUNCTIONS)
def test_counts_are_what_listeners_hear(func, engine):
    counted_as_heard(of_its_own(func), [ROWS.clone(), LIMITS], engine=engine)


@pytest.mark.parametrize("func", SPINNING)
def test_the_queue_is_hardly_asked(func, monkeypatch):
    assert times_asked(func, (ROWS, LIMITS), monkeypatch) <= 4


@pytest.mark.parametrize("func", [over_rows, left_early, counted, side_by_side, parts])
def test_gradients(func):
    hold_gradients_to_loop(func, ROWS, LIMITS)


def test_a_part_is_a_view_of_what_is_gone_through():
    """As ``iterators.advance`` has it: the same recipe, and memory for what is read."""
    assert in_step.part_at(3) is in_step.part_at(3)
    assert in_step.part_at(3).unbound
    assert in_step.part_at(3).key != in_step.part_at(4).key
