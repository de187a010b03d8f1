"""Rounds of a loop as one function: what all threads decide alike, by a range or a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch.vm.hops import Hop
from tests.heard import counted_as_heard
from tests.of_its_own import of_its_own
from tests.oracle import assert_matches_loop

XS = torch.linspace(-1.0, 2.0, 64)
STEPS = 12


def counted(x: Tensor) -> Tensor:
    for _ in range(STEPS):
        x = x + 0.1 * torch.sin(x)
    return x


def weighed(x: Tensor) -> Tensor:
    for i in range(STEPS):
        x = x + 0.01 * i * torch.sin(x)
    return x


def named_later(x: Tensor) -> tuple[Tensor, int]:
    i = -1
    for i in range(30, 2, -3):  # noqa: B007
        x = torch.cos(x) * 0.9
    return x, i


def with_an_else(x: Tensor) -> tuple[Tensor, int]:
    total = 0
    for i in range(1, STEPS):
        x = torch.cos(x) * 0.9
        total += i
    else:
        total = total * 2
    return x, total


def while_less(x: Tensor) -> tuple[Tensor, int]:
    t = 0
    while t < STEPS:
        x = torch.sin(x) * 1.1
        t += 1
    return x, t


def while_true(x: Tensor) -> tuple[Tensor, int]:
    t = 0
    while True:
        x = torch.sin(x) * 1.1
        t += 3
        if t >= 31:
            return x, t


def while_some_are_left(x: Tensor) -> tuple[Tensor, int]:
    """The condition is a number, not a truth value."""
    left = STEPS
    while left:
        x = torch.sin(x) * 1.1
        left -= 1
    return x, left


def numbers_grow(x: Tensor) -> tuple[Tensor, int]:
    """An int leaves int64 on the way."""
    big = 1
    for i in range(1, 30):
        x = torch.sin(x) * 1.1
        big = big * 7 + i
    return x, big % 1_000_003


def a_float_steps(x: Tensor) -> tuple[Tensor, float]:
    t, dt = 0.0, 0.125
    while t < 2.0:
        x = x - dt * x * t
        t += dt
        if t > 1.0:
            dt = 0.25
    return x, t


def some_break(x: Tensor) -> tuple[Tensor, int]:
    at = 99
    for i in range(40):
        x = torch.cos(x) * 0.97 + 0.1
        if x < 0.84 - 0.004 * i:
            at = i
            break
    return x, at


def nested(x: Tensor) -> Tensor:
    for i in range(5):
        y = x
        for j in range(8):
            y = torch.sin(y + 0.1 * i) + 0.01 * j
        x = x + y * 0.5
    return x


def nested_with_a_break(x: Tensor) -> tuple[Tensor, int]:
    found = 0
    for i in range(4):
        for j in range(20):
            x = torch.cos(x) * 0.97 + 0.1
            if x < 0.8 + 0.01 * i:
                found += j
                break
    return x, found


def the_same_range(x: Tensor) -> Tensor:
    steps = range(2, 20, 3)
    for i in steps:
        x = torch.sin(x) + i * 0.1
    for i in steps:
        x = torch.cos(x) - i * 0.1
    return x


def one_iterator(x: Tensor) -> tuple[Tensor, int]:
    steps = iter(range(20))
    for i in steps:
        x = torch.sin(x) + i * 0.1
        if i == 9:
            break
    return x, sum(steps)


def two_names(x: Tensor) -> tuple[Tensor, list[int]]:
    steps = iter(range(12))
    both = (steps, steps)
    for _ in steps:
        x = torch.sin(x) * 1.1
    return x, list(both[1])


def kept(x: Tensor) -> Tensor:
    """Half of a round is the same each time."""
    h = x
    for _ in range(STEPS):
        h = torch.tanh(h + torch.exp(x))
    return h


def swapped(x: Tensor) -> tuple[Tensor, Tensor, int]:
    a, b, n = x, x * 2, 0
    for i in range(11):
        a, b, n = torch.sin(b), a * 0.5, i - n
    return a, b, n


def by_an_index(x: Tensor, rows: Tensor) -> Tensor:
    for t in range(len(rows)):
        x = x * 0.5 + rows[t]
    return x


def fails_late(x: Tensor) -> Tensor:
    for i in range(STEPS):
        x = torch.sin(x) + 1 / (9 - i)
    return x


def without_an_end(x: Tensor) -> tuple[Tensor, int]:
    steps = 0
    for _ in range(3, 10**20, 7):
        x = torch.cos(x) * 0.97 + 0.1
        steps += 1
        if x.sum() < 0.88:
            break
    return x, steps


def downwards_without_an_end(x: Tensor) -> Tensor:
    for _ in range(10**20, -(10**20), -7):
        x = torch.cos(x) * 0.97 + 0.1
        if x.sum() < 0.88:
            break
    return x


CASES: dict[str, Callable[..., Any]] = {
    func.__name__: func
    for func in (
        *(counted, weighed, named_later, with_an_else, while_less, while_true),
        *(while_some_are_left, numbers_grow, a_float_steps, some_break, nested),
        *(nested_with_a_break, the_same_range, one_iterator, two_names, kept, swapped, fails_late),
        *(without_an_end, downwards_without_an_end),
    )
}
IN_ONE_GO = {
    *("counted", "weighed", "named_later", "with_an_else", "while_less", "while_true"),
    *("nested", "kept"),
}


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rounds have run in each go."""
    found: list[int] = []
    goes = Hop.goes

    def noted(self: Hop, spin: Any, env: Any, k: int) -> Any:
        before = self.runs
        result = goes(self, spin, env, k)
        found.append(self.runs - before)
        return result

    monkeypatch.setattr(Hop, "goes", noted)
    return found


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
def test_the_loops_results(name: str, rounds: list[int]) -> None:
    func = CASES[name]
    assert_matches_loop(func, (XS,), batch_sizes=(0, 1, 2, 7, 64), chunk_sizes=(None, 25))
    if name in IN_ONE_GO:
        assert max(rounds) > 3


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted(CASES.keys() - {"fails_late", "kept"}))
def test_counts_are_what_listeners_hear(name: str) -> None:
    counted_as_heard(of_its_own(CASES[name]), [XS])


def test_rows_of_what_all_share() -> None:
    rows = torch.linspace(0.0, 1.0, 20)
    assert_matches_loop(by_an_index, (XS, rows), in_dims=(0, None))
    assert_matches_loop(by_an_index, (XS, rows[:3]), in_dims=(0, None))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)
        self.steps = 6

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(4)
        for t in range(self.steps):
            h = self.cell(x + t, h)
        return h


def test_gradients_and_other_numbers_of_rounds() -> None:
    """State that is kept between calls is of neither a number of rounds nor a mode."""
    layer, xs = Layer(), torch.randn(5, 3)
    batched = autobatch.vmap(layer, plain="never", trace_after=0)
    for steps in (6, 2, 9, 0, 1, 9, 9):
        layer.steps = steps
        for grad in (False, True, False):
            with torch.set_grad_enabled(grad):
                found = batched(xs)
                wanted = torch.stack([layer(x) for x in xs])
            torch.testing.assert_close(found, wanted)
            if grad and steps:
                parameters = list(layer.parameters())
                got = torch.autograd.grad(found.sum(), parameters)
                want = torch.autograd.grad(wanted.sum(), parameters)
                torch.testing.assert_close(got, want)
