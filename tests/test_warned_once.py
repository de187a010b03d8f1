"""A fallback is told of once for each place, however often and by whom that is run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch

XS = torch.arange(24.0).reshape(4, 2, 3)


def counted(row: Tensor) -> Tensor:
    return torch.unique(row).sum()


def in_a_loop(xs: Tensor) -> Tensor:
    total = torch.zeros(())
    for _ in range(3):
        total = total + autobatch.map_fn(counted, xs).sum()
    return total


def inside(xs: Tensor) -> Tensor:
    return autobatch.vmap(in_a_loop, fallback="warn")(xs)


def by_thread(xs: Tensor) -> Tensor:
    return autobatch.vmap(autobatch.per_thread(in_a_loop))(xs)


def one_by_one(xs: Tensor) -> Tensor:
    return torch.stack([in_a_loop(rows) for rows in xs])


@pytest.mark.parametrize("run", [inside, by_thread, one_by_one])
def test_once_for_each_place(run: Callable[[Tensor], Tensor]) -> None:
    here: dict[str, Any] = globals()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = one_by_one(XS)
        run(XS)  # what torch imports and changes filters for is done
    here.pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        assert torch.equal(run(XS), expected)
    assert {warning.category for warning in caught} == {autobatch.FallbackWarning}
    told = [str(warning.message) for warning in caught]
    assert len(told) == len(set(told))
    assert "`torch.unique(row)`" in told[0]
