"""``index_add`` at places of each thread's own is one operation, recorded in no time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.oracle import assert_matches_loop

GENERATOR = torch.Generator().manual_seed(0)
XS = torch.randn(4, 3, 2, generator=GENERATOR)
PLACES = torch.randint(0, 2, (4, 3), generator=GENERATOR)
WAYS = ({"executor": "vmap"}, {"trace_after": 0, "plain": "never"})

PROGRAMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "rows": lambda x, i: torch.zeros(3, 2).index_add_(0, i, x),
    "to its own": lambda x, i: (x * 1.0).index_add(0, i[:2], x[1:]),
    "columns": lambda x, i: torch.zeros(2, 3).index_add_(-1, i, x.T, alpha=2),
    "vector": lambda x, i: torch.index_add(x[:, 0], 0, i, x[:, 1], alpha=0.5),
    "narrow places": lambda x, i: torch.zeros(3, 2).index_add_(0, i.int(), x),
    "ints": lambda x, i: torch.zeros(2, dtype=torch.int64).index_add_(0, i, i),
    "alike for all": lambda x, i: torch.zeros(2).index_add_(0, i, torch.ones(3)),
    "to one number": lambda x, i: x[0, 0].clone().index_add_(0, i[:1] * 0, x[:1, 0]),
    "another dtype": lambda x, i: torch.zeros(3, 2, dtype=torch.float64).index_add_(0, i, x),
    "another size": lambda x, i: torch.zeros(3, 2).index_add_(0, i, x[:, :1]),
    "out of range": lambda x, i: torch.zeros(1, 2).index_add_(0, i, x),
    "below zero": lambda x, i: torch.zeros(3, 2).index_add_(0, i - 1, x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_the_loop(name: str) -> None:
    assert_matches_loop(PROGRAMS[name], (XS, PLACES), configurations=WAYS)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_gradients(way: Any) -> None:
    def program(x: Tensor, i: Tensor) -> Tensor:
        return torch.ones(3, 2).index_add(0, i, x * x, alpha=3).sin()

    xs, loop = XS.clone().requires_grad_(), XS.clone().requires_grad_()
    found = autobatch.vmap(program, **way)(xs, PLACES)
    expected = torch.stack([program(*row) for row in zip(loop, PLACES, strict=True)])
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(xs.grad, loop.grad)


def test_it_is_one_operation() -> None:
    batched = autobatch.vmap(PROGRAMS["rows"], trace_after=0, plain="never")
    with autobatch.counts() as counts:
        batched(XS, PLACES)
    assert counts.launches == 1 and not counts.fallbacks
