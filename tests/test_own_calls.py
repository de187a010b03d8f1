"""Calls of functions that the program defines itself: inlined where what they run is sure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.api import LIBRARY
from autobatch.ir.program import Call
from autobatch.passes import run_passes
from autobatch.passes.clean_up import clean_up
from autobatch.passes.own_calls import inline_own_calls
from autobatch.vm.purity import Names
from tests.going_round import hold_gradients_to_loop, times_asked
from tests.goldens import assert_golden
from tests.oracle import assert_matches_loop

ROWS = torch.linspace(-1.0, 1.0, 7 * 9 * 3).reshape(7, 9, 3)
LIMITS = torch.tensor([3.0, 0.5, 2.0, 9.0, 1.0, 0.1, 4.0])


def captured(x: Tensor, limit: Tensor) -> Tensor:
    h, scale = x[0] * 0, 0.5

    def step(h: Tensor, row: Tensor) -> Tensor:
        return torch.tanh(h * scale + row)

    for row in x:
        h = step(h, row)
    return h


def by_a_lambda(x: Tensor, limit: Tensor) -> Tensor:
    h = x[0] * 0
    act = lambda z: torch.sin(z) * limit  # noqa: E731
    for row in x:
        h = act(h + row)
    return h


def in_each_round(x: Tensor, limit: Tensor) -> Tensor:
    h = x[0] * 0
    for row in x:
        act = lambda z: torch.tanh(z) + row  # noqa: B023, E731
        h = act(h)
    return h


def with_a_loop(x: Tensor, limit: Tensor) -> Tensor:
    h, scales = x[0] * 0, (0.5, 1.0, 0.3)

    def refine(h: Tensor, row: Tensor) -> Tensor:
        for scale in scales:
            h = torch.tanh(h * scale + row)
        return h

    for row in x:
        h = refine(h, row)
    return h


def with_branches(x: Tensor, limit: Tensor) -> Tensor:
    h = x[0] * 0

    def step(h: Tensor, *, row: Tensor) -> Tensor:
        if h.sum() > limit:
            return h * 0.5
        return h + row

    for row in x:
        h = step(h, row=row)
        if h.abs().sum() > 5 * limit:
            break
    return h


GO_ROUND = (captured, by_a_lambda, in_each_round, with_a_loop)


def assigned_later(x: Tensor, limit: Tensor) -> Tensor:
    scale = 0.5
    step = lambda h: h * scale  # noqa: E731
    h = step(x[0])
    scale = 2.0
    return h + step(x[1])


def assigned_in_rounds(x: Tensor, limit: Tensor) -> Tensor:
    h = x[0]

    def step(row: Tensor) -> Tensor:
        return torch.tanh(h + row)

    for row in x:
        h = step(row)
    return h


def by_nonlocal(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    count = 0

    def step(h: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return h * 0.5 if h.sum() > 0 else h + limit

    h = x[0]
    for row in x:
        h = step(h + row)
    return h, count


def one_of_two(x: Tensor, limit: Tensor) -> Tensor:
    if limit > 1:

        def step(h: Tensor) -> Tensor:
            return h * 2

    else:

        def step(h: Tensor) -> Tensor:
            return h - 1

    return step(x[0])


def recursive(x: Tensor, limit: Tensor) -> Tensor:
    def down(h: Tensor, n: int) -> Tensor:
        return h if n == 0 else torch.tanh(down(h, n - 1) + x[n])

    return down(x[0], 3)


def of_one_another(x: Tensor, limit: Tensor) -> Tensor:
    def inner(h: Tensor) -> Tensor:
        return torch.tanh(h) * limit

    def outer(h: Tensor) -> Tensor:
        return inner(h) + inner(h * 0.5)

    h = x[0]
    for row in x:
        h = outer(h + row)
    return h


def with_a_default(x: Tensor, limit: Tensor) -> Tensor:
    step = lambda h, by=limit: h * by + 1  # noqa: E731
    return step(x[0]) + step(x[1], 2.0) + step(x[2], by=0.5)


def writing_a_list(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    seen: list[Tensor] = []

    def note(h: Tensor) -> Tensor:
        seen.append(h)
        return h * 2

    h = x[0]
    for row in x[:3]:
        h = note(h) + row
    return torch.stack(seen).sum(0), len(seen)


def before_it_is_there(x: Tensor, limit: Tensor) -> Tensor:
    h = x[0]
    for row in x:
        if limit > 100:
            h = step(h)  # noqa: F821

        def step(h: Tensor) -> Tensor:
            return h * 2

        h = step(h) + row
    return h


PROGRAMS = (
    *GO_ROUND,
    with_branches,
    assigned_later,
    assigned_in_rounds,
    by_nonlocal,
    one_of_two,
    recursive,
    of_one_another,
    with_a_default,
    writing_a_list,
    before_it_is_there,
)


@pytest.mark.parametrize("func", PROGRAMS, ids=lambda func: func.__name__)
def test_results_are_the_loops(func: Callable[..., Any]) -> None:
    assert_matches_loop(func, (ROWS, LIMITS))


@pytest.mark.parametrize("func", GO_ROUND, ids=lambda func: func.__name__)
def test_gradients_are_the_loops(func: Callable[..., Any]) -> None:
    hold_gradients_to_loop(func, ROWS, LIMITS)


@pytest.mark.parametrize("func", GO_ROUND, ids=lambda func: func.__name__)
def test_they_go_round_on_their_own(
    func: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert times_asked(func, (ROWS, LIMITS), monkeypatch) <= 15


def calls_in(func: Callable[..., Any]) -> int:
    made = LIBRARY.with_forks(LIBRARY.code_of(func), Names.of(func)).function
    return sum(isinstance(each.terminator, Call) for each in made.blocks)


def test_which_are_inlined() -> None:
    assert {func.__name__: calls_in(func) for func in PROGRAMS} == {
        "captured": 0,
        "by_a_lambda": 0,
        "in_each_round": 0,
        "with_a_loop": 0,
        "with_branches": 0,
        "assigned_later": 2,
        "assigned_in_rounds": 1,
        "by_nonlocal": 0,
        "one_of_two": 1,
        "recursive": 1,
        "of_one_another": 2,
        "with_a_default": 1,
        "writing_a_list": 0,
        "before_it_is_there": 2,
    }


def test_a_failure_tells_of_the_call() -> None:
    def failing(x: Tensor, limit: Tensor) -> Tensor:
        def checked(h: Tensor) -> Tensor:
            if h.sum() > limit:
                raise ValueError("too large")
            return h + 1

        h = x[0]
        for _ in range(3):
            h = checked(h)
        return h

    with pytest.raises(ValueError, match="too large") as found:
        autobatch.vmap(failing, plain="never", trace_after=0)(ROWS, LIMITS)
    notes = "\n".join(found.value.__notes__)
    assert "raise ValueError" in notes
    assert "h = checked(h)" in notes


def test_the_text() -> None:
    before = run_passes(LIBRARY.code_of(captured).function, [clean_up])
    after = inline_own_calls(before)
    cleaned = run_passes(after, [clean_up])
    assert_golden("own_calls", f"{before}\n\n== own calls\n\n{after}\n\n== cleaned\n\n{cleaned}\n")
