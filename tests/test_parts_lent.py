"""``[x] * n`` and ``a + [x]`` of a thread's own length have the parts themselves."""

from __future__ import annotations

import operator

import pytest
import torch

from tests.oracle import assert_matches_loop

XS = torch.arange(12.0).reshape(4, 3)
NS = torch.tensor([0, 1, 3, 2])


def written_part(x, n):
    out = [x] * (int(n) + 1)
    out[0].add_(1)
    return x


def written_item(x, n):
    out = (int(n) + 1) * [x]
    out[-1][0] = 9
    return x, len(out)


def written_in_a_loop(x, n):
    out = [x] * (int(n) + 1)
    for each in out:
        each.add_(1)
    return x


def written_name(x, n):
    out = [x, x + 1] * int(n)
    if n > 1:
        out[2].mul_(2)
    x.add_(1)
    return sum(each.sum() for each in out) + x.sum()


def nested(x, n):
    rows = [[0] * 3] * int(n)
    if n > 0:
        rows[0][1] = 5
    return sum(sum(row) for row in rows)


def put_together(x, n):
    out = int(n) * [x] + [x]
    more = operator.add(out, [x + 1, x])
    more[-1].add_(1)
    return out[0], x, len(more)


def in_place(x, n):
    out = [x]
    out *= int(n) + 1
    out[int(n)].add_(2)
    return out[0], x


def tuples(x, n):
    out = (x,) * (int(n) + 1)
    x.add_(1)
    return out[-1]


@pytest.mark.parametrize(
    "program",
    [
        written_part,
        written_item,
        written_in_a_loop,
        written_name,
        nested,
        put_together,
        in_place,
        tuples,
    ],
)
def test_writes_are_seen(program):
    assert_matches_loop(program, (XS, NS))
