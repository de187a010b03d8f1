"""Rows that fork no more wait for the deepest call: what they have left runs once, not by depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.listeners import Counts
from autobatch.vm.invariants import checking
from programs.fibonacci import fibonacci
from programs.treelstm import Tree, TreeLSTM
from tests.oracle import assert_matches_loop

DEPTH = 9


def counted(func: Callable[..., Any], *args: Any, **options: Any) -> Counts:
    with checking(), autobatch.counts() as counts:
        autobatch.vmap(func, **options)(*args)
    return counts


def leaning(depth: int) -> Tree:
    """A tree with a leaf at every depth."""
    return Tree(depth, Tree(depth), leaning(depth - 1)) if depth else Tree(0)


def one_sided(depth: int) -> Tree:
    """Nodes with one child, now on this side and now on that."""
    if not depth:
        return Tree(0)
    below = one_sided(depth - 1)
    return Tree(depth, below) if depth % 2 else Tree(depth, None, below)


def squares(n: Tensor) -> Tensor:
    if n < 2:
        return n * n + 1
    return squares(n - 1) + squares(n - 2)


def test_the_leaves_of_all_depths_run_at_once():
    """Of the rows of forked calls; the threads' own are of another frame."""
    ns = torch.tensor([DEPTH, 1, 4])
    counts = counted(squares, ns)
    executions = [
        counts.by_block[place]
        for place, threads in counts.threads_by_block.items()
        if threads == sum(map(fibonacci, (ns + 1).tolist()))
    ]
    assert executions == [2]
    assert_matches_loop(squares, [ns])


def test_a_tree_takes_its_leaves_at_once():
    model = TreeLSTM(labels=32, hidden=4)
    name = "TreeLSTM.forward"
    counts = counted(model, autobatch.objects([leaning(DEPTH)]))
    assert counts.by_block[name, 0] == DEPTH + 1
    assert counts.by_block[name, 4] == DEPTH + 1  # a join at each depth, and that of the leaves
    assert counts.threads_by_block[name, 4] == 2 * DEPTH + 1
    assert counts.by_block[name, 5] == DEPTH + 1  # the leaves, and a node at each depth
    assert counts.block_executions == 3 * (DEPTH + 1)


@pytest.mark.parametrize("make", [leaning, one_sided], ids=lambda f: f.__name__)
def test_steps_follow_the_depth(make):
    """Where threads wait for each other, none waits for what it is not above."""
    model = TreeLSTM(labels=32, hidden=4)
    trees = [make(depth) for depth in (DEPTH, 1, 4, 0)]
    steps = counted(model, autobatch.objects(trees)).block_executions
    twice = counted(model, autobatch.objects([make(2 * DEPTH), *trees])).block_executions
    assert twice <= 2 * steps


def weighed(tree: Tree, x: Tensor) -> Tensor:
    if not tree.left:
        return x * tree.label if tree.label % 2 else torch.sqrt(x.double())
    if not tree.right:
        return weighed(tree.left, x) + 1
    return weighed(tree.left, x + 1) - weighed(tree.right, 2 * x)


def mixed(depth: int, label: int) -> Tree:
    if depth <= 0:
        return Tree(label)
    right = mixed(depth - 2, label + depth) if label % 3 else None
    return Tree(label, mixed(depth - 1, label + 1), right)


def test_leaves_of_different_kinds():
    trees = [mixed(depth, label) for depth in (0, 3, 6) for label in (1, 2)]
    assert_matches_loop(weighed, [autobatch.objects(trees), torch.linspace(1, 2, 6)])


def test_no_more_rows_at_once_than_the_limit():
    widths: list[int] = []
    ns = torch.tensor([11, 9, 11])
    batched = autobatch.vmap(
        fibonacci, max_width=8, listeners=[lambda step: widths.append(len(step.threads))]
    )
    with checking():
        assert batched(ns).tolist() == [fibonacci(n) for n in ns.tolist()]
    assert max(widths) <= 8


def inverse(n: int) -> float:
    if n < 2:
        return 1 / n
    return inverse(n - 1) + inverse(n - 2)


def test_a_leaf_that_fails_fails_where_it_is():
    """The note tells the calls that the thread is in, not those of the rows that it waits with."""
    batched = autobatch.vmap(inverse, scalars="python")
    with checking(), pytest.raises(ZeroDivisionError) as caught:
        batched(torch.tensor([1, 2, 9, 12]))
    (note,) = caught.value.__notes__
    assert "Example index: 1" in note
    assert note.count("called here") == 1


def test_isolated_leaves():
    batched = autobatch.vmap(inverse, scalars="python", on_error="isolate")
    with checking():
        results = batched(torch.tensor([1, 2, 1, 5]))
    assert [type(result.exception) for result in results] == [
        type(None),
        ZeroDivisionError,
        type(None),
        ZeroDivisionError,
    ]


def helped_depth(n: int) -> int:
    def down(k: int) -> int:
        return down(k - 1) + 1 if k > 0 else 0

    if n < 2:
        return down(3)
    return helped_depth(n - 1) + helped_depth(n - 2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("limit", range(3, 9))
def test_a_limit_of_the_depth_holds_for_what_a_thread_calls_itself(limit):
    """A thread that stays above the limit finishes, however deep those are that it ran with."""
    alone = autobatch.vmap(helped_depth, scalars="python", on_error="isolate", max_depth=limit)
    ns = [1, 2, 3, 6, 9]
    each = [alone(torch.tensor([n]))[0].exception is None for n in ns]
    together = [result.exception is None for result in alone(torch.tensor(ns))]
    assert together == each


def test_gradients_of_leaves():
    model = TreeLSTM(labels=32, hidden=4)
    trees = [leaning(5), leaning(2), one_sided(4)]
    with checking():
        h, _ = autobatch.vmap(model)(autobatch.objects(trees))
    h.square().sum().backward()
    batched = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    sum(model(tree)[0].square().sum() for tree in trees).backward()
    for found, parameter in zip(batched, model.parameters(), strict=True):
        torch.testing.assert_close(found, parameter.grad)
