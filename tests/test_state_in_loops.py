"""Loops whose state is a named tuple, an object, a dict or a list: they go round on their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from tests.going_round import hold_gradients_to_loop, times_asked
from tests.heard import counted_as_heard
from tests.of_its_own import of_its_own
from tests.oracle import assert_matches_loop

ROWS = torch.linspace(-1.0, 1.0, 16 * 12 * 3).reshape(16, 12, 3)
LIMITS = torch.linspace(0.5, 14.0, 16)


class Pair(NamedTuple):
    h: Tensor
    c: Tensor


@dataclass
class State:
    h: Tensor
    c: Tensor
    steps: int = 0


def named(x: Tensor, limit: Tensor) -> Tensor:
    state = Pair(torch.zeros(3), torch.ones(3))
    for row in x:
        state = Pair(torch.tanh(state.h * 0.5 + row), state.c * 0.9 + state.h)
    return state.h + state.c


def made_anew(x: Tensor, limit: Tensor) -> Tensor:
    state = State(torch.zeros(3), torch.ones(3))
    for row in x:
        state = State(torch.tanh(state.h * 0.5 + row), state.c * 0.9 + state.h)
    return state.h + state.c


def replaced(x: Tensor, limit: Tensor) -> Tensor:
    state = State(torch.zeros(3), torch.ones(3))
    for row in x:
        state = replace(state, h=torch.tanh(state.h * 0.5 + row * state.c))
    return state.h + state.c


def assigned(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    state = State(torch.zeros(3), torch.ones(3))
    for row in x:
        state.h = torch.tanh(state.h * 0.5 + row)
        state.c = state.c * 0.9 + state.h
        state.steps += 1
    return state.h + state.c, state.steps


def by_two_names(x: Tensor, limit: Tensor) -> Tensor:
    """What is assigned by one name is read by another, and through a list."""
    state = State(torch.zeros(3), torch.ones(3))
    other, held = state, [state, 1]
    for row in x:
        h = torch.sin(other.c) * 0.5 + row
        state.c = torch.tanh(held[0].h + h)
        other.h = h
    return state.h + state.c


def in_other_blocks(x: Tensor, limit: Tensor) -> Tensor:
    """One block assigns what another one reads, which assigns nothing that it reads."""
    state = State(torch.zeros(3), torch.ones(3))
    total = torch.zeros(3)
    for row in x:
        total = total + torch.sin(state.c) * torch.cos(limit * state.c)
        if total.sum() > limit:
            state.c = torch.tanh(state.c * 0.7 + row)
        else:
            state.c = state.c * 1.1
        state.h = row
    return total + state.c + state.h


def left_early(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    state = State(torch.zeros(3), torch.ones(3))
    for row in x:
        state.h = state.h * 0.9 + row * row + 0.1
        state.steps = state.steps + 1
        limit = limit - 1
        if limit < 0:
            break
    return state.h + state.c, state.steps


def two_names_assigned(x: Tensor, limit: Tensor) -> Tensor:
    """What is assigned by one name has been assigned by another in the same round."""
    state = State(torch.zeros(3), torch.ones(3))
    apart = State(torch.zeros(3), torch.ones(3))
    other = state
    for row in x:
        state.h = torch.tanh(row)
        other.h = torch.sin(row * 2)
        limit = limit - state.h.sum()
        other = apart if limit > 0 else state
    return state.h + state.c + apart.h * limit


def in_a_dict(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    state = {"h": torch.zeros(3), "c": torch.ones(3), "steps": 0}
    for row in x:
        state["h"] = torch.tanh(state["h"] * 0.5 + row)
        state["c"] = state["c"] * 0.9 + state["h"]
        state["steps"] += 1
    return state["h"] + state["c"], state["steps"]


def in_a_list(x: Tensor, limit: Tensor) -> Tensor:
    layers = [torch.zeros(3), torch.ones(3)]
    for row in x:
        layers[0] = torch.tanh(layers[0] * 0.5 + row)
        layers[-1] = torch.tanh(layers[1] * 0.5 + layers[0])
    return layers[0] + layers[1]


def keys_that_come_late(x: Tensor, limit: Tensor) -> tuple[Tensor, list[str]]:
    state = {"h": torch.zeros(3)}
    for row in x:
        state["z"] = torch.tanh(state["h"] + row)
        state["c"] = state["z"] * 0.5
        state["h"] = state["z"] + state["c"]
    total = torch.zeros(3)
    for value in state.values():
        total = total * 0.5 + value
    return total, list(state)


def two_names_of_items(x: Tensor, limit: Tensor) -> Tensor:
    """One dict, or one place of a list, by two names in one round."""
    state, layers = {"h": torch.zeros(3)}, [torch.zeros(3), torch.ones(3)]
    other, same = state, layers
    for row in x:
        state["h"] = torch.tanh(row)
        other["h"] = torch.sin(row * 2)
        layers[1] = state["h"] * 2
        same[-1] = row + other["h"]
        limit = limit - (state["h"] * layers[1]).sum()
        other = {"h": row} if limit > 3 else state
    return state["h"] + layers[1] * limit + other["h"]


def shown_whole(x: Tensor, limit: Tensor) -> Tensor:
    """What is stored is seen where the whole container is."""
    state, layers = {"h": torch.zeros(3)}, [torch.zeros(3), torch.ones(3)]
    for row in x:
        state["h"] = torch.tanh(layers[0] + row)
        layers[0] = state["h"] * 2
        layers[1] = torch.stack(layers).sum(0) * 0.1 + len(state) + sum(state.values())
        state = dict(state)
    return state["h"] + layers[1]


def too_far(x: Tensor, limit: Tensor) -> Tensor:
    """An index that a list comes not to have."""
    layers = [torch.zeros(3), torch.ones(3), torch.ones(3)]
    for row in x:
        layers[1] = layers[1] * 0.5 + row
        if row.sum() > limit - 6:
            layers.pop()
    return layers[1]


FUNCTIONS = [
    *(two_names_assigned, in_a_dict, in_a_list, keys_that_come_late, two_names_of_items),
    shown_whole,
    *(named, made_anew, replaced, assigned, by_two_names, in_other_blocks, left_early),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("func", [*FUNCTIONS, too_far])
def test_the_loops_results(func):
    assert_matches_loop(func, (ROWS, LIMITS), batch_sizes=(0, 1, 2, 7, 16), chunk_sizes=(None, 5))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("func", FUNCTIONS)
def test_counts_are_what_listeners_hear(func, engine):
    counted_as_heard(of_its_own(func), [ROWS.clone(), LIMITS], engine=engine, plain="never")


@pytest.mark.parametrize("func", [named, made_anew, assigned, by_two_names, in_a_dict, in_a_list])
def test_the_queue_is_hardly_asked(func, monkeypatch):
    assert times_asked(func, (ROWS, LIMITS), monkeypatch) <= 6  # of 13 block executions


@pytest.mark.parametrize("func", [named, assigned, by_two_names, in_other_blocks])
def test_gradients(func):
    hold_gradients_to_loop(func, ROWS, LIMITS)
