"""Assignment targets: names, attributes, subscripts, and patterns of them; and ``del``.

Python evaluates the right-hand side first, then each target from left to right.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from autobatch.frontend.context import Context
from autobatch.frontend.resolve import MISSING
from autobatch.frontend.subset import SHARED_WRITE, shared_attribute, unsupported
from autobatch.ir.program import Op, UnpackShape, Var


def assign(context: Context, target: ast.expr, value: Var) -> None:
    """``target = value``."""
    match target:
        case ast.Name(id=name):
            context.store(name, value, target)
        case ast.Attribute(value=base, attr=name):
            refuse_shared(context, target)
            context.effect("setattr", (context.value(base), value), target, name)
        case ast.Subscript(value=base, slice=index):
            refuse_shared(context, target)
            operands = (context.value(base), context.value(index), value)
            context.effect("setitem", operands, target)
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            _unpack(context, target, targets, value)


def assign_expression(context: Context, target: ast.expr, node: ast.expr) -> None:
    """``target = node``, straight into the variable where it is one."""
    if isinstance(target, ast.Name) and (variable := direct(context, target)) is not None:
        context.value(node, variable)
    elif (pairs := _pairs(target, node)) is not None:
        _assign_pairs(context, *pairs)
    else:
        assign(context, target, context.value(node))


def direct(context: Context, target: ast.expr) -> Var | None:
    """The variable that an operation may assign for ``target``, None if more must be done."""
    inner = target.value if isinstance(target, ast.Starred) else target
    if not isinstance(inner, ast.Name):
        return None
    if context.is_held(inner.id):
        return None
    variable = context.target(inner.id, inner)
    return None if variable in context.boxes else variable


def delete(context: Context, target: ast.expr) -> None:
    """``del target``."""
    match target:
        case ast.Name(id=name):
            variable = context.target(name, target)
            if variable in context.boxes:
                context.effect("clear_box", (variable,), target, name)
            else:
                context.effect("delete", (), target, variable)
        case ast.Attribute(value=base, attr=name):
            refuse_shared(context, target, deletes=True)
            context.effect("delattr", (context.value(base),), target, name)
        case ast.Subscript(value=base, slice=index):
            refuse_shared(context, target, deletes=True)
            context.effect("delitem", (context.value(base), context.value(index)), target)
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            for each in targets:
                delete(context, each)


def refuse_shared(
    context: Context, target: ast.Attribute | ast.Subscript, deletes: bool = False
) -> None:
    """Refuses a write to what can be seen to exist before the call, unless the program may.

    What is written to a tensor may be reduced over the threads: that is decided as it runs, also of
    one in a list or dict.
    """
    if context.root.resolver.writes:
        return
    base = target.value
    written = [base, target] if isinstance(target, ast.Attribute) else [base]
    if not deletes and any(is_tensor(context.static(part)) for part in written):
        return
    while isinstance(base, ast.Subscript):
        base = base.value
    found = context.static(base)
    if found is not MISSING and (deletes or not holds_tensor(found)):
        raise shared_write(context, target, base)


def is_tensor(obj: object) -> bool:
    """Whether it is a tensor: this half knows no torch."""
    return hasattr(type(obj), "data_ptr")


def holds_tensor(obj: object) -> bool:
    """Whether a list or dict holds a tensor, of which an item may be a name."""
    items = obj.values() if type(obj) is dict else obj if type(obj) is list else ()
    return any(map(is_tensor, items))


def shared_write(context: Context, node: ast.expr, base: ast.expr) -> Exception:
    label = f"`{ast.unparse(base)}` exists before the call"
    sets = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    refusal = shared_attribute(node.attr) if sets else SHARED_WRITE  # type: ignore[attr-defined]
    return unsupported(refusal, context.span(node), label)


def _unpack(context: Context, node: ast.expr, targets: Sequence[ast.expr], value: Var) -> None:
    starred = [index for index, each in enumerate(targets) if isinstance(each, ast.Starred)]
    before = starred[0] if starred else len(targets)
    shape = UnpackShape(before, bool(starred), len(targets) - before - bool(starred))
    simple = [direct(context, each) for each in targets]
    if len(set(simple) - {None}) != len(targets):
        simple = [None] * len(targets)
    outs = tuple(variable or context.temporary() for variable in simple)
    context.builder.emit(Op("unpack", outs, (value,), shape, context.span(node)))
    for each, variable, out in zip(targets, simple, outs, strict=True):
        if variable is None:
            assign(context, each.value if isinstance(each, ast.Starred) else each, out)


Pairs = tuple[Sequence[ast.expr], Sequence[ast.expr]]


def _pairs(target: ast.expr, node: ast.expr) -> Pairs | None:
    """Targets and expressions of ``a, b = c, d``, which needs no tuple."""
    if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(node, (ast.Tuple, ast.List)):
        return None
    if len(target.elts) != len(node.elts):
        return None
    if any(isinstance(each, ast.Starred) for each in (*target.elts, *node.elts)):
        return None
    return target.elts, node.elts


def _assign_pairs(context: Context, targets: Sequence[ast.expr], nodes: Sequence[ast.expr]) -> None:
    values = []
    for place, node in enumerate(nodes):
        value = context.value(node)
        earlier = {part.id for each in targets[:place] for part in _names(each)}
        if isinstance(node, ast.Name) and node.id in earlier and not value.startswith("%"):
            value = context.emit("copy", (value,), node)
        values.append(value)
    for target, value in zip(targets, values, strict=True):
        assign(context, target, value)


def _names(target: ast.expr) -> list[ast.Name]:
    return [part for part in ast.walk(target) if isinstance(part, ast.Name)]
