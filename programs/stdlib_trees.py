"""Functions of the Python standard library on this machine, as binary trees.

A function's ``ast`` becomes a ``Tree`` with one node per AST node; a node with more than two
children gets them in two halves of about one weight, and the halves their own halves, under
nodes named ``GROUP``. The heavier half stands left, and the label above tells if that swapped
them. So trees of one size have nearly one shape, and threads that walk them stay together.
Labels are hashes, below ``labels``, of the identifier or the kind of node.
"""

from __future__ import annotations

import ast
import sysconfig
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from programs.treelstm import Tree

LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
GROUP = "[group]"
SWAPPED = "[swapped]"


@dataclass(frozen=True, slots=True)
class SourceFunction:
    """``name`` is ``file.py:line:function``, the file relative to the library's root."""

    name: str
    tree: Tree
    nodes: int


def library_files() -> list[Path]:
    """The library's Python files in order of name, installed packages and its tests left out."""
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(root.rglob("*.py"))
    return [file for file in files if not LEFT_OUT & set(file.relative_to(root).parts)]


def functions_in(file: Path, labels: int) -> Iterator[SourceFunction]:
    """All functions and methods of a file, nested ones too; none where it does not parse."""
    root = Path(sysconfig.get_path("stdlib"))
    try:
        with warnings.catch_warnings(action="ignore"):
            module = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            tree, nodes = tree_of(node, labels)
            name = f"{file.relative_to(root)}:{node.lineno}:{node.name}"
            yield SourceFunction(name, tree, nodes)


def tree_of(node: ast.AST, labels: int) -> tuple[Tree, int]:
    """The tree of a node, and how many nodes it has."""
    children = [
        tree_of(child, labels)
        for child in ast.iter_child_nodes(node)
        if not isinstance(child, ast.expr_context)
    ]
    return joined(text_of(node), children, labels)


def joined(text: str, trees: list[tuple[Tree, int]], labels: int) -> tuple[Tree, int]:
    """A node over ``trees``: halves of about one weight, the heavier one left."""
    if len(trees) < 2:
        below, weight = trees[0] if trees else (None, 0)
        return Tree(hashed(text, labels), below), weight + 1
    middle = balance(trees)
    left, left_weight = half(trees[:middle], labels)
    right, right_weight = half(trees[middle:], labels)
    if left_weight < right_weight:
        left, right = right, left
        text = SWAPPED + text
    return Tree(hashed(text, labels), left, right), 1 + left_weight + right_weight


def half(trees: list[tuple[Tree, int]], labels: int) -> tuple[Tree, int]:
    return trees[0] if len(trees) == 1 else joined(GROUP, trees, labels)


def balance(trees: list[tuple[Tree, int]]) -> int:
    """Where to cut, so that what stands before and behind weighs about the same."""
    before = list(accumulate(weight for _, weight in trees))
    return 1 + min(range(len(trees) - 1), key=lambda i: abs(2 * before[i] - before[-1]))


def text_of(node: ast.AST) -> str:
    """The identifier at a node, or else what kind of node it is."""
    for field in ("id", "name", "attr", "arg"):
        text = getattr(node, field, None)
        if isinstance(text, str):
            return text
    return type(node).__name__


def hashed(text: str, labels: int) -> int:
    """By ``crc32``, which, unlike ``hash``, is the same in every process."""
    return zlib.crc32(text.encode()) % labels
