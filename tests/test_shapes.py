"""``torch.Size`` among the tuples of a program: one object for all threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.oracle import assert_matches_loop

PROGRAMS: list[Callable[[Tensor], Any]] = [
    lambda x: x.reshape(x.shape[:1] + (-1,)),  # noqa: RUF005
    lambda x: x.reshape((-1,) + x.shape[2:]),  # noqa: RUF005
    lambda x: x.expand(torch.Size((2,)) + x.shape),
    lambda x: x.reshape(torch.Size([6]) + x.shape[2:]),
    lambda x: torch.zeros(x.shape[:-1] * 2).sum() + x,
    lambda x: x * 2 if x.shape[1:] == torch.Size([3, 4]) else x,
    lambda x: x * x.shape.numel() + x.shape.index(3) + (x.shape + (7,)).count(7),  # noqa: RUF005
    lambda x: x * 2 if x.shape < (2, 4) else x,
    lambda x: x.expand([2] + list(x.shape)),  # noqa: RUF005
]
XS = torch.randn(5, 2, 3, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("place", range(len(PROGRAMS)))
def test_as_the_loop_and_for_all_at_once(place: int) -> None:
    assert_matches_loop(PROGRAMS[place], [XS], batch_sizes=[1, 5])
    with autobatch.counts() as counts:
        autobatch.vmap(PROGRAMS[place])(XS)
    assert counts.by_thread == 0


def test_a_list_does_not_add_to_a_shape() -> None:
    with pytest.raises(TypeError) as wanted:
        XS.shape + [1]  # type: ignore[operator]  # noqa: RUF005
    with pytest.raises(TypeError) as caught:
        autobatch.vmap(lambda x: x.reshape(x.shape + [1]))(XS)  # noqa: RUF005
    assert str(caught.value) == str(wanted.value)


def widened(x: Tensor) -> Tensor:
    return x.reshape(x.shape[:1] + (1, -1)).sum((1, 2))  # noqa: RUF005


def test_a_length_of_each_examples_own() -> None:
    xs = [torch.randn(n, 2) for n in (3, 1, 2)]
    found = autobatch.vmap(widened, ragged_out="list")(autobatch.ragged(xs))
    for got, x in zip(found, xs, strict=True):
        torch.testing.assert_close(got, widened(x))
