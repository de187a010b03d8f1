"""What transforms within a program give of functions that return arguments, parts, several."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

import autobatch

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
T = torch.ones(3)
WAYS = [
    {"executor": "vmap"},
    {"executor": "traced", "trace_after": 0},
    {"engine": "program_counter", "trace_after": 0},
    {"engine": "sequential"},
]


def itself(x):
    return autobatch.jvp(lambda z: z, (x,), (T,))


def several(x):
    return autobatch.jvp(lambda z: {"a": z, "b": (z * 2, z[1:])}, (x,), (T,))


def exchanged(x):
    return torch.func.jvp(lambda a, b: (b, a), (x, x * 2), (T, T * 3))


def beside_a_constant(x):
    return autobatch.jvp(lambda z: (z * z, x), (x,), (T,))


def where_some_come(x):
    if x.sum() > 0:
        return autobatch.jvp(lambda z: (z.sin(), z.sum()), (x,), (x * 2,))
    return autobatch.jvp(lambda z: (z, z[0]), (x,), (x * 3,))


def with_aux(x):
    return autobatch.jvp(lambda z: ((z, z * 3), z[0]), (x,), (T,), has_aux=True)


def part_that_is_written(x):
    y, _ = autobatch.jvp(lambda z: z[1:], (x,), (x * 2,))
    y.add_(1)
    return x, y


def part_of_a_part(x):
    y, _ = autobatch.vjp(lambda z: (z[1:][0], z.view(3, 1)), x)
    y[0].add_(1)
    y[1].mul_(2)
    return x, y


def written_later(x):
    y, _ = autobatch.vjp(lambda z: z[:2], x)
    x.mul_(2)
    return x, y


def aux_that_is_written(x):
    found, aux = autobatch.grad(lambda z: (z.sum(), z[1:]), has_aux=True)(x)
    aux.add_(1)
    return x, found, aux


@pytest.mark.sampled(8)
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    "function",
    [
        *(itself, several, exchanged, beside_a_constant, where_some_come, with_aux),
        *(part_that_is_written, part_of_a_part, written_later, aux_that_is_written),
    ],
)
def test_what_comes_out(function, way):
    rows = [pytree.tree_map(torch.clone, function(row.clone())) for row in X]
    for size in (1, 4):
        expected = pytree.tree_map(lambda *leaves: torch.stack(leaves), *rows[:size])
        for _ in range(2):
            found = autobatch.vmap(function, **way)(X[:size].clone())
            torch.testing.assert_close(found, expected)
