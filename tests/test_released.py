"""What a run has made is freed as soon as its caller lets go of it: it is in no cycle."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import autobatch


def straight(x: Tensor) -> Tensor:
    return x * 2 + 1


def looped(x: Tensor) -> Tensor:
    while x.sum() < 10:
        x = x * 2 + 1
    return x


def recursive(x: Tensor) -> Tensor:
    return x if x.sum() > 10 else recursive(x * 2) + recursive(x + 1)


@pytest.fixture
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("func", [straight, looped, recursive])
def test_results_are_freed_at_once(func, engine):
    batched = autobatch.vmap(func, engine=engine, trace_after=0)
    for _ in range(3):
        result = batched(torch.rand(4, 3) + 0.5)
        alive = weakref.ref(result)
        del result
        assert alive() is None
