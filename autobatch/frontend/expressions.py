"""Expressions other than calls, comprehensions and nested functions.

``a and b``, ``a if c else b`` and comparison chains become control flow: a thread never evaluates
an operand that its own path does not reach.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from autobatch.frontend.context import Context, ExpressionRule
from autobatch.frontend.starring import first_star, in_one_list
from autobatch.ir.program import Var

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.MatMult: "matmul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
UNARY: dict[type[ast.unaryop], str] = {
    ast.USub: "neg",
    ast.UAdd: "pos",
    ast.Invert: "invert",
    ast.Not: "not",
}
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Is: "is",
    ast.IsNot: "is_not",
    ast.In: "in",
    ast.NotIn: "not_in",
}


def _constant(context: Context, node: ast.Constant, out: Var | None) -> Var:
    return context.constant(node.value, node, out)


def _name(context: Context, node: ast.Name, out: Var | None) -> Var:
    return context.load(node.id, node, out)


def _walrus(context: Context, node: ast.NamedExpr, out: Var | None) -> Var:
    value = context.value(node.value)
    context.store(node.target.id, value, node)
    return context.deliver(value, node, out)


def _binary(context: Context, node: ast.BinOp, out: Var | None) -> Var:
    operands = context.values((node.left, node.right))
    return context.emit(BINARY[type(node.op)], operands, node, None, out)


def _unary(context: Context, node: ast.UnaryOp, out: Var | None) -> Var:
    operand = node.operand
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return context.constant(-number, node, out)
    return context.emit(UNARY[type(node.op)], (context.value(operand),), node, None, out)


def _bool_op(context: Context, node: ast.BoolOp, out: Var | None) -> Var:
    result, done = context.temporary(), context.label()
    for operand in node.values[:-1]:
        context.value(operand, result)
        more = context.label()
        ways = (more, done) if isinstance(node.op, ast.And) else (done, more)
        context.branch(result, *ways, operand)
        context.place(more, operand)
    context.value(node.values[-1], result)
    context.place(done, node)
    return context.deliver(result, node, out)


def _compare(context: Context, node: ast.Compare, out: Var | None) -> Var:
    if len(node.ops) == 1:
        operands = context.values((node.left, node.comparators[0]))
        return context.emit(COMPARE[type(node.ops[0])], operands, node, None, out)
    result, done = context.temporary(), context.label()
    left = context.value(node.left)
    for operator, comparator in zip(node.ops, node.comparators, strict=True):
        right = context.value(comparator)
        context.emit(COMPARE[type(operator)], (left, right), node, None, result)
        left = right
        if comparator is not node.comparators[-1]:
            more = context.label()
            context.branch(result, more, done, node)
            context.place(more, node)
    context.place(done, node)
    return context.deliver(result, node, out)


def _if_expression(context: Context, node: ast.IfExp, out: Var | None) -> Var:
    result = context.temporary() if out is None else out
    then, otherwise, done = context.label(), context.label(), context.label()
    context.condition(node.test, then, otherwise)
    context.place(then, node.body)
    context.value(node.body, result)
    context.jump(done, node)
    context.place(otherwise, node.orelse)
    context.value(node.orelse, result)
    context.place(done, node)
    return result


def _attribute(context: Context, node: ast.Attribute, out: Var | None) -> Var:
    return context.emit("getattr", (context.value(node.value),), node, node.attr, out)


def _subscript(context: Context, node: ast.Subscript, out: Var | None) -> Var:
    return context.emit("getitem", context.values((node.value, node.slice)), node, None, out)


def _slice(context: Context, node: ast.Slice, out: Var | None) -> Var:
    parts = [
        context.value(part) if part is not None else context.constant(None, node)
        for part in (node.lower, node.upper, node.step)
    ]
    return context.emit("slice", parts, node, None, out)


def _tuple(context: Context, node: ast.Tuple, out: Var | None) -> Var:
    return _display(context, node, node.elts, "tuple", "to_tuple", out)


def _list(context: Context, node: ast.List, out: Var | None) -> Var:
    return _display(context, node, node.elts, "list", "copy", out)


def _set(context: Context, node: ast.Set, out: Var | None) -> Var:
    return _display(context, node, node.elts, "set", "to_set", out)


def _display(
    context: Context,
    node: ast.expr,
    items: Sequence[ast.expr],
    plain: str,
    convert: str,
    out: Var | None,
) -> Var:
    """A display of ``items``; with a starred one, by way of a fresh list."""
    first = first_star(items)
    if first is None:
        return context.emit(plain, context.values(items), node, None, out)
    fresh = in_one_list(context, node, items, first)
    if convert == "copy":
        return context.deliver(fresh, node, out)
    return context.emit(convert, (fresh,), node, None, out)


def _dict(context: Context, node: ast.Dict, out: Var | None) -> Var:
    pairs = list(zip(node.keys, node.values, strict=True))
    spread = next((place for place, (key, _) in enumerate(pairs) if key is None), len(pairs))
    operands: list[Var] = []
    for key, value in pairs[:spread]:
        assert key is not None
        operands += context.values((key, value))
    if spread == len(pairs):
        return context.emit("dict", operands, node, None, out)
    fresh = context.emit("dict", operands, node)
    for key, value in pairs[spread:]:
        if key is None:
            context.effect("update", (fresh, context.value(value)), value)
        else:
            context.effect("setitem", (fresh, *context.values((key, value))), key)
    return context.deliver(fresh, node, out)


def _joined(context: Context, node: ast.JoinedStr, out: Var | None) -> Var:
    return context.emit("join", context.values(node.values), node, None, out)


def _formatted(context: Context, node: ast.FormattedValue, out: Var | None) -> Var:
    value = context.value(node.value)
    spec = context.value(node.format_spec) if node.format_spec else context.constant("", node)
    conversion = "" if node.conversion < 0 else chr(node.conversion)
    return context.emit("format", (value, spec), node, conversion, out)


EXPRESSIONS: dict[type[ast.expr], ExpressionRule] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.NamedExpr: _walrus,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _bool_op,
    ast.Compare: _compare,
    ast.IfExp: _if_expression,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Set: _set,
    ast.Dict: _dict,
    ast.JoinedStr: _joined,
    ast.FormattedValue: _formatted,
}
