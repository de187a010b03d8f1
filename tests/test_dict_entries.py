"""What dicts are made of and looked up by: pairs, and tensors as keys, which are no numbers."""

from __future__ import annotations

import pytest
import torch

import autobatch

NAMES = ["a", "b", "c"]
KEY = torch.tensor(1)
TABLE = {1: 5.0, KEY: 7.0}
X = torch.tensor([1.0, 2.0, 3.0])


def of_names(x):
    d = dict(zip(NAMES, (x, x * 2, x + 1), strict=True))
    return d["a"] + d["c"] * len(d)


def of_pairs(x):
    d = dict([("a", x), ("b", x * 2), ("a", x * 3)], c=x)
    return sum(d.values())


def of_an_iterator(x):
    pairs = zip(NAMES, [x, x], strict=False)
    d = dict(pairs)
    return d["a"] + len(list(pairs)) + dict(enumerate([x]))[0]


def of_keys_of_its_own(x):
    d = dict(zip((x.item(), 2.0), (1, 3), strict=True))
    return x * d[2.0] + len(d)


def of_no_pairs(x):
    try:
        return dict([(1, 2, x)])[1]
    except ValueError:
        return x


def tensor_as_key(x):
    d = {KEY: x}
    return x * isinstance(next(iter(d)), torch.Tensor) + (1 in d) + d[KEY]


def looked_up(x):
    d = {1: x, (KEY, 2): x * 2}
    try:
        return d[KEY]
    except KeyError:
        return d.get(KEY, x * 3) + d.get((1, 2), x * 4) + TABLE[KEY] + TABLE[1]


def changed(x):
    d = {1: x}
    d[KEY] = x * 5
    d.setdefault(torch.tensor(1), x)
    return d[1] + len(d) + d.pop(KEY, x)


def deleted(x):
    d = {1: x}
    try:
        del d[KEY]
    except KeyError:
        return x * 7
    return x


def in_lists(x):
    items = [x, x * 2]
    items[KEY] = x * 3
    return items[KEY] + (x, x * 2)[KEY]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "function",
    [
        *(of_names, of_pairs, of_an_iterator, of_keys_of_its_own, of_no_pairs),
        *(tensor_as_key, looked_up, changed, deleted, in_lists),
    ],
)
@pytest.mark.parametrize("way", [{"executor": "vmap"}, {"trace_after": 0}], ids=str)
def test_as_in_the_loop(function, way):
    expected = torch.stack([function(x) for x in X])
    mapped = autobatch.vmap(function, plain="never", **way)
    for _ in range(2):
        with autobatch.counts() as counts:
            torch.testing.assert_close(mapped(X), expected)
        if function in (of_names, of_pairs, of_an_iterator):
            assert not counts.fallbacks
