"""``torch.where`` with a condition that all examples share, of as many parts as there are examples.

What is meant for the parts of one example must not be taken for one of each example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

FLAGS = torch.tensor([True, False, True])
TABLE = torch.tensor([[True, False, True], [False, True, True], [True, True, False]])


def of_numbers(x, y):
    return torch.where(FLAGS, x.sum(), y.sum())


def of_a_number(x, y):
    return torch.where(FLAGS, x.sum() - y.sum(), 0.0)


def of_rows(x, y):
    return torch.where(TABLE, x, y)


def behind_a_branch(x, y):
    if x.sum() > 0:
        return torch.where(FLAGS, x.sum() * 2, y.sum()).sum()
    return y.sum()


@pytest.mark.parametrize("func", [of_numbers, of_a_number, of_rows, behind_a_branch])
def test_a_shared_condition_is_one_examples(func: Callable[..., Any]) -> None:
    x, y = torch.arange(12.0).reshape(4, 3) - 3, torch.arange(12.0).reshape(4, 3) * -2
    assert_matches_loop(func, (x, y), batch_sizes=(1, 3, 4))
    with autobatch.counts() as counts:
        autobatch.vmap(func)(x, y)
    assert counts.fallbacks == 0
