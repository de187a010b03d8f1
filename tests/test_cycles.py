"""Objects that refer to each other in a ring, and to one part many times: trees with parents."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.batching.stretches.checking import same_leaf
from autobatch.values.cells import Cell, Column, Container, Uniform
from autobatch.values.heap.walks import parts


class Node:
    def __init__(self, x: Tensor, parent: Any) -> None:
        self.x, self.parent, self.kids = x, parent, []

    def grow(self) -> Any:
        self.kids.append(Node(self.x * 2, self))
        return self.kids[-1]


def sum_up_a_branch(x: Tensor, n: Tensor) -> Tensor:
    node = Node(x, None)
    for _ in range(int(n)):
        node = node.grow()
    total = x * 0
    while node is not None:
        total = total + node.x
        node = node.parent
    return total


def best_kid(x: Tensor, n: Tensor) -> Tensor:
    root = Node(x, None)
    for i in range(int(n)):
        root.grow().x = x * (i - 2) ** 2
    return max(root.kids, key=lambda kid: kid.x.item()).x + len(root.kids)


def ladder(x: Tensor, n: Tensor) -> Tensor:
    rungs = [x]
    for _ in range(64):
        rungs = [rungs, rungs]
    total = x * 0
    for i in range(int(n)):
        total = total + i * len(rungs)
    return total + len(rungs[0])


def ring_of_lists(x: Tensor, n: Tensor) -> Tensor:
    items = [Node(x, None), n]
    items.append(items)
    return items[2][0].x + len(items[2][2])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
@pytest.mark.parametrize("executor", ["traced", "vmap", "auto"])
@pytest.mark.parametrize("program", [sum_up_a_branch, best_kid, ladder, ring_of_lists])
def test_rings_and_ladders_of_objects(program: Any, executor: str, engine: str) -> None:
    xs, ns = torch.tensor([1.0, -2.0, 0.5, 3.0]), torch.tensor([3, 1, 6, 4])
    expected = torch.stack([program(x, n) for x, n in zip(xs, ns, strict=True)])
    batched = autobatch.vmap(program, engine=engine, executor=executor, trace_after=0)
    for _ in range(2):
        got = batched(xs, ns)
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected)


def ring(data: Tensor) -> Cell:
    """A list that holds a column and itself."""
    cell = Cell(Uniform(None))
    cell.value = Container(list, [Cell(Column(data)), cell])
    return cell


def test_what_a_ring_holds_is_met_once() -> None:
    cell = ring(torch.zeros(2))
    assert sorted(map(id, parts(cell))) == sorted([id(cell), id(cell.value.children()[0])])


def test_rings_are_compared() -> None:
    assert same_leaf(ring(torch.zeros(2)), ring(torch.zeros(2)))
    assert not same_leaf(ring(torch.zeros(2)), ring(torch.ones(2)))
