"""What threads have got by an operation that fails for others: it is their own, and written."""

from __future__ import annotations

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop


def out_of_range(x, n):
    try:
        found = [x, x * 2][n]
    except IndexError:
        found = x[1:] * 3
    x[0] = found[1]
    return x


def out_of_parts(x, n):
    parts = [x]
    try:
        parts.pop(n)
    except IndexError:
        parts.append(x * 2)
    x[0] = len(parts)
    return x


def no_such_key(x, n):
    try:
        found = {0: x, 1: x[1:]}[n.item()]
    except KeyError:
        found = x
    found[-1] = 1.0
    return x


@pytest.mark.parametrize("func", [out_of_range, out_of_parts, no_such_key])
def test_what_a_thread_has_when_another_fails_stays_its_own(func):
    assert_matches_loop(func, [torch.randn(4, 3), torch.tensor([0, 1, 2, 3])])


def test_what_a_thread_has_when_another_is_isolated_stays_its_own():
    def own(x, n):
        found = [x, x * 2][n]
        x[0] = found[1]
        return x

    rows = torch.arange(9.0).reshape(3, 3)
    found = autobatch.vmap(own, on_error="isolate", plain="never")(rows, torch.tensor([0, 5, 1]))
    assert [type(each.exception) for each in found] == [type(None), IndexError, type(None)]
    torch.testing.assert_close(found[0].value, own(rows[0].clone(), 0))
    torch.testing.assert_close(found[2].value, own(rows[2].clone(), 1))
