"""Functions of torch's that are replaced, or put back, between a forward and its backward."""

from __future__ import annotations

import pytest
import torch

import autobatch

X = torch.linspace(-1.0, 1.0, 6)
WHERE = torch.where


def program(x):
    for _ in range(3):
        x = torch.where(x > 0, x * 0.9, x + 0.1)
    return x.sum()


def mine(condition, one, other):
    return WHERE(condition, one, other) * 2.0


def gradient(run, forward, backward, monkeypatch):
    x = X.clone().requires_grad_()
    monkeypatch.setattr(torch, "where", forward)
    y = run(x).sum()
    monkeypatch.setattr(torch, "where", backward)
    y.backward()
    return x.grad


@pytest.mark.parametrize(("forward", "backward"), [(mine, WHERE), (WHERE, mine)])
def test_gradients_are_those_of_the_forward(forward, backward, monkeypatch):
    found = gradient(autobatch.vmap(program), forward, backward, monkeypatch)
    want = gradient(lambda x: torch.stack(list(map(program, x))), forward, backward, monkeypatch)
    assert torch.allclose(found, want)
