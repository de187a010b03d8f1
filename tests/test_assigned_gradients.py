"""Gradients through ``x[i] = v``: to what is written, whether it is a thread's own or shared."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import autobatch

INDICES = {
    "int": lambda i: 0,
    "negative": lambda i: -1,
    "slice": lambda i: slice(1, 3),
    "all": lambda i: ...,
    "list": lambda i: [2, 0],
    "own": lambda i: i,
    "own places": lambda i: torch.stack([i, 3 - i]),
}
VALUES = {
    "shared": lambda x, o: o[1],
    "shared, computed": lambda x, o: o[1] * 3,
    "shared vector": lambda x, o: o[:1],
    "shared, of another dtype": lambda x, o: o[2].double(),
    "own": lambda x, o: x[1] * x[2],
    "of both": lambda x, o: o[0] * x[0],
}
WAYS = [
    {"executor": "vmap", "plain": "never"},
    {"executor": "traced", "trace_after": 0, "plain": "never"},
    {"engine": "program_counter", "executor": "vmap"},
    {"engine": "sequential"},
    {},
]


def written(index, value):
    def loss(x: Tensor, i: Tensor, o: Tensor) -> Tensor:
        y = x * 2
        y[index(i)] = value(x, o)
        if x[0] > 0:
            y[1] = o[3]
        return (y * y).sum()

    return loss


@pytest.mark.sampled(48)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())) or "default")
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("index", INDICES)
def test_gradients_reach_what_is_assigned(index, value, way):
    if "dtype" in value and index in ("list", "own places"):
        pytest.skip("torch refuses it")
    loss = written(INDICES[index], VALUES[value])
    for size in (1, 2, 7):
        given = torch.Generator().manual_seed(size)
        xs = torch.randn(size, 4, generator=given, requires_grad=True)
        places = torch.arange(size) % 4
        o = torch.randn(4, generator=given, requires_grad=True)
        expected = torch.stack([loss(x, i, o) for x, i in zip(xs, places, strict=True)])
        batched = autobatch.vmap(loss, in_dims=(0, 0, None), **way)
        for _ in range(3):
            found = batched(xs, places, o)
            torch.testing.assert_close(found, expected)
            for mine, theirs in zip(
                torch.autograd.grad(found.sum(), (xs, o)),
                torch.autograd.grad(expected.sum(), (xs, o), retain_graph=True),
                strict=True,
            ):
                torch.testing.assert_close(mine, theirs)
