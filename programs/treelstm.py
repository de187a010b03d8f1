"""A binary TreeLSTM (Tai, Socher and Manning, 2015, equations 9 to 14), written as it reads.

The state of a tree is made from its label and the states of its subtrees: recursion over
Python objects. A missing subtree counts as a state of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)


@dataclass(slots=True)
class Tree:
    label: int
    left: Tree | None = None
    right: Tree | None = None


class TreeLSTM(nn.Module):
    """A ``Tree`` with labels below ``labels`` to its state: a pair of ``[hidden]``."""

    def __init__(self, labels: int, hidden: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(labels, 5 * hidden)
        self.gates = nn.Linear(2 * hidden, 5 * hidden)
        self.register_buffer("zero", torch.zeros(hidden))

    def forward(self, tree: Tree) -> tuple[Tensor, Tensor]:
        nothing = self.zero, self.zero
        left_h, left_c = self.forward(tree.left) if tree.left else nothing
        right_h, right_c = self.forward(tree.right) if tree.right else nothing
        gates = self.embedding.weight[tree.label] + self.gates(torch.cat((left_h, right_h)))
        new, keep_left, keep_right, out, update = gates.chunk(5)
        c = (
            new.sigmoid() * update.tanh()
            + keep_left.sigmoid() * left_c
            + keep_right.sigmoid() * right_c
        )
        return out.sigmoid() * c.tanh(), c


def random_tree(nodes: int, labels: int) -> Tree:
    """A tree of ``nodes`` nodes, split at random at every level."""
    label = int(torch.randint(labels, ()))
    if nodes == 1:
        return Tree(label)
    left = int(torch.randint(1, nodes, ()))
    right = nodes - 1 - left
    return Tree(
        label,
        random_tree(left, labels),
        random_tree(right, labels) if right else None,
    )


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    with seeded(seed):
        model = TreeLSTM(labels=32, hidden=16).to(dtype)
        sizes = torch.randint(1, 12, (batch,)).tolist()
        return Example(model, ([random_tree(size, 32) for size in sizes],))
