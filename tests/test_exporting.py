"""Straight-line parts of programs as torch.fx graphs: they compute what the plain function does."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

import autobatch
from autobatch.errors import OptionError, UnsupportedError
from autobatch.ir.program import Call

W = torch.randn(3, 3)
X = torch.randn(3)


def layer(x, scale=2.0):
    y = torch.tanh(W @ x) * scale
    first, rest = y[0], y[1:]
    y += math.pi
    z = y.clamp(min=-1.0).sum()
    return first, (z, rest.mean()), [z, 3]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.scale = 3

    def forward(self, x):
        return torch.relu(self.inner(x)) * self.scale


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.randn(3))

    def forward(self, x):
        return x * self.log_scale.exp() + W[0].add(x)


def halving(x, limit):
    steps = 0
    while x.abs().sum() > limit:
        x = x * 0.5
        steps += 1
    return x, steps


def inputs(graph: GraphModule) -> list[str]:
    return [node.target for node in graph.graph.nodes if node.op == "placeholder"]


def test_a_straight_function():
    graph = autobatch.to_fx(autobatch.lower(layer))
    assert isinstance(graph, GraphModule)
    graph.graph.lint()
    expected, got = layer(X.clone()), graph(X.clone(), 2.0)
    torch.testing.assert_close(got, expected)
    assert "tanh" in graph.code and "clamp" in graph.code


def test_a_module():
    model = Model()
    graph = autobatch.to_fx(autobatch.lower(model))
    torch.testing.assert_close(graph(X), model(X))
    graph(X).sum().backward()
    assert model.inner.weight.grad is not None
    assert [type(each) for each in graph.children()] == [nn.Linear]


def test_methods_of_tensors_that_exist():
    """Their gradients flow, and what they give is that of now."""
    model = Scaled()
    graph = autobatch.to_fx(autobatch.lower(model))
    with torch.no_grad():
        model.log_scale += 1
    torch.testing.assert_close(graph(X), model(X))
    graph(X).sum().backward()
    assert model.log_scale.grad is not None


def test_the_blocks_of_a_loop():
    """Run block by block, by hand, they are the function."""
    program = autobatch.lower(halving)
    first, loop, last = (autobatch.to_fx(program, block) for block in range(3))
    state = first(X, 0.1)
    condition = program.main.blocks[0].terminator.condition
    while state[condition]:
        state = loop(**{name: state[name] for name in inputs(loop)})
    got = last(**{name: state[name] for name in inputs(last)})
    torch.testing.assert_close(got, halving(X, 0.1))


def test_writes_stay_in_order():
    def write(x, i):
        x[i] = 5.0
        y = x * 2
        x[0] = y[1]
        return x, y

    graph = autobatch.to_fx(autobatch.lower(write))
    assert inputs(graph) == ["x", "i"]
    torch.testing.assert_close(graph(X.clone(), 1), write(X.clone(), 1))


def countdown(n):
    return n if n < 1 else countdown(n - 1)


def counts(xs):
    return sum(xs for _ in xs)


(CALLING,) = [
    label
    for label, block in enumerate(autobatch.lower(countdown).main.blocks)
    if isinstance(block.terminator, Call)
]


SIZES = {"small": 2}


def sized(x):
    return x * SIZES.get("small")


@pytest.mark.parametrize(
    "function, block, message",
    [
        (sized, 0, "call: a method of dict is no function of a module"),
        (countdown, CALLING, f"b{CALLING} ends in a call"),
        (counts, 0, "iter: a graph has no node for it"),
    ],
)
def test_what_is_no_straight_line(function, block, message):
    with pytest.raises(UnsupportedError, match=message) as caught:
        autobatch.to_fx(autobatch.lower(function), block)
    assert "test_exporting.py" in str(caught.value)


@pytest.mark.parametrize("block", [3, -1, True, "b0"])
def test_what_is_no_block(block):
    with pytest.raises(OptionError, match="halving has b0 to b2"):
        autobatch.to_fx(autobatch.lower(halving), block)


def test_a_program_exports_itself():
    program = autobatch.lower(halving)
    assert str(program.to_fx(1).graph) == str(autobatch.to_fx(program, 1).graph)
