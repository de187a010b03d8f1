"""Transforms of functions that draw: a pullback is of the function that gave the output."""

from __future__ import annotations

import pytest
import torch

import autobatch

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
ONE = torch.ones(())
WAYS = [
    {"executor": "vmap"},
    {"executor": "traced", "trace_after": 0},
    {"engine": "program_counter", "trace_after": 0},
]
ways = pytest.mark.parametrize("way", WAYS, ids=str)


def noisy(x):
    return (x * torch.rand(3)).sum()


def pulled_twice(x):
    y, pull = autobatch.vjp(noisy, x)
    first, drawn = pull(ONE)[0], torch.rand(())
    return y, first, pull(ONE)[0], drawn, torch.rand(())


def pulled_by_torch(x):
    y, pull = torch.func.vjp(noisy, x)
    return y, pull(ONE)[0]


def pulled_apart(x):
    y, pull = autobatch.vjp(noisy, x)
    if x.sum() > 0:
        drawn, found = torch.rand(()), pull(ONE)[0]
    else:
        found, drawn = pull(ONE)[0], torch.rand(())
    return y, found, drawn


def with_aux(x):
    y, pull, aux = autobatch.vjp(lambda z: (noisy(z), torch.rand(2)), x, has_aux=True)
    return y, pull(ONE)[0], aux


def unlike(x):
    def function(z):
        return z * torch.rand(3) if z.sum() > 0 else noisy(z)

    y, pull = autobatch.vjp(function, x)
    return y.sum(), pull(torch.ones_like(y))[0], torch.rand(())


def jacobian_of_unlike(x):
    rows = autobatch.jacrev(lambda z: z * torch.rand(3) if z.sum() > 0 else noisy(z))(x)
    return rows.sum(), torch.rand(())


@pytest.mark.sampled(3)
@ways
@pytest.mark.parametrize(
    "function", [pulled_twice, pulled_by_torch, pulled_apart, with_aux, unlike, jacobian_of_unlike]
)
def test_a_seed(function, way):
    for size in (1, 4):
        expected = autobatch.vmap(function, seed=3, engine="sequential")(X[:size])
        found = autobatch.vmap(function, seed=3, **way)(X[:size])
        torch.testing.assert_close(found, expected)
        if function is not jacobian_of_unlike:
            torch.testing.assert_close((X[:size] * found[1]).sum(1), found[0])


@ways
@pytest.mark.parametrize("randomness", ["different", "same"])
@pytest.mark.parametrize("function", [pulled_twice, pulled_apart, with_aux])
def test_without_a_seed(function, randomness, way):
    with pytest.raises(autobatch.AutobatchError, match="draws random numbers"):
        autobatch.vmap(function, randomness=randomness, **way)(X)


@ways
def test_draws_that_are_the_same(way):
    for function in (
        autobatch.jacrev(lambda x: x * torch.rand(3)),
        lambda x: autobatch.jvp(noisy, (x,), (torch.ones(3),))[1],
        autobatch.hessian(lambda x: (x * x * torch.rand(3)).sum()),
    ):
        found = autobatch.vmap(function, randomness="same", **way)(X)
        torch.testing.assert_close(found, found[:1].expand_as(found))
