"""Nested functions and lambdas: a function record of their own, and the operation that makes them.

Variables that they capture are handed on as boxes, in the order of ``Function.free``; defaults
are evaluated where the function is defined. One that yields is lowered to be looked into (see
``yielding``), with the code that Python has made of it, which is what runs.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from inspect import CO_GENERATOR
from types import CodeType

from autobatch.frontend.context import Context, ExpressionRule
from autobatch.frontend.resolve import MISSING
from autobatch.frontend.scope import default_nodes, function_scope
from autobatch.frontend.yielding import without_yields
from autobatch.ir.program import Var, Yields
from autobatch.source import FunctionNode


def make_function(context: Context, node: FunctionNode, out: Var | None) -> Var:
    """Lowers ``node``, and emits the operation that makes the closure."""
    defaults = context.values(default_nodes(node.args))
    code = inner_code(context.source.code, node)
    is_run = code is not None and code.co_flags & CO_GENERATOR
    inner = _inner_context(context, without_yields(node) if is_run else node, code)
    function = context.root.rules.function(inner)
    if code is not None and is_run:
        held = frozenset(inner.scope.held.intersection(inner.scope.free))
        function = replace(function, yields=Yields(code, held, frozenset(inner.known)))
    context.nested.append(function)
    boxes = [context.box(name, node) for name in function.free]
    return context.emit("function", (*boxes, *defaults), node, function, out)


def _inner_context(context: Context, node: FunctionNode, code: CodeType | None) -> Context:
    name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
    offered = sorted(_offered(context))
    scope = function_scope(node, offered, filter(context.is_held, offered))
    known = {free: context.static_name(free) for free in scope.free}
    return Context(
        root=context.root,
        source=replace(context.source, node=node, code=code),
        name=f"{context.name}.{name}",
        scope=scope,
        known={free: value for free, value in known.items() if value is not MISSING},
    )


def inner_code(outer: CodeType | None, node: FunctionNode) -> CodeType | None:
    """The code of a function in a function's, where it can be told; of lambdas it need not be."""
    if outer is None or not isinstance(node, ast.FunctionDef):
        return None
    first = min([node.lineno, *(part.lineno for part in node.decorator_list)])
    found = [
        part
        for part in outer.co_consts
        if isinstance(part, CodeType) and (part.co_name, part.co_firstlineno) == (node.name, first)
    ]
    return found[0] if len(found) == 1 else None


def _offered(context: Context) -> set[str]:
    """Variables that a function nested here may capture."""
    targets = {name for inner in context.within for name in inner.names}
    return targets.union(context.scope.locals(), context.scope.free)


EXPRESSIONS: dict[type[ast.expr], ExpressionRule] = {ast.Lambda: make_function}
