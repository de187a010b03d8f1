"""What draws only where an argument or a setting says so: ``dropout_p=``, a module's dropout."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import autobatch
from autobatch.batching.levels import DrawError

XS = torch.zeros(6)
ATTENTION = nn.MultiheadAttention(8, 2, dropout=0.5)
RECURRENT = nn.LSTM(4, 8, 2, dropout=0.5)
IMAGE = torch.rand(1, 9, 9, generator=torch.Generator().manual_seed(1))
POOL = nn.FractionalMaxPool2d(2, output_size=3)


def attends(x, rate=0.5):
    q, v = torch.ones(1, 8, 2), torch.arange(16.0).view(1, 8, 2)
    return F.scaled_dot_product_attention(q, q, v, dropout_p=rate) + x


def attends_twice(x):
    return attends(x) - attends(x)


def attends_to_its_own(x):
    q, v = torch.ones(8, 1, 2) + x, torch.arange(16.0).view(8, 1, 2)
    weights = torch.ones(6, 2), torch.ones(6), None, None, False, 0.5, torch.ones(2, 2)
    return F.multi_head_attention_forward(q, v, v, 2, 1, *weights, torch.ones(2))[0]


def by_a_module(x):
    q = torch.arange(64.0).view(8, 1, 8)
    return ATTENTION(q, q, q)[0] + x


def recurrent(x):
    return RECURRENT(torch.ones(4, 1, 4))[0] + x


def approximates(x):
    return torch.pca_lowrank(torch.arange(40.0).view(8, 5) % 7, 2)[0] + x


def pools(x):
    return POOL(IMAGE) + x


def initialises(x):
    return nn.init.kaiming_uniform_(torch.zeros(4, 4)) + x


def leaky(x):
    return nn.RReLU()(x - torch.ones(8))


DRAWING = [attends, attends_twice, attends_to_its_own, by_a_module, recurrent, approximates, pools]
DRAWING += [initialises, leaky]
WAYS = pytest.mark.parametrize(
    "options",
    [
        {},
        {"plain": "never", "executor": "vmap"},
        {"plain": "never", "trace_after": 0},
        {"engine": "program_counter", "executor": "compiled"},
    ],
)


def kinds(rows):
    return len({tuple(row.flatten().tolist()) for row in rows.detach()})


@pytest.mark.sampled(6)
@WAYS
@pytest.mark.parametrize("func", DRAWING)
def test_each_example_draws(func, options):
    with pytest.raises(DrawError):
        autobatch.vmap(func, **options)(XS)
    for _ in range(3):
        assert kinds(autobatch.vmap(func, randomness="same", **options)(XS)) == 1
        assert kinds(autobatch.vmap(func, randomness="different", **options)(XS)) > 1


@pytest.mark.sampled(8)
@WAYS
@pytest.mark.parametrize("func", DRAWING)
def test_a_seed_says_what_is_drawn(func, options):
    """Also where a stretch has been met in which all examples drew the same."""
    expected = autobatch.vmap(func, seed=3, engine="sequential")(XS)
    assert kinds(expected) > 1
    for _ in range(3):
        autobatch.vmap(func, randomness="same", **options)(XS)
    for _ in range(3):
        found = autobatch.vmap(func, seed=3, **options)(XS)
        torch.testing.assert_close(found, expected)


@WAYS
def test_what_does_not_draw_is_allowed(options):
    def still(x):
        return attends(x, 0.0)

    expected = torch.stack([still(x) for x in XS])
    torch.testing.assert_close(autobatch.vmap(still, **options)(XS), expected)
    modules = ATTENTION, RECURRENT
    for module, func in zip(modules, (by_a_module, recurrent), strict=True):
        module.eval()
        try:
            expected = torch.stack([func(x) for x in XS])
            torch.testing.assert_close(autobatch.vmap(func, **options)(XS), expected)
        finally:
            module.train()
