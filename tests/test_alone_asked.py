"""``getattr`` with a text that is known is the attribute: ``getattr(F, self.activation)(x)``."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import autobatch
from tests.oracle import assert_matches_loop
from tests.test_alone_beginning import by_the_clock, ways  # noqa: F401

XS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
KEPT: list[float] = []


class Net(nn.Module):
    def __init__(self, activation, reduction="sum"):
        super().__init__()
        self.inner, self.gate = nn.Linear(3, 3), "sigmoid"
        self.activation, self.reduction = activation, reduction

    def forward(self, x):
        act, seen = getattr(torch, self.gate), {}
        for place in range(3):
            x = getattr(F, self.activation)(self.inner(act(x)))
            seen[place] = getattr(x, self.reduction)().item()
        return x, seen[1], getattr(math, "floor")(seen[2])  # noqa: B009


def test_functions_of_modules_by_known_names_are_looked_into(ways):  # noqa: F811
    torch.manual_seed(0)
    assert_matches_loop(Net("relu"), (XS,), batch_sizes=(1, 7), configurations=[{}])
    assert all(ways)


def test_another_name_is_looked_at_again(ways):  # noqa: F811
    torch.manual_seed(0)
    net = Net("relu")
    batched = autobatch.vmap(net)
    for name, reduction in (("silu", "sum"), ("gelu", "max"), ("relu_", "mean"), ("relu", "sum")):
        net.activation, net.reduction = name, reduction
        expected, given = [net(row.clone()) for row in XS], XS.clone()
        found = batched(given)
        assert torch.equal(given, XS)
        assert torch.allclose(found[0], torch.stack([each[0] for each in expected]))
        assert found[2].tolist() == [each[2] for each in expected]
    assert ways[:2] == [True, True]


def notes(x):
    KEPT.append(1.0)
    return x


@pytest.mark.parametrize("name", ["noted", "floor"])
def test_a_function_that_is_put_there_is_looked_into(ways, monkeypatch, name):  # noqa: F811
    monkeypatch.setattr(math, name, notes, raising=False)
    places = {"name": name}

    class Asking:
        name = places["name"]

        def __call__(self, x):
            return getattr(math, ASKING.name)(x), {1: x.sum().item()}[1]

    global ASKING
    ASKING = Asking()
    with pytest.raises(autobatch.AutobatchError):
        autobatch.vmap(ASKING)(XS)
    assert not KEPT
    assert not any(ways)
