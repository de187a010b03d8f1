"""Functions of the Python standard library on this machine, as binary trees.

A function's ``ast`` becomes a ``Tree`` with one node per AST node, in source order; a node
with more than two children gets them in balanced halves under nodes labelled ``GROUP``.
Labels are the identifier at a node (``id``, ``name``, ``attr``, ``arg``) or else the kind
of node, hashed below ``labels``: by ``crc32``, which, unlike ``hash``, stays the same from
run to run.
"""

from __future__ import annotations

import ast
import sysconfig
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from programs.treelstm import Tree

LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
GROUP = 0


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
            tree = tree_of(node, labels)
            name = f"{file.relative_to(root)}:{node.lineno}:{node.name}"
            yield SourceFunction(name, tree, size_of(tree))


def tree_of(node: ast.AST, labels: int) -> Tree:
    children = [
        tree_of(child, labels)
        for child in ast.iter_child_nodes(node)
        if not isinstance(child, ast.expr_context)
    ]
    middle = (len(children) + 1) // 2
    return Tree(label(node, labels), grouped(children[:middle]), grouped(children[middle:]))


def grouped(trees: list[Tree]) -> Tree | None:
    """One tree over ``trees``, in balanced halves; None over none."""
    if len(trees) < 2:
        return trees[0] if trees else None
    middle = (len(trees) + 1) // 2
    return Tree(GROUP, grouped(trees[:middle]), grouped(trees[middle:]))


def size_of(tree: Tree | None) -> int:
    return 1 + size_of(tree.left) + size_of(tree.right) if tree else 0


def label(node: ast.AST, labels: int) -> int:
    """Between 1 and ``labels - 1``; ``GROUP`` is kept free."""
    for field in ("id", "name", "attr", "arg"):
        text = getattr(node, field, None)
        if isinstance(text, str):
            break
    else:
        text = type(node).__name__
    return 1 + zlib.crc32(text.encode()) % (labels - 1)
