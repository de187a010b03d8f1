"""Draws that name torch's own generator, and what of torch's Python draws from it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch

XS = torch.rand(7, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("generator", [None, torch.default_generator], ids=["none", "default"])
@pytest.mark.parametrize(
    "draw",
    [
        lambda named: torch.rand(3, **named),
        lambda named: torch.randn(3, **named),
        lambda named: torch.randint(9, (3,), **named),
        lambda named: torch.randint(2, 9, (3,), **named),
        lambda named: torch.randperm(5, **named),
        lambda named: torch.zeros(3).uniform_(**named),
        lambda named: torch.normal(0.0, 1.0, (3,), **named),
        lambda named: torch.multinomial(torch.ones(5), 2, **named),
        lambda named: torch.poisson(torch.ones(3), *named.values()),
        lambda named: torch.utils.data.random_split(range(9), [4, 5], **named)[0][1],
    ],
)
@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
def test_torchs_own_generator_may_be_named(draw: Any, generator: Any, engine: str) -> None:
    batched = functools.partial(autobatch.vmap, seed=7, engine=engine)
    found = batched(lambda x: x + torch.as_tensor(draw({"generator": generator})).sum())(XS)
    assert torch.equal(found, batched(lambda x: x + torch.as_tensor(draw({})).sum())(XS))


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
def test_a_scrambled_sobol_sequence_follows_the_seed(engine: str) -> None:
    def point(x: Tensor) -> Tensor:
        return x + torch.quasirandom.SobolEngine(2, scramble=True).draw(1)[0].sum()

    found = autobatch.vmap(point, seed=7, engine=engine)(XS)
    assert torch.equal(found[1:], autobatch.vmap(point, seed=7, thread_offset=1)(XS[1:]))
    assert len({round(row[0], 5) for row in (found - XS).tolist()}) == len(XS)


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
def test_a_random_split_is_an_error_where_draws_are(engine: str) -> None:
    def split(x: Tensor) -> Tensor:
        return x + torch.utils.data.random_split(range(9), [4, 5])[0][1]

    with pytest.raises(RuntimeError, match="random_split draws"):
        autobatch.vmap(split, engine=engine)(XS)
