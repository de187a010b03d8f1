"""A listener hears each round of a loop that glides or spins, and may end it by an error."""

from __future__ import annotations

import pytest
import torch

import autobatch

X = torch.linspace(-1.0, 1.0, 8)


def straight(x):
    n = 0
    while n < 120:
        x = x * 0.5 + 0.1
        n += 1
    return x


def parting(x):
    n = 0
    while n < 120 + x.abs() * 30:
        x = torch.sin(x) + 0.1
        n += 1
    return x


class Enough(Exception):
    pass


@pytest.mark.parametrize("program", [straight, parting])
def test_the_error_comes_at_its_step_and_leaves_nothing(program):
    want = torch.stack([program(x) for x in X])
    heard = []

    def stop(step):
        heard.append(step)
        if len(heard) == 60:
            raise Enough

    given = X.clone()
    with pytest.raises(Enough):
        autobatch.vmap(program, listeners=stop)(given)
    assert len(heard) == 60
    assert torch.equal(given, X)
    steps = []
    assert torch.allclose(autobatch.vmap(program, listeners=steps.append)(X), want)
    assert len(steps) > 120
    assert torch.allclose(autobatch.vmap(program)(X), want)
