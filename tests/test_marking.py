"""Custom ``autograd.Function``s that write to their operands (``ctx.mark_dirty``)."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function
from torch.utils import _pytree as pytree

import autobatch

SETTINGS = [
    {},
    {"plain": "never", "trace_after": 0},
    {"engine": "program_counter", "trace_after": 0},
    {"executor": "vmap"},
    {"engine": "sequential"},
]


class Doubled(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, slope):
        return slope * 2


class Raised(Function):
    """With a rule of torch's for maps, which fails once it has written."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, by):
        x.add_(by)
        return x, x * by

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(output[0].clone(), inputs[1])

    @staticmethod
    def backward(ctx, slope, other):
        x, by = ctx.saved_tensors
        return slope + other * by, slope + other * (x + by)


def seen_by_its_name(x, w):
    y = x * 1
    Doubled.apply(y)
    return y


def seen_by_both_names(x, w):
    y = x * 1
    z = Doubled.apply(y)
    z += 1
    return y, z


def seen_in_a_whole(x, w):
    y = torch.stack([x, x * 2])
    Doubled.apply(y[0])
    return y


def in_a_branch(x, w):
    y = x * 1
    if x.sum() > 0:
        Doubled.apply(y)
    return y + Doubled.apply(x * 3)


def with_weights(x, w):
    y = x + 0
    a, b = Raised.apply(y, w)
    return y, a, b


def with_its_own(x, w):
    y = x + 0
    a, b = Raised.apply(y, x * 3)
    return y, a, b


PROGRAMS = [
    *(seen_by_its_name, seen_by_both_names, seen_in_a_whole, in_a_branch, with_weights),
    with_its_own,
]


def leaves(x, w, run):
    """What a run gives and its gradients."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    found = pytree.tree_leaves(run(x, w))
    total = sum((each**2).sum() for each in found)
    return [each.detach() for each in found], torch.autograd.grad(total, (x, w), allow_unused=True)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_is_the_loop_s(program, settings):
    torch.manual_seed(0)
    mapped = autobatch.vmap(program, in_dims=(0, None), **settings)
    for count in (4, 1, 4, 7):
        x, w = torch.randn(count, 3), torch.randn(3)

        def loop(x, w):
            rows = [program(row.clone(), w) for row in x]
            return pytree.tree_map(lambda *parts: torch.stack(parts), *rows)

        before = x.clone(), w.clone()
        torch.testing.assert_close(mapped(x, w), loop(x, w))
        torch.testing.assert_close(leaves(x, w, mapped), leaves(x, w, loop))
        assert torch.equal(x, before[0])
        assert torch.equal(w, before[1])


def written_rows(x):
    Doubled.apply(x)
    return x


SHARED = torch.ones(3)


def written_outside(x):
    Doubled.apply(SHARED)
    return x * 1


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_arguments_are_the_program_s_own(settings):
    x = torch.randn(4, 3)
    before = x.clone()
    assert torch.equal(autobatch.vmap(written_rows, **settings)(x), x * 2)
    assert torch.equal(x, before)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_existed_before_is_not_written(settings):
    with pytest.raises(autobatch.AutobatchError, match="existed before"):
        autobatch.vmap(written_outside, **settings)(torch.randn(4, 3))
    assert torch.equal(SHARED, torch.ones(3))


def test_a_warning_names_the_function():
    mapped = autobatch.vmap(in_a_branch, in_dims=(0, None), fallback="warn", plain="never")
    with pytest.warns(autobatch.FallbackWarning, match="by thread: Doubled.apply: it may have any"):
        mapped(torch.ones(2, 3), torch.ones(3))
