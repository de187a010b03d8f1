"""Calls that are forked at one place again: what was known of one holds for the next, or not."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import autobatch


@dataclass
class Node:
    weight: float
    left: Node | None = None
    right: Node | None = None

    def total(self) -> float:
        left = self.left.total() if self.left else 0.0
        right = self.right.total() if self.right else 0.0
        return left + right + self.weight


class Heavy(Node):
    def total(self) -> float:
        left = self.left.total() if self.left else 1.0
        right = self.right.total() if self.right else 1.0
        return left * right + self.weight


class Falsy(Node):
    def __bool__(self) -> bool:
        return self.weight > 2


def grown(depth: int, kinds: tuple[type[Node], ...], draw: random.Random) -> Node | None:
    if not depth or draw.random() < 0.2:
        return None
    left, right = grown(depth - 1, kinds, draw), grown(depth - 1, kinds, draw)
    return draw.choice(kinds)(float(draw.randrange(4)), left, right)


def trees(*kinds: type[Node]) -> list[Node]:
    draw = random.Random(len(kinds))
    found = (grown(6, kinds, draw) for _ in range(60))
    return [tree for tree in found if tree is not None]


def taking_turns(tree: Node | None, mine: Callable[..., Any], other: Callable[..., Any]) -> Any:
    if tree is None:
        return 1.0
    return mine(tree.left, other, mine) + mine(tree.right, other, mine)


def doubled(tree: Node | None, mine: Callable[..., Any], other: Callable[..., Any]) -> Any:
    if tree is None:
        return 2.0
    return 2 * other(tree.left, mine, other) + mine(tree.right, mine, other)


def by_turns(tree: Node) -> Any:
    return taking_turns(tree, taking_turns, doubled)


def with_state(tree: Node | None, state: torch.Tensor) -> torch.Tensor:
    if tree is None:
        return state
    state = torch.tanh(state + tree.weight)
    left = with_state(tree.left, state) if tree.left else state * 2
    right = with_state(tree.right, state * 0.5) if tree.right else state
    return left - right + state


def same_back(tree: Node, state: torch.Tensor) -> torch.Tensor:
    left = handed(tree.left, state)
    right = handed(tree.right, state)
    left.add_(1.0)
    return left * 2 + right + state


def handed(tree: Node | None, state: torch.Tensor) -> torch.Tensor:
    if tree is None:
        return state
    left = handed(tree.left, state)
    right = handed(tree.right, state)
    return left + right


def truths(tree: Node) -> float:
    left = truths(tree.left) if tree.left else 0.5
    right = truths(tree.right) if tree.right else 0.25
    return left + right + tree.weight


def method(tree: Node) -> float:
    return tree.total()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kinds", [(Node,), (Heavy,), (Node, Heavy), (Node, Falsy)])
@pytest.mark.parametrize("function", [by_turns, truths, method])
def test_numbers_are_those_of_the_loop(
    function: Callable[[Node], Any], kinds: tuple[type[Node], ...]
) -> None:
    given = trees(*kinds)
    expected = [function(tree) for tree in given]
    for trace_after in (0, 2):
        batched = autobatch.vmap(function, trace_after=trace_after)
        for _ in range(3):
            assert batched(autobatch.objects(given)).tolist() == expected


@pytest.mark.parametrize("function", [with_state, same_back])
def test_tensors_handed_down_are_those_of_the_loop(function: Callable[..., Any]) -> None:
    given, states = trees(Node), torch.randn(len(trees(Node)), 3)
    expected = torch.stack([function(t, s.clone()) for t, s in zip(given, states, strict=True)])
    batched = autobatch.vmap(function, trace_after=0)
    for _ in range(3):
        torch.testing.assert_close(batched(autobatch.objects(given), states.clone()), expected)


def test_gradients_of_late_rows_are_those_of_the_loop() -> None:
    given = trees(Node)
    weight = torch.randn(3, requires_grad=True)

    def value(tree: Node | None) -> torch.Tensor:
        left = value(tree.left) if tree.left else weight * 0.5  # type: ignore[union-attr]
        right = value(tree.right) if tree.right else weight  # type: ignore[union-attr]
        return torch.tanh(left * weight - right)

    loop = torch.stack([value(tree) for tree in given]).sum()
    (expected,) = torch.autograd.grad(loop, weight)
    batched = autobatch.vmap(value, trace_after=0)
    for _ in range(3):
        (found,) = torch.autograd.grad(batched(autobatch.objects(given)).sum(), weight)
        torch.testing.assert_close(found, expected)


def test_an_attribute_that_is_missing_is_told_of_the_first_thread() -> None:
    given = trees(Node)
    del given[3].weight
    with pytest.raises(AttributeError, match="weight") as told:
        autobatch.vmap(truths, trace_after=0)(autobatch.objects(given))
    assert "3" in "".join(told.value.__notes__)
