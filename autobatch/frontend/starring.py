"""``*x`` among other items: a list that grows item by item, from left to right, as in Python."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from autobatch.frontend.context import Context
from autobatch.ir.program import Var


def first_star(items: Sequence[ast.expr]) -> int | None:
    return next((place for place, item in enumerate(items) if isinstance(item, ast.Starred)), None)


def in_one_list(context: Context, node: ast.expr, items: Sequence[ast.expr], first: int) -> Var:
    """A fresh list of all items, of which the ``first`` is the first starred one."""
    fresh = context.emit("list", context.values(items[:first]), node)
    for item in items[first:]:
        if isinstance(item, ast.Starred):
            context.effect("extend", (fresh, context.value(item.value)), item)
        else:
            context.effect("append", (fresh, context.value(item)), item)
    return fresh


def is_seen_between(node: ast.Call) -> bool:
    """Whether what comes after ``*x`` may see that it has been laid open, as it is by then.

    The only positional argument is laid open last of all.
    """
    first = first_star(node.args)
    if first is None or len(node.args) == 1:
        return False
    later = [*node.args[first + 1 :], *(keyword.value for keyword in node.keywords)]
    values = [each.value if isinstance(each, ast.Starred) else each for each in later]
    return not all(isinstance(value, ast.Name | ast.Constant | ast.Lambda) for value in values)
