"""What torch takes for a list of numbers in an index: a range, an array of numpy's, a tuple in one.

It picks elements, as a list does: what is read is a copy, and what is written is the tensor itself.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import autobatch

X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
PLACES = torch.tensor([0, 2, 1])
INDICES = {
    "range": range(2),
    "backwards": range(2, 0, -1),
    "tuple": (0, 1),
    "list": [0, 1],
    "array": np.array([0, 1]),
    "small": np.array([0, 1], dtype=np.int32),
    "mask": np.array([True, False, True, False]),
    "number": np.int64(1),
    "one": np.array(1),
    "bytes": bytearray(b"\x00\x01"),
    "codes": array("i", [0, 1]),
    "empty": range(0),
    "lists": [[0, 1], [1, 2]],
    "ranges": [range(2), range(1, 3)],
    "tensors": [torch.tensor([0, 1]), torch.tensor(1)],
    "matrix": np.array([[0, 1], [2, 3]]),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"plain": "never"},
    {"plain": "never", "trace_after": 0},
    {"plain": "never", "executor": "vmap"},
    {"executor": "compiled"},
    {"engine": "sequential"},
]


class Held:
    """An index, which the program reads from what existed before."""

    index: Any = 0


def read(x, i):
    y = x[Held.index]
    y += 1
    return x * 2, y.sum()


def written(x, i):
    x[Held.index] = 5.0
    return x


def added(x, i):
    x[1:][Held.index] += x.mean()
    return x


def beside(x, i):
    y = x[:, 1:] * 1.0
    y[:, Held.index] = 7.0
    return y


def beside_its_own(x, i):
    x[Held.index, i] -= 1.0
    return x


def of_one_row(x, i):
    x[i][Held.index] *= 2.0
    return x


def outcome(run: Callable[[], Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run()
    except Exception as error:
        return type(error)


def loop(own: Callable[..., Any], *args: Tensor) -> Any:
    rows = [own(*(arg.clone() for arg in row)) for row in zip(*args, strict=True)]
    return torch.utils._pytree.tree_map(lambda *parts: torch.stack(parts), *rows)


@pytest.mark.sampled(32)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("own", [read, written, added, beside, beside_its_own, of_one_row])
@pytest.mark.parametrize("name", INDICES)
def test_it_picks_elements(name, own, options, monkeypatch):
    monkeypatch.setattr(Held, "index", INDICES[name])
    expected = outcome(lambda: loop(own, X, PLACES))
    batched = autobatch.vmap(own, **options)
    for _ in range(2):
        found = outcome(lambda: batched(X, PLACES))
        if isinstance(expected, type):
            assert found is expected
        else:
            torch.testing.assert_close(found, expected)


def in_a_row(x, i):
    y = x[(0, 1), 1:]
    y += 1
    x[(int(i), 3), range(2)] = 3.0
    x[np.arange(4), np.argsort(np.array([3, 1, 2, 0]))] *= 2.0
    return x


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_several(options):
    expected = loop(in_a_row, X, PLACES)
    torch.testing.assert_close(autobatch.vmap(in_a_row, **options)(X, PLACES), expected)


def masked(x, i):
    return x[i, np.array([True, False, True, False])].sum()


def masked_in_place(x, i):
    x[:, torch.tensor([True, False, True, False])] = 0.0
    return x


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("own", [masked, masked_in_place])
def test_a_mask_of_another_shape_is_an_error(own, options):
    with pytest.raises(IndexError, match="shape of the mask"):
        loop(own, X, PLACES)
    with pytest.raises(IndexError, match="shape of the mask"):
        autobatch.vmap(own, **options)(X, PLACES)


def summed(x, i):
    return x[Held.index].sum() + x.sum()


def put(x, i):
    x[Held.index] = x[0, 0] * 2
    return x


@pytest.mark.sampled(4)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("own", [summed, put])
@pytest.mark.parametrize("index", [np.array([0, 1]), bytearray(b"\x00\x01"), array("i", [0, 1])])
def test_one_that_is_changed_in_place_is_seen(index, own, options, monkeypatch):
    index = index[:].copy() if isinstance(index, np.ndarray) else index[:]
    monkeypatch.setattr(Held, "index", index)
    batched = autobatch.vmap(own, **options)
    for place in (1, 1, 3, 2):
        index[1] = place
        torch.testing.assert_close(batched(X, PLACES), loop(own, X, PLACES))


def by_method(x, i):
    return x.__setitem__((i, range(2)), 3.0) or torch.Tensor.__setitem__(x, i, x[0] * 2) or x


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_method_gives_none(options):
    found = autobatch.vmap(by_method, **options)(X, PLACES)
    torch.testing.assert_close(found, loop(by_method, X, PLACES))
