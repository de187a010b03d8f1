"""Loops that append to lists go round on their own; what they append to may be anything.

What a listener hears goes by the queue, so it says what a run without one must count.
"""

from __future__ import annotations

from collections import deque

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.ir.program import CallShape, Op
from autobatch.source import Span
from autobatch.vm.tails import Append, tail_of
from tests.going_round import hold_gradients_to_loop, times_asked
from tests.heard import counted_as_heard
from tests.of_its_own import of_its_own
from tests.oracle import assert_matches_loop

ROWS = torch.linspace(-1.0, 1.0, 16 * 12 * 3).reshape(16, 12, 3)
LIMITS = torch.linspace(0.5, 14.0, 16)


def collected(x: Tensor, limit: Tensor) -> Tensor:
    h, seen = torch.zeros(3), []
    for t in range(len(x)):
        h = torch.tanh(h * 0.5 + x[t])
        seen.append(h)
    return torch.stack(seen)


def of_rows(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor, int]:
    h, seen, rows = torch.zeros(3), [], []
    for i, row in enumerate(x):
        h = torch.tanh(h * 0.5 + row)
        seen.append(h * i)
        rows.append(row)
        seen.append(h)
    return torch.stack(seen), torch.stack(rows), len(seen)


def displayed(x: Tensor, limit: Tensor) -> Tensor:
    return torch.stack([torch.tanh(row) * i for i, row in enumerate(x)])


def left_early(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    h, seen = torch.zeros(3), []
    for row in x:
        h = h * 0.9 + row * row + 0.1
        limit = limit - 1
        if limit < 0:
            break
        seen.append(h)
    return sum(seen, h), len(seen)


def of_numbers(x: Tensor, limit: Tensor) -> tuple[int, int]:
    seen: list[int] = []
    n = 3
    while len(seen) < 20:
        n = n * 3 % 101
        seen.append(n)
    return sum(seen), seen[-1]


def of_pairs(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    h, seen = torch.zeros(3), []
    for i, row in enumerate(x):
        h = torch.tanh(h * 0.5 + row)
        seen.append((h, i))
    return sum((h * i for h, i in seen), torch.zeros(3)), len(seen)


def two_names(x: Tensor, limit: Tensor) -> tuple[int, Tensor]:
    h, seen = torch.zeros(3), []
    other = seen
    for row in x:
        h = torch.tanh(h * 0.5 + row)
        seen.append(h)
        other.append(row)
    return len(other), torch.stack(seen)


def written_later(x: Tensor, limit: Tensor) -> Tensor:
    """What is in the list is the tensor, not a copy."""
    h, seen = torch.zeros(3), []
    for row in x:
        part = row * 2
        h = torch.tanh(h * 0.5 + part)
        seen.append(part)
    seen[0] += 1
    part *= 3
    return torch.stack(seen) + h


def read_back(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """What the loop does not assign is another thing in each round, by each of its names."""
    seen, pair = [x[0]], [torch.zeros(3)]
    other, both = seen, (pair, limit)
    for row in x:
        h = torch.sin(other[-1]) * 0.5 + both[0][-1] + row * len(pair)
        pair.append(torch.tanh(seen[-1]))
        seen.append(h)
    return torch.stack(seen), torch.stack(pair)


def anew(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    """Each round has a list of its own."""
    h, total = torch.zeros(3), 0
    for _ in range(3):
        seen = []
        for row in x:
            h = torch.tanh(h * 0.5 + row)
            seen.append(h)
        total += len(seen)
        h = h + seen[4]
    return h, total


def answered(x: Tensor, limit: Tensor) -> tuple[Tensor, bool]:
    h, seen, found = torch.zeros(3), [], 3
    for row in x:
        h = torch.tanh(h * 0.5 + row)
        found = seen.append(h)
    return torch.stack(seen), found is None


def at_both_ends(x: Tensor, limit: Tensor) -> Tensor:
    h, seen = torch.zeros(3), deque(maxlen=4)
    for row in x:
        h = torch.tanh(h * 0.5 + row)
        seen.append(h)
    return torch.stack(list(seen))


class Log:
    def __init__(self) -> None:
        self.total = torch.zeros(3)

    def append(self, h: Tensor) -> None:
        self.total = self.total * 0.5 + h


def of_its_class(x: Tensor, limit: Tensor) -> Tensor:
    h, log = torch.zeros(3), Log()
    for row in x:
        h = torch.tanh(h * 0.5 + row)
        log.append(h)
    return log.total


FUNCTIONS = [
    *(collected, of_rows, displayed, left_early, of_numbers, of_pairs, two_names, written_later),
    read_back,
    *(anew, answered, at_both_ends, of_its_class),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("func", FUNCTIONS)
def test_the_loops_results(func):
    assert_matches_loop(func, (ROWS, LIMITS), batch_sizes=(0, 1, 2, 7, 16), chunk_sizes=(None, 5))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("func", FUNCTIONS)
def test_counts_are_what_listeners_hear(func, engine):
    counted_as_heard(of_its_own(func), [ROWS.clone(), LIMITS], engine=engine, plain="never")


@pytest.mark.parametrize("func", [collected, of_rows, displayed, two_names])
def test_the_queue_is_hardly_asked(func, monkeypatch):
    assert times_asked(func, (ROWS, LIMITS), monkeypatch) <= 4


@pytest.mark.parametrize("func", [collected, of_rows, left_early, written_later])
def test_gradients(func):
    hold_gradients_to_loop(func, ROWS, LIMITS)


def test_a_list_that_was_there_before_is_refused():
    seen: list[Tensor] = []

    def kept(x: Tensor, limit: Tensor) -> Tensor:
        h = torch.zeros(3)
        for row in x:
            h = torch.tanh(h * 0.5 + row)
            seen.append(h)
        return h

    with pytest.raises(autobatch.AutobatchError, match="existed before"):
        autobatch.vmap(kept, plain="never")(ROWS, LIMITS)
    assert not seen


HERE = Span("loop.py", 1, 0, 1, 1)


def op(name: str, args: str, outs: str = "", attr: object = None) -> Op:
    return Op(name, tuple(outs.split()), tuple(args.split()), attr, HERE)


GET, CALL = op("getattr", "ys", "m", "append"), op("call", "m y", "n", CallShape((False,)))
NEXT = op("next", "it", "i more")


def test_tails():
    add = op("add", "x x", "y")
    assert tail_of([add, GET, CALL, NEXT], {"more"}).appends == (Append("ys", "y", ("m", "n")),)
    assert tail_of([add, GET, CALL, NEXT], {"more"}).start == 1
    assert tail_of([add, op("append", "ys y")], set()).appends == (Append("ys", "y"),)
    for ops, needed in (
        ([add, GET, CALL, NEXT], {"more", "n"}),  # what ``append`` gives is read
        ([op("list", "", "ys"), GET, CALL, NEXT], set()),  # another list each time
        ([add, GET, CALL, op("mul", "y y", "z")], {"z"}),  # something comes after it
        ([add, GET, op("call", "m y", "n", CallShape((True,)))], set()),
    ):
        assert not tail_of(ops, needed).appends
