"""What has or gives the very objects that it gets: ``[x] * n``, ``a + [x]``, ``d.get(key, x)``."""

from __future__ import annotations

import operator

import pytest
import torch

import autobatch
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


@pytest.mark.sampled(2)
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


def entry_or_tensor(x, text):
    y, entries = x * 0.5, {}
    for letter in text:
        entries[letter] = x + 1
    entry = entries.get("a", y)
    entry += 1
    return y, entry


def entry_or_list(x, text):
    other, entries = [x], {}
    for letter in text:
        entries[letter] = [x + 1]
    entries.get("a", other).append(x * 2)
    entries.get("b", other)[0].add_(1)
    return len(other), x


def attribute_or_tensor(x, text):
    y = x * 0.5
    found = getattr(text, "real", y)
    found += 1
    return y


@pytest.mark.parametrize("program", [entry_or_tensor, entry_or_list, attribute_or_tensor])
def test_defaults_are_given_themselves(program):
    texts = autobatch.objects(["ab", "b", "cab", "c"])
    assert_matches_loop(program, (XS, texts))
