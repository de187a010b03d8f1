"""Ways of a branch that only name values are gone before it; what may be unbound stays its own."""

from __future__ import annotations

import torch

import autobatch
from autobatch.passes import run_passes
from tests.oracle import assert_matches_loop

NS = torch.tensor([3, 0, 1, 2, 5, 1, 4])


def ends_with_its_argument(n):
    if n < 2:
        return n
    return ends_with_its_argument(n - 1) + 1


def maybe_unbound(n):
    if n > 2:
        y = [n]
    if n > 1:
        z = y
    else:
        z = [n, n]
        z[0] += 1
    return z[0]


def names_a_list(n):
    """The other way gives the variable a list of its own, and writes that."""
    first = [n]
    if n > 2:
        found = first
    else:
        found = [0]
        found.append(n)
    first.append(7)
    return len(found), found[0]


def test_a_way_that_names_a_value_is_no_block_of_its_own():
    function = run_passes(autobatch.lower(ends_with_its_argument).main)
    assert "copy" in {op.name for op in function.blocks[0].ops}
    assert len(function.blocks) == 4  # the test, the call, what follows it, the end


def test_results_and_errors_are_the_loops():
    for func in (ends_with_its_argument, maybe_unbound, names_a_list):
        assert_matches_loop(func, [NS], scalars="python", batch_sizes=(1, 3, 7))
    assert_matches_loop(maybe_unbound, [NS[:3]], scalars="python")
