"""``map`` and ``filter`` by a function in Python, where their items are taken, as generators.

Before: ``sum(map(lambda v: v * v, xs))``. After: ``sum(v * v for v in xs)``, and ``f(item) for item
in xs`` of a function that has a name. ``filter`` is ``v for v in xs if p(v)``. By a function in C
they stay as they are, as by one that no program may hold, or that is seen to meet
``StopIteration``, which ends a ``map``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from types import FunctionType

from autobatch.frontend.subset import REFUSED
from autobatch.source import SourceUnavailable, function_node

Static = Callable[[ast.expr], object]
_ENDING = frozenset({next.__name__, StopIteration.__name__, "__next__"})
_FRAMES = frozenset({"locals", "vars", "dir", "eval", "exec", "globals"})
_KEEPING = (ast.Lambda, ast.GeneratorExp, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)


class Mapper(ast.NodeTransformer):
    """``taken`` are the expressions whose items are taken; ``item`` is a name that nothing has."""

    def __init__(self, static: Static, taken: Iterable[ast.expr], item: str) -> None:
        self.static = static
        self.taken = frozenset(taken)
        self.item = item

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if node not in self.taken:
            return node
        return self.expression(node) or node

    def expression(self, node: ast.Call) -> ast.expr | None:
        kind = self.static(node.func)
        made: tuple[str, ast.expr] | None
        match node:
            case ast.Call(args=[ast.Constant(None), items], keywords=[]) if kind is filter:
                made = self.item, ast.Name(self.item, ast.Load())
            case ast.Call(args=[function, items], keywords=[]) if kind is map or kind is filter:
                made = self.called(function)
            case _:
                return None
        if made is None or isinstance(items, ast.Starred):
            return None
        name, value = made
        item = ast.Name(name, ast.Load())
        each = ast.comprehension(ast.Name(name, ast.Store()), items, [], 0)
        if kind is filter:
            each.ifs = [value]
        result = ast.GeneratorExp(value if kind is map else item, [each])
        return ast.fix_missing_locations(ast.copy_location(result, node))

    def called(self, function: ast.expr) -> tuple[str, ast.expr] | None:
        """What a call of the function with an item is, and the item's name in it."""
        match function:
            case ast.Lambda(args=ast.arguments([], [ast.arg(name)], None, [], [], None, [])):
                return (name, function.body) if gives_once(function.body) else None
        found = self.static(function)
        if type(found) is not FunctionType or not is_plain(found):
            return None
        call = ast.Call(function, [ast.Name(self.item, ast.Load())], [])
        return self.item, ast.copy_location(call, function)


def is_plain(function: FunctionType) -> bool:
    """Whether a program may call a function: the host may call what is refused in programs."""
    if (_ENDING | _FRAMES) & {*function.__code__.co_names}:
        return False
    try:
        node = function_node(function).node
    except SourceUnavailable:
        return False
    return not any(type(part) in REFUSED for part in ast.walk(node))


def gives_once(body: ast.expr) -> bool:
    """Whether a lambda's body keeps no parameter, binds no name and ends no ``map``."""
    for part in ast.walk(body):
        if isinstance(part, _KEEPING) or (isinstance(part, ast.Name) and part.id in _ENDING):
            return False
        if isinstance(part, ast.Attribute) and part.attr in _ENDING:
            return False
    return True


def names(node: ast.AST) -> bool:
    """Whether it is the name of one of the two."""
    return isinstance(node, ast.Name) and node.id in (map.__name__, filter.__name__)
