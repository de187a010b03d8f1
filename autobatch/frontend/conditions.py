"""Expressions that are only asked whether they are true: jumps, and no value.

``while i < n and x[i] > 0`` tests ``i < n``, and reads ``x[i]`` in a block of its own, which only
the threads reach for which ``i < n``.
"""

from __future__ import annotations

import ast

from autobatch.frontend.context import ConditionRule, Context
from autobatch.frontend.expressions import COMPARE
from autobatch.ir.program import Label


def _if_constant(context: Context, node: ast.Constant, then: Label, otherwise: Label) -> None:
    context.jump(then if node.value else otherwise, node)


def _if_not(context: Context, node: ast.UnaryOp, then: Label, otherwise: Label) -> None:
    if isinstance(node.op, ast.Not):
        context.condition(node.operand, otherwise, then)
    else:
        context.branch(context.value(node), then, otherwise, node)


def _if_bool_op(context: Context, node: ast.BoolOp, then: Label, otherwise: Label) -> None:
    for operand in node.values[:-1]:
        more = context.label()
        ways = (more, otherwise) if isinstance(node.op, ast.And) else (then, more)
        context.condition(operand, *ways)
        context.place(more, operand)
    context.condition(node.values[-1], then, otherwise)


def _if_compare(context: Context, node: ast.Compare, then: Label, otherwise: Label) -> None:
    left = context.value(node.left)
    for operator, comparator in zip(node.ops, node.comparators, strict=True):
        right = context.value(comparator)
        result = context.emit(COMPARE[type(operator)], (left, right), node)
        left = right
        more = then if comparator is node.comparators[-1] else context.label()
        context.branch(result, more, otherwise, node)
        if more != then:
            context.place(more, node)


def _if_if(context: Context, node: ast.IfExp, then: Label, otherwise: Label) -> None:
    body, orelse = context.label(), context.label()
    context.condition(node.test, body, orelse)
    context.place(body, node.body)
    context.condition(node.body, then, otherwise)
    context.place(orelse, node.orelse)
    context.condition(node.orelse, then, otherwise)


CONDITIONS: dict[type[ast.expr], ConditionRule] = {
    ast.Constant: _if_constant,
    ast.UnaryOp: _if_not,
    ast.BoolOp: _if_bool_op,
    ast.Compare: _if_compare,
    ast.IfExp: _if_if,
}
