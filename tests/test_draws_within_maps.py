"""Seeded draws under transforms of ``torch.func`` that map directions: they are constants there.

The oracle is the batch itself, whose draws are fixed: its finite differences.
"""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

import autobatch
from autobatch.batching.levels import DrawError
from autobatch.compat import drawing_alike

WAYS = (
    {"trace_after": 0},
    {"chunk_size": 1, "engine": "program_counter"},
    {"engine": "sequential"},
)
EVERY = pytest.mark.parametrize("options", WAYS, ids=str)


def walk(x):
    """Draws in loops and branches, as many as the example takes steps."""
    n = 0
    while x.sum() < 9 and n < 3:
        x, n = F.dropout(x * 1.5 + x * x * torch.rand_like(x)) + 1, n + 1
    if x[0] > 2:
        return x * x * torch.randint(1, 5, (3,))
    return x * torch.normal(torch.zeros(3), 1.0)


def places(x):
    picked = torch.multinomial(x.detach().abs() + 1, 3, replacement=True)
    return (x * x)[torch.randperm(3)] * x[picked]


def in_place(x):
    y = torch.empty(3, dtype=x.dtype).normal_() * x
    return y.exp() * torch.bernoulli(x.detach().sigmoid()) + y * torch.rand(()).item()


def of_python(x):
    if random.random() < 0.5:
        return x * x * random.gauss(0.0, 1.0)
    return x.sin() * torch.randn(())


def drawn_by_calls(x):
    return walk(x) + (walk(x * 0.5) if x[1] > 0 else x * torch.distributions.Normal(0, 1).sample())


PROGRAMS = (walk, places, in_place, of_python, drawn_by_calls)
NAMED = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


def examples(size):
    return torch.linspace(-1.3, 1.7, size * 3, dtype=torch.float64).view(size, 3)


def slope(batch, xs, way, step=1e-6):
    """``batch``, whose draws are the same each time, by finite differences along ``way``."""
    return (batch(xs + way * step) - batch(xs - way * step)) / (2 * step)


@pytest.mark.sampled(6)
@NAMED
@EVERY
def test_jacobians_along_tangents(program, options):
    for size in (1, 7) if options is WAYS[0] else (2,):
        xs, way = examples(size), examples(size).flip(0)
        batch = autobatch.vmap(program, seed=5, **options)
        found = torch.func.jacfwd(batch)(xs)
        along = torch.tensordot(found, way, 2)
        torch.testing.assert_close(along, slope(batch, xs, way), rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", [walk, in_place])
@EVERY
def test_second_derivatives(program, options):
    xs, way = examples(2), examples(2).flip(0)
    batch = autobatch.vmap(program, seed=6, **options)

    def total(xs):
        return batch(xs).sum()

    expected = slope(torch.func.grad(total), xs, way)
    for found in (autobatch.hessian(total)(xs), torch.func.jacfwd(torch.func.jacfwd(total))(xs)):
        along = torch.tensordot(found, way, 2)
        torch.testing.assert_close(along, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("randomness", ["error", "different", "same"])
def test_the_maps_own_randomness_is_not_asked(randomness):
    xs = examples(3)
    batch = autobatch.vmap(walk, seed=7)
    found = torch.func.jacfwd(batch, randomness=randomness)(xs)
    torch.testing.assert_close(found, torch.func.jacrev(batch)(xs))

    def along(tangent):
        out, slope = torch.func.jvp(batch, (xs,), (tangent,))
        return out, slope + torch.rand(()) * 0 if randomness != "error" else slope

    ways = torch.stack([torch.ones_like(xs), xs])
    outs, slopes = torch.vmap(along, randomness=randomness)(ways)
    assert torch.equal(outs, batch(xs).expand_as(outs))
    torch.testing.assert_close(slopes[0], found.sum((-1, -2)))


@pytest.mark.parametrize("way", [{"width": 2}, {"width": 2, "engine": "sequential"}], ids=str)
def test_streams_and_rounds(way):
    xs = examples(3)

    def streamed(xs):
        rows = autobatch.stream(walk, list(xs), order="input", seed=8, **way)
        return torch.stack([row for _, row in rows])

    expected = torch.func.jacrev(autobatch.vmap(walk, seed=8))(xs)
    torch.testing.assert_close(torch.func.jacfwd(streamed)(xs), expected)

    def rounds(xs):
        return autobatch.map_fn(walk, xs, seed=8)

    torch.testing.assert_close(torch.func.jacfwd(rounds)(xs), torch.func.jacrev(rounds)(xs))


def test_what_is_around_allows_as_much_as_before():
    def along(x):
        with pytest.raises(RuntimeError, match="randomness error mode"):
            torch.rand(())
        with drawing_alike():
            drawn = torch.rand(2) * x
        with pytest.raises(RuntimeError, match="randomness error mode"):
            torch.rand(())
        return drawn

    torch.manual_seed(0)
    xs = torch.tensor([1.0, 2.0])
    found = torch.vmap(along)(xs)
    assert torch.equal(found[1], found[0] * 2)

    def failing(x):
        with drawing_alike():
            raise ValueError

    with pytest.raises(ValueError):
        torch.func.jacfwd(failing)(xs)
    assert torch.equal(torch.func.jacfwd(torch.sin)(xs), xs.cos().diag())


def test_without_a_seed_the_map_around_is_asked():
    xs = examples(2)
    batch = autobatch.vmap(walk, randomness="different")
    with pytest.raises(DrawError, match="around"):
        torch.func.jacfwd(batch)(xs)
    assert torch.func.jacfwd(batch, randomness="same")(xs).shape == (2, 3, 2, 3)
