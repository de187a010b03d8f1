"""Functions of a program's that one of torch's is given to call: they may have any effect."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import functional

import autobatch
from tests.oracle import assert_matches_loop


def told(x):
    print(x.sum() > 0)
    return x * 2 if x.sum() > 0 else x.sin()


def total(x):
    return told(x).pow(2).sum()


def of_a_function(x):
    return functional.jvp(told, x, x.cos()), functional.hessian(total, x)


def of_a_closure(x):
    scale = x.sum()
    return functional.vjp(lambda z: told(z) * scale, x, x)


def of_what_writes(x):
    def raised(z):
        y = z * 1
        y += 1
        return y**2

    return functional.jacobian(raised, x), x


@pytest.mark.parametrize("program", [of_a_function, of_a_closure, of_what_writes])
def test_is_the_loop_s(program):
    torch.manual_seed(0)
    assert_matches_loop(program, [torch.randn(4, 3)], batch_sizes=[1, 4])


@pytest.mark.parametrize("program", [of_a_function, of_a_closure])
@pytest.mark.parametrize("settings", [{}, {"plain": "never", "trace_after": 0}], ids=str)
def test_effects_are_the_loop_s(program, settings, capsys):
    x = torch.randn(4, 3)
    for row in x:
        program(row)
    wanted = capsys.readouterr().out
    for _ in range(4):
        autobatch.vmap(program, **settings)(x)
        assert sorted(capsys.readouterr().out.split()) == sorted(wanted.split())
