"""Nested functions and lambdas: a function record of their own, and the operation that makes them.

Variables that they capture are handed on as boxes, in the order of ``Function.free``; defaults
are evaluated where the function is defined.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from autobatch.frontend.context import Context, ExpressionRule
from autobatch.frontend.resolve import MISSING
from autobatch.frontend.scope import default_nodes, function_scope
from autobatch.ir.program import Var
from autobatch.source import FunctionNode


def make_function(context: Context, node: FunctionNode, out: Var | None) -> Var:
    """Lowers ``node``, and emits the operation that makes the closure."""
    defaults = context.values(default_nodes(node.args))
    inner = _inner_context(context, node)
    function = context.root.rules.function(inner)
    context.nested.append(function)
    boxes = [context.box(name, node) for name in function.free]
    return context.emit("function", (*boxes, *defaults), node, function, out)


def _inner_context(context: Context, node: FunctionNode) -> Context:
    name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
    offered = sorted(_offered(context))
    scope = function_scope(node, offered, filter(context.is_held, offered))
    known = {free: context.static_name(free) for free in scope.free}
    return Context(
        root=context.root,
        source=replace(context.source, node=node),
        name=f"{context.name}.{name}",
        scope=scope,
        known={free: value for free, value in known.items() if value is not MISSING},
    )


def _offered(context: Context) -> set[str]:
    """Variables that a function nested here may capture."""
    targets = {name for inner in context.within for name in inner.names}
    return targets.union(context.scope.locals(), context.scope.free)


EXPRESSIONS: dict[type[ast.expr], ExpressionRule] = {ast.Lambda: make_function}
