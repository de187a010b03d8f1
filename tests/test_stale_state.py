"""Nothing that a program reads from outside is baked into what has been recorded."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import autobatch

SCALE = 2.0
ROWS = torch.tensor([[1.0, -2.0], [3.0, 4.0], [-5.0, 6.0]])


def helper(x):
    return x * SCALE + 1


def by_helper(x):
    y = helper(x)
    while y.sum() < 3:
        y = helper(y).abs()
    return y


def by_global(x):
    return x * SCALE


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.scale = 3.0

    def scaled(self, x):
        return x * self.scale

    def forward(self, x):
        return self.scaled(self.linear(x)).sum()


def hot(func, rows=ROWS):
    mapped = autobatch.vmap(func, trace_after=0)
    for _ in range(4):
        result = mapped(rows)
    return mapped, result


def loop(func):
    return torch.stack([func(row.clone()) for row in ROWS])


@pytest.mark.parametrize("func", [by_helper, by_global])
def test_a_global_that_changes_is_seen(func, monkeypatch):
    mapped, before = hot(func)
    assert torch.equal(before, loop(func))
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    for _ in range(3):
        assert torch.equal(mapped(ROWS), loop(func))


def test_a_helper_that_is_replaced_is_seen(monkeypatch):
    mapped, _ = hot(by_helper)
    monkeypatch.setitem(globals(), "helper", lambda x: x * 7 + 1)
    assert torch.equal(mapped(ROWS), loop(by_helper))


def test_attributes_and_parameters_of_a_module_are_read_at_each_run():
    model = Scaled()
    mapped, before = hot(model)
    assert torch.allclose(before, loop(model))
    model.scale = -1.0
    assert torch.allclose(mapped(ROWS), loop(model))
    with torch.no_grad():
        model.linear.weight.mul_(2)
    assert torch.allclose(mapped(ROWS), loop(model))
    model.linear.weight = nn.Parameter(torch.eye(2))
    assert torch.allclose(mapped(ROWS), loop(model))
    model.linear = nn.Linear(2, 4)
    assert torch.allclose(mapped(ROWS), loop(model))


def test_captured_variables_are_read_at_each_run():
    factor = 2.0

    def func(x):
        return x * factor

    mapped, _ = hot(func)
    factor = 3.0
    assert torch.equal(mapped(ROWS), ROWS * 3.0)


def test_a_training_step_is_seen():
    model = Scaled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mapped = autobatch.vmap(model, trace_after=0)
    for _ in range(4):
        optimizer.zero_grad()
        loss = mapped(ROWS).sum()
        expected = loop(model).sum()
        assert torch.allclose(loss, expected)
        wanted = torch.autograd.grad(expected, list(model.parameters()))
        loss.backward()
        for parameter, gradient in zip(model.parameters(), wanted, strict=True):
            assert torch.allclose(parameter.grad, gradient)
        optimizer.step()


def test_modes_are_part_of_the_signature():
    model = Scaled()
    mapped, result = hot(model)
    assert result.requires_grad
    with torch.no_grad():
        assert not mapped(ROWS).requires_grad
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert mapped(ROWS).dtype == torch.stack([model(row) for row in ROWS]).dtype
    assert mapped(ROWS.double().float()).requires_grad
