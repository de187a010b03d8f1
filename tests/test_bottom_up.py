"""Bottom up: one pass over objects says where all threads go, before anything is computed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.listeners import Counts
from autobatch.vm.bottom_up import BottomUp
from autobatch.vm.forks import together
from autobatch.vm.invariants import checking
from tests.oracle import assert_matches_loop

WEIGHT = torch.linspace(0.5, 1.5, 3)


@dataclass
class Node:
    weight: Any
    left: Node | None = None
    right: Node | None = None


class Other(Node):
    pass


class Computed(Node):
    @property
    def heavy(self) -> bool:
        return self.weight > 2


def leaves(node: Any) -> Tensor:
    """Leaves compute something, and some nodes have one child."""
    left = leaves(node.left) if node.left else WEIGHT
    right = leaves(node.right) if node.right else WEIGHT
    return torch.tanh(left - right * node.weight)


def pairs(node: Any) -> tuple[Tensor, int]:
    """Results are taken apart; a number is counted with them."""
    none = WEIGHT, 0
    left, n = pairs(node.left) if node.left is not None else none
    right, m = pairs(node.right) if node.right is not None else none
    return left * node.weight + right.sin(), n + m + 1


def whole_and_parts(node: Any) -> tuple[Tensor, Tensor]:
    """A result is read as a whole, and in parts."""
    found = whole_and_parts(node.left) if node.left else (WEIGHT, WEIGHT)
    other = whole_and_parts(node.right) if node.right else (WEIGHT, WEIGHT)
    first, second = found
    return first + found[1] - other[0], second * node.weight


def sizes(node: Any) -> Any:
    """Results of one depth are of two kinds."""
    left = sizes(node.left) if node.left else 1
    right = sizes(node.right) if node.right else 2
    return left * WEIGHT if node.weight == 1 else left + right


def twice(node: Any) -> Tensor:
    """What is behind the join calls the function once more."""
    below = twice(node.left) if node.left else WEIGHT
    below = below * node.weight
    again = twice(node.right) if node.right else below
    return below + again.cos()


def with_another(node: Any) -> Tensor:
    """The leaves call another function."""
    left = with_another(node.left) if node.left else leaves(node)
    right = with_another(node.right) if node.right else WEIGHT
    return left + right * node.weight


def heavy(node: Any) -> Tensor:
    """To look at a node runs code."""
    left = heavy(node.left) if node.heavy and node.left else WEIGHT
    right = heavy(node.right) if node.right else WEIGHT
    return left.tanh() + right


def grown(depth: int, draw: random.Random, *kinds: type[Node]) -> Any:
    if not depth or draw.random() < 0.25:
        return None
    left, right = grown(depth - 1, draw, *kinds), grown(depth - 1, draw, *kinds)
    return draw.choice(kinds)(draw.randrange(4), left, right)


def grove(size: int, *kinds: type[Node]) -> list[Any]:
    draw, kinds = random.Random(0), kinds or (Node,)
    return [kinds[0](i % 4, grown(4, draw, *kinds), grown(4, draw, *kinds)) for i in range(size)]


def depth_of(node: Any) -> int:
    return 0 if node is None else 1 + max(depth_of(node.left), depth_of(node.right))


def counted(func: Callable[..., Any], nodes: list[Any], **options: Any) -> Counts:
    with checking(), autobatch.counts() as counts:
        autobatch.vmap(func, **options)(autobatch.objects(nodes))
    return counts


@pytest.mark.sampled(3)
@pytest.mark.parametrize("func", [leaves, pairs, whole_and_parts, sizes, twice, with_another])
def test_results_are_the_loops(func: Callable[..., Any]):
    nodes = grove(12, Node, Other)
    with checking():
        assert_matches_loop(func, [autobatch.objects(nodes)], batch_sizes=(1, 12))


def test_to_look_at_an_object_may_run_code():
    nodes = grove(8, Computed)
    assert_matches_loop(heavy, [autobatch.objects(nodes)])


@pytest.mark.parametrize("func", [leaves, pairs, whole_and_parts])
def test_all_depths_are_known_at_once(func: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    begun: list[int] = []
    run = BottomUp.run
    monkeypatch.setattr(BottomUp, "run", lambda self: begun.append(len(self.depths)) or run(self))
    nodes = grove(16)
    assert_matches_loop(func, [autobatch.objects(nodes)], batch_sizes=(16,))
    assert set(begun) == {max(map(depth_of, nodes)) - 1}


def test_no_more_of_them_at_once_than_the_limit(monkeypatch: pytest.MonkeyPatch):
    nodes = grove(8)
    once = counted(leaves, nodes)
    monkeypatch.setattr(together, "MOST", 8)
    often = counted(leaves, nodes)
    assert often.block_executions > once.block_executions
    assert often.threads_by_block == once.threads_by_block
    assert_matches_loop(leaves, [autobatch.objects(nodes)])


@pytest.mark.parametrize("options", [{"max_width": 16}, {"max_depth": 20}, {"seed": 0}])
def test_limits_and_seeds(options: dict[str, Any]):
    assert_matches_loop(leaves, [autobatch.objects(grove(8))], **options)


def test_deeper_than_the_limit():
    nodes = [Node(1), Node(1, Node(2, Node(3, Node(4)))), Node(2, Node(1))]
    batched = autobatch.vmap(leaves, max_depth=3, on_error="isolate")
    found = batched(autobatch.objects(nodes))
    assert [result.exception is None for result in found] == [True, False, True]


def chained(node: Any) -> Tensor:
    left = chained(node.left) if node.left else WEIGHT
    right = chained(node.right) if node.right else WEIGHT
    return left * node.weight + right * node.weight


@pytest.mark.parametrize("weight", [None, "heavy"])
def test_what_fails_below_is_the_loops(weight: Any):
    nodes = grove(9)
    nodes[6].left = Node(1, Node(2, Node(1), Node(weight)))
    nodes[3].right = Node(1, Node(weight, Node(1)))
    assert_matches_loop(chained, [autobatch.objects(nodes)])


def test_isolated_threads():
    nodes = grove(6)
    nodes[4].left = Node(1, Node(2, Node(1), Node(None)))
    nodes[1].right = Node(None)
    del nodes[2].weight
    batched = autobatch.vmap(chained, on_error="isolate")
    with checking():
        found = batched(autobatch.objects(nodes))
    for place, result in enumerate(found):
        assert (result.exception is None) == (place not in (1, 2, 4))
        if result.exception is None:
            torch.testing.assert_close(result.value, chained(nodes[place]))


def test_gradients():
    nodes = grove(6)
    weight = torch.randn(3, requires_grad=True)

    def value(node: Any) -> Tensor:
        left = value(node.left) if node.left else weight
        right = value(node.right) if node.right else weight * 0.5
        return torch.tanh(left * weight - right * node.weight)

    expected = torch.autograd.grad(sum(value(node).sum() for node in nodes), weight)
    batched = autobatch.vmap(value, trace_after=0)
    for _ in range(2):
        with checking():
            found = batched(autobatch.objects(nodes))
        torch.testing.assert_close(torch.autograd.grad(found.sum(), weight), expected)
