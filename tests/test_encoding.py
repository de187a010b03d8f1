"""``encode``: programs over node numbers give what the programs over the objects give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch import OptionError
from programs.child_sum_treelstm import ChildSumTreeLSTM, random_node
from programs.treelstm import Tree, TreeLSTM, random_tree
from tests.oracle import assert_matches_loop
from tests.test_transforms import engines, same


class EncodedTreeLSTM(TreeLSTM):
    """``TreeLSTM`` over the numbers of nodes."""

    def forward(self, nodes: Any, i: Any) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        nothing = self.zero, self.zero
        left, right = nodes.left[i], nodes.right[i]
        left_h, left_c = self.forward(nodes, left) if left >= 0 else nothing
        right_h, right_c = self.forward(nodes, right) if right >= 0 else nothing
        gates = self.embedding.weight[nodes.label[i]] + self.gates(torch.cat((left_h, right_h)))
        new, keep_left, keep_right, out, update = gates.chunk(5)
        c = (
            new.sigmoid() * update.tanh()
            + keep_left.sigmoid() * left_c
            + keep_right.sigmoid() * right_c
        )
        return out.sigmoid() * c.tanh(), c


class EncodedChildSum(ChildSumTreeLSTM):
    """``ChildSumTreeLSTM`` over the numbers of nodes."""

    def forward(self, nodes: Any, i: Any) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        states = [self.forward(nodes, child) for child in nodes.children[i]]
        new, out, update, keep = self.embedding.weight[nodes.label[i]].chunk(4)
        total, kept = self.zero, self.zero
        for h, c in states:
            total = total + h
            kept = kept + torch.sigmoid(keep + self.forget(h)) * c
        new_h, out_h, update_h = self.gates(total).chunk(3)
        c = torch.sigmoid(new + new_h) * torch.tanh(update + update_h) + kept
        return torch.sigmoid(out + out_h) * torch.tanh(c), c


def models(plain: Any, encoded: Any, grow: Callable[[int, int], Any]) -> Any:
    model, twin = plain(labels=8, hidden=4).double(), encoded(labels=8, hidden=4).double()
    twin.load_state_dict(model.state_dict())
    return model, twin, [grow(size, 8) for size in (1, 7, 12, 2, 9)]


BOTH = pytest.mark.parametrize(
    ("plain", "encoded", "grow"),
    [
        (TreeLSTM, EncodedTreeLSTM, random_tree),
        (ChildSumTreeLSTM, EncodedChildSum, random_node),
    ],
    ids=["binary", "child-sum"],
)


@pytest.mark.sampled(4)
@engines
@BOTH
def test_encoded_trees_give_what_objects_give(
    plain: Any, encoded: Any, grow: Any, way: dict[str, Any]
) -> None:
    model, twin, trees = models(plain, encoded, grow)
    nodes = autobatch.encode(trees)
    expected = [torch.stack(part) for part in zip(*map(model, trees), strict=True)]
    with autobatch.counts() as counts:
        got = autobatch.vmap(twin, in_dims=(None, 0), **way)(nodes, nodes.roots)
    same(got, tuple(expected))
    assert counts.other_reads["objects"] == 0
    same(twin(nodes, nodes.roots[2]), model(trees[2]))
    got[0].sum().backward()
    expected[0].sum().backward()
    same(twin.gates.weight.grad, model.gates.weight.grad)


@BOTH
def test_recursion_over_numbers_runs_as_wide_as_over_objects(
    plain: Any, encoded: Any, grow: Any
) -> None:
    model, twin, trees = models(plain, encoded, grow)
    nodes = autobatch.encode(trees)
    with autobatch.counts() as objects:  # block by block: no descents
        autobatch.vmap(model, max_steps=10_000)(autobatch.objects(trees))
    with autobatch.counts() as numbers:
        autobatch.vmap(twin, in_dims=(None, 0))(nodes, nodes.roots)
    assert numbers.block_executions <= objects.block_executions
    if plain is TreeLSTM:
        assert numbers.by_thread == 0 < objects.by_thread


def leaf_sum(nodes: Any, i: Any) -> Any:
    total = nodes.weight[i] * len(nodes.words[i])
    for row in nodes.words[i]:
        total = total + row.sum() * nodes.scale[i]
    for child in nodes.parts[i]:
        total = total + leaf_sum(nodes, child)
    if nodes.extra[i] >= 0:
        total = total - leaf_sum(nodes, nodes.extra[i])
    return total if nodes.last[i] else total * 2


@dataclass
class Item:
    weight: float
    scale: int
    words: Tensor
    last: bool = False
    parts: tuple[Item, ...] = ()
    extra: Any = None
    name: str = ""


@dataclass
class Special(Item):
    note: list[str] = field(default_factory=list)


def items() -> list[Item]:
    low = [Item(0.5 * i, i, torch.randn(i % 3, 2), i % 2 == 0, name=str(i)) for i in range(5)]
    middle = Item(
        2.0,
        1,
        torch.randn(4, 2),
        True,
        (low[0], low[1], low[2]),
        Special(1.0, 2, torch.randn(1, 2)),
    )
    return [Item(1.0, 3, torch.randn(2, 2), False, (middle, low[3]), low[4]), low[1], middle]


def test_every_kind_of_attribute() -> None:
    roots = items()
    nodes = autobatch.encode(roots)
    assert len(nodes) == 8 and len(nodes.roots) == 3  # what is referred to twice is there once
    assert nodes.roots[2] == nodes.parts[nodes.roots[0]][0]
    assert nodes.weight.dtype == torch.float32 and nodes.scale.dtype == torch.int64
    assert nodes.last.dtype == torch.bool and nodes.extra.dtype == torch.int64
    assert "8 nodes of 3 trees" in repr(nodes)
    torch.testing.assert_close(nodes.words[nodes.roots[0]], roots[0].words)
    assert_matches_loop(leaf_sum, (nodes, nodes.roots), in_dims=(None, 0), batch_sizes=(1, None))
    with pytest.raises(AttributeError, match="have no 'name'; what was encoded is parts, extra"):
        _ = nodes.name
    wide = nodes.to(torch.float64)
    assert wide.weight.dtype == torch.float64 and wide.scale.dtype == torch.int64
    assert wide.words.table.dtype == torch.float64 and wide.words.bounds.dtype == torch.int64


class Pair(NamedTuple):
    value: int
    left: Any = None
    right: Any = None


def test_named_tuples_are_nodes() -> None:
    nodes = autobatch.encode([Pair(3, Pair(1), Pair(2, None, Pair(5))), Pair(4)])
    assert nodes.value.tolist() == [3, 1, 2, 5, 4]
    assert nodes.left.tolist() == [1, -1, -1, -1, -1]
    assert nodes.right.tolist() == [2, -1, 3, -1, -1]
    assert nodes.roots.tolist() == [0, 4]


def test_children_and_features_by_function() -> None:
    leaf = (None, None)
    trees = [(leaf, (leaf, (leaf, None))), leaf, (None, leaf)]
    nodes = autobatch.encode(
        trees,
        children=lambda node: [child for child in node if child is not None],
        features={"full": lambda node: None not in node, "size": len},
    )

    def depth(nodes: Any, i: Any) -> Any:
        deepest = 0
        for child in nodes.children[i]:
            deepest = max(deepest, depth(nodes, child))
        return deepest + 1

    assert autobatch.vmap(depth, in_dims=(None, 0))(nodes, nodes.roots).tolist() == [4, 1, 2]
    assert nodes.full[nodes.roots].tolist() == [True, False, False]
    assert nodes.size.tolist() == [2] * len(nodes)


def test_gradients_flow_to_features() -> None:
    weights = [torch.randn(3, requires_grad=True) for _ in range(3)]
    trees = [Tree(0, Tree(1), Tree(2)), Tree(2, None, Tree(1))]
    nodes = autobatch.encode(trees, features={"x": lambda node: weights[node.label]})

    def total(nodes: Any, i: Any) -> Tensor:
        x = nodes.x[i].sum()
        if nodes.left[i] >= 0:
            x = x * total(nodes, nodes.left[i])
        if nodes.right[i] >= 0:
            x = x - total(nodes, nodes.right[i])
        return x

    got = autobatch.vmap(total, in_dims=(None, 0))(nodes, nodes.roots)
    s = [weight.sum() for weight in weights]
    want = torch.stack([s[0] * s[1] - s[2], s[2] - s[1]])
    same(got, want)
    given = torch.autograd.grad(got.sum(), weights)
    same(given, torch.autograd.grad(want.sum(), weights))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (["name"], "The feature 'name' is not a number in all nodes.*: str"),
        ({"hash": lambda node: 2**70}, "is not a number .*: int of more than 64 bits"),
        (["nothing"], "A Item has no 'nothing' to encode"),
        ({"row": lambda node: node.words[:, :1] if node.last else node.words}, "row shape"),
    ],
)
def test_what_cannot_be_encoded_is_told(features: Any, message: str) -> None:
    with pytest.raises(autobatch.OptionError, match=message):
        autobatch.encode(items(), features=features)


def test_what_is_read_of_parts_is_a_copy_and_out_of_range_an_error() -> None:
    nodes = autobatch.encode(items())

    def changed(nodes: Any, i: Any) -> Tensor:
        words = nodes.words[i]
        words += 1
        return words.sum()

    assert_matches_loop(changed, (nodes, nodes.roots), in_dims=(None, 0))
    with pytest.raises(IndexError):
        autobatch.vmap(lambda i: nodes.words[i])(torch.tensor([0, 99]))


def test_a_root_that_is_none_is_no_node() -> None:
    nodes = autobatch.encode([None, Tree(1, Tree(2), None), None])
    assert nodes.roots.tolist() == [-1, 0, -1]
    assert nodes.left.tolist() == [1, -1] and nodes.label.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"children": ("lft", "right")}, "No node has 'lft', which children names: Tree"),
        ({"children": 3}, "children is 3; it must be names of attributes, or a function"),
        ({"features": 3}, "features is 3; it must be names of attributes, or a dict by name"),
        ({"features": [len]}, "features is .* it must be names"),
    ],
)
def test_options_that_name_nothing(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        autobatch.encode([Tree(1, Tree(2), None)], **given)


def test_a_name_by_itself() -> None:
    nodes = autobatch.encode([Tree(1, Tree(2), None)], children="left", features="label")
    assert nodes.left.tolist() == [1, -1] and nodes.label.tolist() == [1, 2]


def test_one_tree_is_no_iterable_of_trees() -> None:
    with pytest.raises(OptionError, match="trees is a Tree; it must be an iterable of roots"):
        autobatch.encode(Tree(1))


@pytest.mark.parametrize("root", [{"left": None}, (1, (2, 3)), [1, [2]], "tree", 7], ids=str)
def test_roots_without_attributes(root: Any) -> None:
    with pytest.raises(OptionError, match=f"is a {type(root).__name__}, which has no attributes"):
        autobatch.encode([None, root])
    nodes = autobatch.encode([root], features={"size": lambda node: len(str(node))})
    assert nodes.size.tolist() == [len(str(root))]


class Leaf:
    def __init__(self, weight: float) -> None:
        self.weight, self.left, self.children = weight, None, ()


def test_trees_of_leaves_have_what_would_refer_to_others() -> None:
    nodes = autobatch.encode([Leaf(1.0), Leaf(2.0)])
    assert nodes.left.tolist() == [-1, -1] and nodes.left.dtype == torch.int64

    def total(nodes: Any, i: Any) -> Any:
        if i < 0:
            return torch.zeros(())
        below = sum(total(nodes, child) for child in nodes.children[i])
        return nodes.weight[i] + below + total(nodes, nodes.left[i])

    got = autobatch.vmap(total, in_dims=(None, 0))(nodes, nodes.roots)
    assert got.tolist() == [1.0, 2.0]


def test_a_number_that_no_tensor_holds_is_left_out() -> None:
    class Hashed:
        def __init__(self, key: int) -> None:
            self.key, self.label = key, 1

    nodes = autobatch.encode([Hashed(3), Hashed(2**70)])
    assert not hasattr(nodes, "key")
    assert nodes.label.tolist() == [1, 1]
