"""Loops within loops that all threads go round alike: over layers, ranges, tuples, lists.

They go round on their own with the loop around them; what an inner loop is over may be another
thing in each round, or may be changed between calls.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch.ir.program import Call
from tests.going_round import hold_gradients_to_loop, times_asked
from tests.heard import counted_as_heard
from tests.of_its_own import of_its_own
from tests.oracle import assert_matches_loop

ROWS = torch.linspace(-1.0, 1.0, 16 * 12 * 3).reshape(16, 12, 3)
LIMITS = torch.linspace(0.5, 14.0, 16)
SHIFTS = (0.1, 0.5, -0.3)
FUNCTIONS_OF_TORCH = (torch.tanh, torch.sin, torch.relu)
WEIGHTS = [torch.eye(3) * 0.5, torch.ones(3, 3) * 0.2]


def linear(scale: float, size: int = 3) -> nn.Linear:
    made = nn.Linear(size, size)
    with torch.no_grad():
        made.weight.copy_(torch.linspace(-scale, scale, size * size).reshape(size, size))
        made.bias.fill_(0.1)
    return made


LAYERS = nn.ModuleList([linear(0.5), nn.Tanh(), linear(-0.4)])
OTHERS = nn.Sequential(linear(0.3), nn.ReLU(), linear(0.7))
BY_NAME = nn.ModuleDict({"first": linear(0.2), "second": nn.Sigmoid()})
CELLS = [nn.GRUCell(3, 3), nn.GRUCell(3, 3)]


def over_a_range(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        for k in range(3):
            h = torch.tanh(h * 0.5 + row * k)
    return h


def over_literals(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        for k in SHIFTS:
            h = torch.tanh(h * 0.5 + row * k)
        for k in (1, 0.5):
            h = h * k + row
    return h


def over_a_list(x: Tensor, limit: Tensor) -> Tensor:
    h, weights = torch.zeros(3), [x[0], x[1]]
    for row in x:
        for weight in weights:
            h = torch.tanh(h * weight + row)
        for weight in WEIGHTS:
            h = weight @ h
    return h


def over_layers(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        for layer in LAYERS:
            h = layer(h)
        h = h + row
    return h


def over_parts_of_layers(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        for layer in LAYERS[1:]:
            h = layer(h) + row
        for layer in reversed(LAYERS):
            h = layer(h)
        for layer in OTHERS:
            h = layer(h)
        for layer in BY_NAME.values():
            h = layer(h)
        for name, layer in BY_NAME.items():
            h = layer(h) * len(name)
    return h


def numbered_and_paired(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        for i, layer in enumerate(LAYERS):
            h = layer(h) + row * i
        for shift, layer in zip(SHIFTS, LAYERS):  # noqa: B905 - of one length
            h = layer(h) + shift
        for function in FUNCTIONS_OF_TORCH:
            h = function(h + row)
    return h


def by_index(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for t in range(x.shape[0]):
        h = LAYERS[t % 3](h) + x[t]
        h = BY_NAME["first"](h)
    return h


def a_stack_of_cells(x: Tensor, limit: Tensor) -> Tensor:
    states = [torch.zeros(3) for _ in CELLS]
    for row in x:
        for i, cell in enumerate(CELLS):
            states[i] = cell(row, states[i])
            row = states[i]
    return states[-1] + states[0]


def by_names(x: Tensor, limit: Tensor) -> Tensor:
    state = {"a": torch.zeros(3), "b": torch.ones(3)}
    for row in x:
        for name in ("a", "b", "c"):
            state[name] = torch.tanh(state.get(name, row) * 0.5 + row)
    return state["a"] + state["b"] * state["c"]


def more_each_round(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for t, row in enumerate(x):
        for k in range(t):
            h = torch.tanh(h * 0.5 + row * k)
    return h


def a_list_that_grows(x: Tensor, limit: Tensor) -> Tensor:
    h, seen = torch.zeros(3), [x[0]]
    for row in x:
        for each in seen:
            h = torch.tanh(h * 0.5 + each)
        if len(seen) < 4:
            seen.append(row)
    return h


def left_early(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        for k in range(4):
            h = h * 0.9 + row * row + k * 0.1
            limit = limit - 0.2
            if limit < 0:
                break
        else:
            h = h + 1
    return h


def refined(h: Tensor, row: Tensor) -> Tensor:
    for k in range(3):
        h = torch.tanh(h * 0.5 + row * k)
    return h


def by_a_helper(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        h = refined(h, row)
    return h


class Block(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.inner = linear(scale)

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.relu(self.inner(h)) if h.sum() > 0 else h * 0.5


MIXED = nn.ModuleList([Block(0.3), linear(0.2), Block(-0.2)])


def over_modules_of_ones_own(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.ones(3)
    for row in x:
        for layer in MIXED:
            h = layer(h) + row
    return h


def two_indices_for_one_place(x: Tensor, limit: Tensor) -> Tensor:
    places = [torch.zeros(3), torch.ones(3)]
    h = torch.zeros(3)
    for row in x:
        for i, j in ((0, 0), (1, -1), (0, 1)):
            places[i] = torch.tanh(row + h)
            places[j] = places[j] * 0.5 + row
            h = places[i] + h * 0.5
    return h + places[0] + places[1]


GOING_ROUND = [
    *(over_a_range, over_a_list, over_layers, a_stack_of_cells, by_a_helper),
]
FUNCTIONS = [
    *GOING_ROUND,
    *(over_literals, over_parts_of_layers, numbered_and_paired, by_index, by_names, left_early),
    *(more_each_round, a_list_that_grows, over_modules_of_ones_own, two_indices_for_one_place),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("func", FUNCTIONS)
def test_the_loops_results(func):
    assert_matches_loop(func, (ROWS, LIMITS), batch_sizes=(0, 1, 2, 7, 16), chunk_sizes=(None, 5))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("func", FUNCTIONS)
def test_counts_are_what_listeners_hear(func, engine):
    counted_as_heard(of_its_own(func), [ROWS.clone(), LIMITS], engine=engine, plain="never")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "func", [over_a_range, over_literals, over_a_list, by_names, more_each_round, left_early]
)
def test_gradients(func):
    if func is over_a_list:
        pytest.skip("its weights are of single precision")
    hold_gradients_to_loop(func, ROWS, LIMITS)


@pytest.mark.parametrize("func", GOING_ROUND)
def test_the_queue_is_hardly_asked(func, monkeypatch):
    assert times_asked(func, (ROWS, LIMITS), monkeypatch) <= 15  # of 40 block executions and more


def calls_in(func: Any) -> int:
    """How many calls end a block of a function."""
    blocks = autobatch.lower(func).functions[func.__name__].blocks
    return sum(isinstance(block.terminator, Call) for block in blocks)


def test_calls_of_the_items_of_lists_stay_in_their_blocks():
    """Where all of them do; what is called is looked up when it runs."""
    for func in (over_layers, over_parts_of_layers, numbered_and_paired, by_index):
        assert calls_in(func) == 0
    assert calls_in(over_modules_of_ones_own) == 1


def test_lists_that_change_between_calls():
    layers = nn.ModuleList([linear(0.5), nn.Tanh()])

    def function(x: Tensor) -> Tensor:
        h = torch.zeros(3)
        for row in x:
            for layer in layers:
                h = layer(h)
            h = h + row
        return h

    batched = autobatch.vmap(function, trace_after=0)
    for change in (
        lambda: None,
        lambda: layers.append(linear(0.9)),
        lambda: layers.insert(0, Block(0.4)),
        lambda: layers.__setitem__(1, nn.Sigmoid()),
        lambda: layers.__delitem__(0),
    ):
        change()
        for _ in range(3):
            with torch.no_grad():
                wanted = torch.stack([function(row) for row in ROWS])
                torch.testing.assert_close(batched(ROWS), wanted)


def test_another_receiver_with_other_layers():
    class Net(nn.Module):
        def __init__(self, *layers: nn.Module) -> None:
            super().__init__()
            self.layers = nn.ModuleList(layers)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.zeros(3)
            for row in x:
                for layer in self.layers:
                    h = layer(h)
                h = h + row
            return h

    for net in (Net(linear(0.5), nn.Tanh()), Net(Block(0.3), linear(0.2)), Net(linear(0.1))):
        batched = autobatch.vmap(net, trace_after=0)
        for _ in range(3):
            with torch.no_grad():
                wanted = torch.stack([net(row) for row in ROWS])
                torch.testing.assert_close(batched(ROWS), wanted)
