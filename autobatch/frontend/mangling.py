"""Class-private names: inside a class ``Tree``, ``__x`` means ``_Tree__x``.

Before: ``self.__count``. After: ``self._Tree__count``. Keyword arguments stay as they are, as in
Python. The tree that comes in is left alone, since others share it.
"""

from __future__ import annotations

import ast
import copy
from typing import Any

from autobatch.source import FunctionNode


def mangle_names(node: FunctionNode, owner: str | None) -> FunctionNode:
    """``node`` with the private names of the class ``owner`` spelled out."""
    stripped = (owner or "").lstrip("_")
    if not stripped:
        return node
    if not any(_is_private(name) for part in ast.walk(node) for name in _spelled(part)):
        return node
    mangled: FunctionNode = _Mangler(stripped).visit(copy.deepcopy(node))
    return mangled


def _is_private(name: object) -> bool:
    if not isinstance(name, str):
        return False
    return name.startswith("__") and not name.endswith("__") and "." not in name


_FIELDS = ("id", "attr", "arg", "name", "asname", "rest")


def _spelled(node: ast.AST) -> list[object]:
    if isinstance(node, ast.keyword):
        return []
    names = [getattr(node, field, None) for field in _FIELDS]
    return names + (node.names if isinstance(node, (ast.Global, ast.Nonlocal)) else [])


class _Mangler(ast.NodeTransformer):
    def __init__(self, owner: str) -> None:
        self.owner = owner

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.keyword):
            return node
        for field in _FIELDS:
            name: Any = getattr(node, field, None)
            if _is_private(name):
                setattr(node, field, f"_{self.owner}{name}")
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            node.names = [
                f"_{self.owner}{name}" if _is_private(name) else name for name in node.names
            ]
        return node
