"""What the inner rows of one example draw, by the ``randomness`` of what maps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch

XS = torch.arange(20.0).view(5, 4)
WAYS: tuple[dict[str, Any], ...] = (
    {"executor": "vmap"},
    {"trace_after": 0, "plain": "never"},
    {"engine": "program_counter", "trace_after": 0, "plain": "never"},
    {"engine": "sequential"},
)


def drawn(v: Tensor) -> Tensor:
    while v > 3:
        v = v - 4
    return torch.rand(()) + v * 0


def straight(v: Tensor) -> Tensor:
    return torch.rand(()) + v * 0


def by_torch(x: Tensor) -> Tensor:
    return torch.vmap(straight, randomness="same")(x)


def by_ours(x: Tensor) -> Tensor:
    return autobatch.vmap(drawn, randomness="same")(x)


def by_rounds(x: Tensor) -> Tensor:
    return autobatch.pfor(lambda i: drawn(x[i]), 4, randomness="same")


def by_elements(x: Tensor) -> Tensor:
    return autobatch.map_fn(drawn, x, randomness="same")


SAME: tuple[Callable[..., Tensor], ...] = (by_torch, by_ours, by_rounds, by_elements)


def torch_by_itself(x: Tensor) -> Tensor:
    return torch.vmap(straight, randomness="different")(x)


def rounds_by_themselves(x: Tensor) -> Tensor:
    return autobatch.pfor(lambda i: drawn(x[i]), 4, randomness="different")


def torch_by_default(x: Tensor) -> Tensor:
    return torch.vmap(straight)(x)


def rounds_by_default(x: Tensor) -> Tensor:
    return autobatch.pfor(lambda i: drawn(x[i]), 4)


def numbers(found: Tensor) -> tuple[int, list[int]]:
    """How many there are in all, and of each example."""
    return len(found.unique()), [len(row.unique()) for row in found]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("program", SAME, ids=lambda program: program.__name__)
def test_rows_that_draw_the_same(program: Callable[..., Tensor], way: dict[str, Any]) -> None:
    def again(x: Tensor) -> tuple[Tensor, Tensor]:
        return program(x), program(x)

    for given in ({"randomness": "different"}, {"seed": 3}):
        first, second = autobatch.vmap(again, **given, **way)(XS)  # type: ignore[arg-type]
        assert numbers(first) == numbers(second) == (5, [1] * 5)
        assert not torch.equal(first, second)
    whole = autobatch.vmap(program, randomness="same", **way)(XS)
    assert numbers(whole) == (1, [1] * 5)


@pytest.mark.parametrize("program", SAME, ids=lambda program: program.__name__)
def test_a_seed_draws_the_same_by_any_engine(program: Callable[..., Tensor]) -> None:
    found = [autobatch.vmap(program, seed=3, **way)(XS) for way in WAYS]
    assert all(torch.equal(each, found[0]) for each in found)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_rows_of_a_batch_that_draws_the_same(way: dict[str, Any]) -> None:
    """They draw the same as well, but where their map says otherwise."""
    for program in (torch_by_itself, rounds_by_themselves):
        assert numbers(autobatch.vmap(program, randomness="same", **way)(XS)) == (4, [4] * 5)
    for program in (torch_by_default, rounds_by_default):
        assert numbers(autobatch.vmap(program, randomness="same", **way)(XS)) == (1, [1] * 5)
