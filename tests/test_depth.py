"""Calls nest to ``max_depth``, whatever Python's own limits are."""

from __future__ import annotations

import sys

import pytest
import torch

import autobatch


def count_down(n):
    if n == 0:
        return 0
    return 1 + count_down(n - 1)


def test_a_deep_recursion_beside_a_shallow_one():
    before = sys.getrecursionlimit()
    depths = torch.tensor([3, 9_900])
    counted = autobatch.vmap(count_down, scalars="python")(depths)
    assert torch.equal(counted, depths)
    assert sys.getrecursionlimit() == before


def test_past_the_limit_the_error_names_it():
    with pytest.raises(autobatch.DepthLimitError, match="max_depth=50"):
        autobatch.vmap(count_down, scalars="python", max_depth=50)(torch.tensor([3, 60]))
