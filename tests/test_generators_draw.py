"""What an example's own generator draws by a seed is of that example, whoever takes its items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch

COUNTS = torch.tensor([3, 1, 0, 4])
WAYS: list[dict[str, Any]] = [
    {},
    {"plain": "never"},
    {"plain": "never", "trace_after": 0},
    {"plain": "never", "executor": "vmap"},
    {"plain": "never", "chunk_size": 2},
    {"plain": "never", "engine": "program_counter"},
]


class Drawn:
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(self.n):
            yield torch.rand(())


@autobatch.per_thread
def drawn(n: int) -> Iterator[Tensor]:
    yield from Drawn(n)


def looped(n: int) -> Tensor:
    total = torch.zeros(())
    for item in Drawn(n):
        total = total + item * torch.rand(())
    return total


def by_thread(n: int) -> Tensor:
    total = torch.zeros(())
    for item in drawn(n):
        total = total + item
    return total + torch.rand(())


def summed(n: int) -> Tensor:
    return sum(Drawn(n), torch.rand(()))


def asked(n: int) -> Tensor:
    items, none = drawn(n), torch.zeros(())
    first, between = next(items, none), torch.rand(())
    return first * 2 + between + next(items, none)


def zipped(n: int) -> Tensor:
    total = torch.zeros(())
    for a, b in zip(Drawn(n), drawn(n), strict=True):
        total = total * 2 + a - b
    return total


@pytest.mark.parametrize("function", [looped, by_thread, summed, asked, zipped])
def test_the_seed_reaches_a_generator(function: Any) -> None:
    alone = autobatch.vmap(function, scalars="python", seed=3, engine="sequential")(COUNTS)
    assert alone[3] != 0
    for way in WAYS:
        batched = autobatch.vmap(function, scalars="python", seed=3, **way)
        for _ in range(4):
            torch.testing.assert_close(batched(COUNTS), alone, rtol=0, atol=1e-6)


def test_the_same_draws_for_all() -> None:
    for way in (*WAYS, {"engine": "sequential"}):
        batched = autobatch.vmap(by_thread, scalars="python", randomness="same", **way)
        for _ in range(4):
            given = batched(torch.tensor([2, 2, 2]))
            assert given.unique().numel() == 1
