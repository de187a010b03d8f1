"""Functions that yield, lowered to be looked into, not to be run.

``yield v`` puts ``v`` where a caller may take it out, and so it is lowered: as ``[].append(v)``;
``yield from xs`` is ``[].extend(xs)``. What either gives is None where nobody sends anything. Which
values a function holds, what it writes and calls, and what may come out of it is the same; when it
does so is not.
"""

from __future__ import annotations

import ast
import copy
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def without_yields(node: Node) -> Node:
    """A copy of a function's node, with what puts values into a list in the place of yields."""
    found = copy.deepcopy(node)
    for each in list(ast.iter_child_nodes(found)):
        Putting().visit(each)
    return found


class Putting(ast.NodeTransformer):
    """Functions within are others; what they yield is refused where they are lowered."""

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, FUNCTIONS):
            return node
        self.generic_visit(node)
        if isinstance(node, ast.Yield):
            return put(node, "append", node.value or ast.Constant(None))
        if isinstance(node, ast.YieldFrom):
            return put(node, "extend", node.value)
        return node


def put(node: ast.expr, method: str, value: ast.expr) -> ast.expr:
    made = ast.Attribute(ast.List([], ast.Load()), method, ast.Load())
    call = ast.Call(made, [value], [])
    for each in (call, made, made.value, value):
        if not hasattr(each, "lineno"):
            ast.copy_location(each, node)
    return call
