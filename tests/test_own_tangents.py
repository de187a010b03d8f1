"""A custom ``autograd.Function``'s own derivatives, where no tensor tells that there are any.

Its tangent is thrice that of what it computes and its gradient twice, so that whatever takes the
recorded forward for it shows.
"""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function, forward_ad

import autobatch

SETTINGS = [
    {},
    {"plain": "never", "trace_after": 0},
    {"engine": "program_counter", "trace_after": 0},
    {"executor": "vmap"},
]


class Sine(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx, slope):
        return slope * ctx.saved_tensors[0].cos() * 2

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * ctx.saved_tensors[0].cos() * 3


def sine(x):
    y = x * 2
    return Sine.apply(y) + x if x.sum() > 0 else Sine.apply(y)


def tangent(x):
    return torch.func.jvp(sine, (x,), (torch.ones_like(x),))[1]


def wanted(x, factor):
    return factor * 2 * (x * 2).cos() + (x.sum(1, keepdim=True) > 0)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_tangents_inside(settings):
    mapped = autobatch.vmap(tangent, **settings)
    for count in (4, 1, 7, 4, 4):
        x = torch.randn(count, 3)
        torch.testing.assert_close(mapped(x), wanted(x, 3))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_tangents_and_gradients_around(settings):
    mapped = autobatch.vmap(sine, **settings)
    for count in (4, 1, 7, 4, 4):
        x = torch.randn(count, 3)
        mapped(x)  # recorded where there are no derivatives
        ones = torch.ones_like(x)
        torch.testing.assert_close(torch.func.jvp(mapped, (x,), (ones,))[1], wanted(x, 3))
        with forward_ad.dual_level():
            dual = mapped(forward_ad.make_dual(x, ones))
            torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, wanted(x, 3))
        slope = torch.func.grad(lambda rows: mapped(rows).sum())(x)
        torch.testing.assert_close(slope, wanted(x, 2))
