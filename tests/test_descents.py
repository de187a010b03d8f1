"""Descents: threads go to the calls that they fork by themselves, in one block execution."""

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
from autobatch.vm.invariants import checking
from programs.treelstm import Tree, TreeLSTM, random_tree
from tests.oracle import assert_matches_loop
from tests.sweeps import case

SIZES = (1, 7, 64)


class Node:
    """An object without slots, of which each has its own attributes."""

    def __init__(self, weight: Any, left: Any = None, right: Any = None) -> None:
        self.weight, self.left, self.right = weight, left, right

    def mass(self, x: Tensor) -> Tensor:
        below = self.left.mass(x) if self.left is not None else x
        other = self.right.mass(x) if self.right is not None else x
        return below + other * self.weight


class Falsy(Node):
    def __bool__(self) -> bool:
        return self.weight > 1


class Computed(Node):
    """``left`` runs code."""

    @property
    def left(self) -> Any:
        return self.kept

    @left.setter
    def left(self, node: Any) -> None:
        self.kept = node


@dataclass
class Wrapped:
    inner: Any


def total(node: Any, x: Tensor) -> Tensor:
    left = total(node.left, x) if node.left else x
    right = total(node.right, x) if node.right else x
    return left.tanh() + right * node.weight


def guarded(node: Any, x: Tensor) -> Tensor:
    if node is None:
        return x
    return guarded(node.left, x).tanh() + guarded(node.right, x) * node.weight


def chained(node: Any, x: Tensor) -> Tensor:
    """What is looked at lies two attributes away."""
    left = chained(node.left.inner, x) if node.left.inner is not None else x
    right = chained(node.right.inner, x) if node.right.inner is not None else x
    return left.tanh() + right * node.weight


def one_or_none(node: Any, x: Tensor) -> Tensor:
    """A way without a call is taken by some threads, and others fork on one side."""
    x = x + 1
    if node.left:
        first, second = one_or_none(node.left, x), one_or_none(node.left, x * 2)
    else:
        first = second = x
    return first - second * node.weight


def called(node: Node, x: Tensor) -> Tensor:
    return node.mass(x)


def grown(depth: int, draw: random.Random, *kinds: type[Node]) -> Any:
    if not depth or draw.random() < 0.3:
        return None
    left, right = grown(depth - 1, draw, *kinds), grown(depth - 1, draw, *kinds)
    return draw.choice(kinds)(draw.randrange(4), left, right)


def grove(*kinds: type[Node], size: int = 64) -> list[Any]:
    draw = random.Random(0)
    return [kinds[0](2, grown(5, draw, *kinds), grown(5, draw, *kinds)) for _ in range(size)]


def wrapped(node: Any) -> Any:
    if node is not None:
        node.left, node.right = Wrapped(wrapped(node.left)), Wrapped(wrapped(node.right))
    return node


def counted(func: Callable[..., Any], *args: Any, **options: Any) -> Counts:
    with checking(), autobatch.counts() as counts:
        autobatch.vmap(func, **options)(*args)
    return counts


PROGRAMS = [total, guarded, one_or_none, called]


KINDS = ((Node,), (Node, Falsy), (Computed,), (Node, Computed))
OVER_KINDS = [
    case(
        *(func, kinds),
        name=f"{func.__name__}-{'-'.join(kind.__name__ for kind in kinds)}",
        default=(i + j) % 2 == 0,
    )
    for i, func in enumerate(PROGRAMS)
    for j, kinds in enumerate(KINDS)
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("func", "kinds"), OVER_KINDS)
def test_results_are_the_loops(func: Callable[..., Any], kinds: tuple[type[Node], ...]):
    nodes = grove(*kinds)
    assert_matches_loop(func, [autobatch.objects(nodes), torch.randn(64, 3)], batch_sizes=SIZES)


def test_what_lies_deeper_is_looked_at_too():
    nodes = [wrapped(node) for node in grove(Node)]
    args = [autobatch.objects(nodes), torch.randn(64, 3)]
    assert_matches_loop(chained, args, batch_sizes=SIZES)


def depth_of(node: Any) -> int:
    return 0 if node is None else 1 + max(depth_of(node.left), depth_of(node.right))


def weighed(node: Any, x: Tensor) -> Tensor:
    """Of nodes of one class only: what fails is not tried again at once."""
    left = weighed(node.left, x) if node.left else x
    right = weighed(node.right, x) if node.right else x
    return left.tanh() + right * node.weight


def test_a_level_is_one_block_execution_up_to_its_join():
    nodes = grove(Node)
    depth = max(map(depth_of, nodes))
    counts = counted(weighed, autobatch.objects(nodes), torch.randn(64, 3))
    assert {pc for _, pc in counts.by_block} == {0, 4, 5}  # its beginning, the join, the rest
    assert counts.by_block["weighed", 0] == depth
    assert counts.threads_by_block["weighed", 0] == sum(map(size_of, nodes))
    assert counts.host_reads == depth


def size_of(node: Any) -> int:
    return 0 if node is None else 1 + size_of(node.left) + size_of(node.right)


