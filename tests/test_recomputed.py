"""``torch.utils.checkpoint`` in a program: the function that it is given is a program's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import autobatch
from tests.oracle import assert_matches_loop

LAYERS = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), nn.Sigmoid())


def branching(x, scale=1.0):
    return x * scale if x.sum() > 0 else x.exp() - scale


def of_functions(x):
    y = checkpoint(branching, x, use_reentrant=False)
    return checkpoint(branching, y - 1, scale=0.5, use_reentrant=False), y


def of_modules(x):
    y = checkpoint(LAYERS, x, use_reentrant=False)
    return checkpoint_sequential(LAYERS, 2, y, use_reentrant=False)


def of_several(x):
    outs = checkpoint(lambda a, b: (a * b, [a + b]), x, x.cos(), use_reentrant=False)
    return outs, checkpoint_sequential([torch.sin, branching], 2, x, use_reentrant=False)


def raised(x):
    x += 1
    return x * 2


def of_what_writes(x):
    y = x * 3
    return checkpoint(raised, x, use_reentrant=False), checkpoint(raised, y, use_reentrant=True), y


@pytest.mark.parametrize("program", [of_functions, of_modules, of_several, of_what_writes])
def test_is_the_loop_s(program):
    torch.manual_seed(0)
    assert_matches_loop(program, [torch.randn(7, 3)], batch_sizes=[1, 2, 7])


@pytest.mark.parametrize("save", ["keep", "recompute"])
@pytest.mark.parametrize("program", [of_functions, of_modules])
def test_gradients(program, save):
    torch.manual_seed(0)
    x = torch.randn(5, 3, requires_grad=True)
    by = (x, *LAYERS.parameters()) if program is of_modules else (x,)

    def total(found):
        return sum((each**2).sum() for each in torch.utils._pytree.tree_leaves(found))

    wanted = torch.autograd.grad(sum(total(program(row)) for row in x), by)
    for _ in range(4):
        found = torch.autograd.grad(total(autobatch.vmap(program, save=save)(x)), by)
        torch.testing.assert_close(found, wanted)


def test_effects_happen_once(capsys):
    def told(x):
        print(x.item())
        return x if x > 0 else -x

    def program(x):
        return checkpoint(told, x, use_reentrant=False)

    autobatch.vmap(program)(torch.tensor([1.0, -2.0]))
    assert capsys.readouterr().out == "1.0\n-2.0\n"
