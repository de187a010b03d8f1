"""Functions that yield, lowered to be looked into, not to be run.

``yield v`` puts ``v`` where a caller may take it out, and so it is lowered: as ``[].append(v)``;
``yield from xs`` is ``[].extend(xs)``. What either gives, where it is asked for, may be anything
that existed before: who takes the values may send it. Which values a function holds, what it writes
and calls, and what may come out of it is the same; when it does so is not.
"""

from __future__ import annotations

import ast
import copy
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
YIELDS = (ast.Yield, ast.YieldFrom)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def without_yields(node: Node) -> Node:
    """A copy of a function's node, with what puts values into a list in the place of yields."""
    found = copy.deepcopy(node)
    for each in list(ast.iter_child_nodes(found)):
        Putting().visit(each)
    return found


class Putting(ast.NodeTransformer):
    """Functions within are others."""

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, FUNCTIONS):
            return node
        if isinstance(node, ast.Expr) and isinstance(node.value, YIELDS):
            self.generic_visit(node.value)
            node.value = put(node.value)
            return node
        self.generic_visit(node)
        return sent(put(node)) if isinstance(node, YIELDS) else node


def sent(putting: ast.expr) -> ast.expr:
    """``(putting, NotImplemented)[1]``: what is sent; no more is known of it than of a global."""
    both = ast.Tuple([putting, ast.Name("NotImplemented", ast.Load())], ast.Load())
    found = ast.Subscript(both, ast.Constant(1), ast.Load())
    for each in (both, both.elts[1], found.slice, found):
        ast.copy_location(each, putting)
    return found


def put(node: ast.Yield | ast.YieldFrom) -> ast.expr:
    method = "append" if isinstance(node, ast.Yield) else "extend"
    value = node.value or ast.Constant(None)
    made = ast.Attribute(ast.List([], ast.Load()), method, ast.Load())
    call = ast.Call(made, [value], [])
    for each in (call, made, made.value, value):
        if not hasattr(each, "lineno"):
            ast.copy_location(each, node)
    return call