@pytest.mark.parametrize("batch", SIZES)
def test_a_treelstm_looks_at_each_level_once(batch: int):
    torch.manual_seed(0)
    trees = [random_tree(15, 32) for _ in range(batch)]
    model = TreeLSTM(labels=32, hidden=4)
    counts = counted(model, autobatch.objects(trees))
    name = "TreeLSTM.forward"
    assert {pc for _, pc in counts.by_block} == {0, 4, 5}
    assert counts.by_block[name, 0] == max(map(depth_of, trees))
    assert counts.threads_by_block[name, 0] == 15 * batch


@pytest.mark.parametrize("options", [{"max_steps": 10_000}, {"schedule": "most_threads"}])
def test_each_block_by_itself_where_that_is_asked_for(options: dict[str, Any]):
    nodes, x = grove(Node, size=8), torch.randn(8, 3)
    plain = counted(weighed, autobatch.objects(nodes), x)
    apart = counted(weighed, autobatch.objects(nodes), x, **options)
    assert apart.block_executions > plain.block_executions


def test_listeners_hear_of_each_block():
    nodes, x = grove(Node, size=4), torch.randn(4, 3)
    heard: list[str] = []
    autobatch.vmap(weighed, listeners=(lambda step: heard.append(step.block),))(
        autobatch.objects(nodes), x
    )
    assert len(heard) > counted(weighed, autobatch.objects(nodes), x).block_executions


def switched(node: Any, x: Tensor) -> Tensor:
    left = switched(node.left, x) if node.left else x
    right = switched(node.right, x) if node.right else x
    return left.tanh() + right * node.weight


def test_what_has_failed_is_tried_again_later():
    x = torch.randn(8, 3)
    for _ in range(3):
        counted(switched, autobatch.objects(grove(Falsy, size=8)), x)
    for _ in range(8):
        counts = counted(switched, autobatch.objects(grove(Node, size=8)), x)
    assert {pc for _, pc in counts.by_block} == {0, 4, 5}


def test_an_attribute_that_is_not_there_is_the_loops_error():
    nodes = grove(Node, size=7)
    del nodes[3].right
    assert_matches_loop(total, [autobatch.objects(nodes), torch.randn(7, 3)])


def test_an_error_below_is_the_loops():
    nodes = grove(Node, size=7)
    nodes[5].left = Node("heavy")
    nodes[2].right = Node(None)
    assert_matches_loop(total, [autobatch.objects(nodes), torch.randn(7, 3)])


def ways(node: Any, x: Tensor) -> Tensor:
    """More ways to a join than are gone at once."""
    a = ways(node.left, x) if node.left else x
    b = ways(node.right, x) if node.right else x
    c = ways(node.left, x) if node.left else b
    d = ways(node.right, x) if node.right else a
    e = ways(node.left, x) if node.left else c
    return a + b - c * d.tanh() + e


def test_many_ways():
    draw = random.Random(1)
    nodes = [Node(1, grown(2, draw, Node), grown(2, draw, Node)) for _ in range(16)]
    assert_matches_loop(ways, [autobatch.objects(nodes), torch.randn(16, 3)], batch_sizes=(1, 16))


def kept(node: Any, x: Tensor) -> Tensor:
    """What is read on the way there is wanted after it; numbers among it."""
    left, weight = node.left, node.weight
    if left is not None:
        first, second = kept(left, x), kept(left, x + weight)
        return first * weight + second * left.weight
    return x * weight


def test_what_has_been_read_is_there_after_the_join():
    nodes, x = grove(Node), torch.randn(64, 3)
    assert_matches_loop(kept, [autobatch.objects(nodes), x], batch_sizes=SIZES)


def shared(node: Any, x: Tensor, found: list[Any]) -> Tensor:
    """Both results hold one list, which is written after the join."""
    if node.left:
        a, b = shared(node.left, x, [x]), shared(node.left, x * 2, [x])
    else:
        a = b = x
    found.append(a)
    return a + b + len(found)


def test_lists_are_each_threads_own():
    def begun(node: Any, x: Tensor) -> Tensor:
        return shared(node, x, [])

    assert_matches_loop(begun, [autobatch.objects(grove(Node)), torch.randn(64, 3)])


def test_gradients_flow():
    nodes, x = grove(Node), torch.randn(64, 3, requires_grad=True)
    autobatch.vmap(total)(autobatch.objects(nodes), x).sum().backward()
    found, x.grad = x.grad, None
    torch.stack([total(node, row) for node, row in zip(nodes, x, strict=True)]).sum().backward()
    torch.testing.assert_close(found, x.grad)


def test_what_all_share_may_change_between_calls():
    """An attribute of what all threads share is read anew in each run."""
    model = TreeLSTM(labels=32, hidden=4)
    trees = [Tree(1, Tree(2), Tree(3)), Tree(4)]
    batched = autobatch.vmap(model)
    batched(autobatch.objects(trees))
    model.zero = torch.ones(4)
    found, _ = batched(autobatch.objects(trees))
    torch.testing.assert_close(found, torch.stack([model(tree)[0] for tree in trees]))


def test_looks_at_objects_on_the_way_are_no_reason_to_keep_threads_apart():
    nodes, x = autobatch.objects(grove(Node)), torch.randn(64, 3)
    for _ in range(3):
        with torch.no_grad(), autobatch.counts() as counts:
            autobatch.vmap(weighed)(nodes, x)
        assert counts.plain == 0
