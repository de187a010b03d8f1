"""TreeLSTMs: random binary trees of 10 to 40 leaves, and the syntax trees of the main job."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from benchmarks.workload import Problem, Workload
from programs.encode_stdlib import LABELS
from programs.example import seeded
from programs.stdlib_trees import functions_in, library_files
from programs.treelstm import Tree, TreeLSTM

State = tuple[Tensor, Tensor]


def level_by_level(model: TreeLSTM, trees: Sequence[Tree]) -> State:
    """All nodes of one depth at once, the deepest first; the schedule is made here."""
    h = c = model.zero[None]
    for labels, left, right in reversed(levels(trees, model.zero.device)):
        h, c = (
            torch.cat((state, model.zero[None])) for state in step(model, h, c, labels, left, right)
        )
    return h[:-1], c[:-1]


def levels(trees: Sequence[Tree], device: torch.device) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Of each depth: labels, and rows of the children in the next depth; -1 is no child."""
    found = []
    level = list(trees)
    while level:
        below: list[Tree] = []
        left: list[int] = []
        right: list[int] = []
        for tree in level:
            for child, numbers in ((tree.left, left), (tree.right, right)):
                numbers.append(len(below) if child else -1)
                if child:
                    below.append(child)
        labels = torch.tensor([tree.label for tree in level], device=device)
        # The state of no child is the row after the last child's.
        rows = (torch.tensor(own, device=device) % (len(below) + 1) for own in (left, right))
        found.append((labels, *rows))
        level = below
    return found


def step(
    model: TreeLSTM, h: Tensor, c: Tensor, labels: Tensor, left: Tensor, right: Tensor
) -> State:
    below = torch.cat((h.index_select(0, left), h.index_select(0, right)), 1)
    gates = model.embedding(labels) + model.gates(below)
    new, keep_left, keep_right, out, update = gates.chunk(5, 1)
    c = (
        new.sigmoid() * update.tanh()
        + keep_left.sigmoid() * c.index_select(0, left)
        + keep_right.sigmoid() * c.index_select(0, right)
    )
    return out.sigmoid() * c.tanh(), c


def full_tree(leaves: int, labels: int, draw: random.Random) -> Tree:
    """A binary tree with so many leaves, split at random at every level."""
    label = draw.randrange(labels)
    if leaves == 1:
        return Tree(label)
    left = draw.randint(1, leaves - 1)
    return Tree(label, full_tree(left, labels, draw), full_tree(leaves - left, labels, draw))


def problem(model: TreeLSTM, trees: list[Tree]) -> Problem:
    by_hand = {"level-by-level": lambda: level_by_level(model, trees)}
    return Problem(model, (trees,), by_hand, list(model.parameters()))


def random_trees(hidden: int) -> Callable[..., Problem]:
    def make(batch: int, device: str = "cpu") -> Problem:
        draw = random.Random(0)
        with seeded(0):
            model = TreeLSTM(labels=1000, hidden=hidden).to(device)
        sizes = [25] if batch == 1 else [draw.randint(10, 40) for _ in range(batch)]
        return problem(model, [full_tree(size, 1000, draw) for size in sizes])

    return make


def syntax_trees(batch: int, device: str = "cpu") -> Problem:
    """Functions from all over the standard library, of any size."""
    with seeded(0):
        model = TreeLSTM(LABELS, 128).to(device)
    return problem(model, random.Random(0).sample(library_trees(1 if batch > 1024 else 10), batch))


@functools.cache
def library_trees(step: int) -> list[Tree]:
    """Of every so many files: every tenth has 1,600."""
    return [f.tree for file in library_files()[::step] for f in functions_in(file, LABELS)]


TREELSTM_128 = Workload("treelstm_128", random_trees(128), largest=8192, tolerance=1e-4)
TREELSTM_256 = Workload("treelstm_256", random_trees(256), largest=8192, tolerance=1e-4)
SYNTAX_TREES = Workload("syntax_trees", syntax_trees, largest=8192, tolerance=1e-4)
