"""Statements: each rule leaves the open block at the place where the next statement goes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from autobatch.frontend.calls import apply_decorators
from autobatch.frontend.comprehensions import numbered_items, over_items
from autobatch.frontend.context import RESULT, Context, StatementRule
from autobatch.frontend.expressions import BINARY
from autobatch.frontend.functions import make_function
from autobatch.frontend.items import draw
from autobatch.frontend.results import leaves
from autobatch.frontend.sources import begun
from autobatch.frontend.targets import assign, assign_expression, delete, direct, refuse_shared
from autobatch.ir.program import Label, Var


def _expression(context: Context, node: ast.Expr) -> None:
    if isinstance(node.value, ast.Name):  # read all the same: it may have no value
        context.load(node.value.id, node.value, context.temporary())
    elif not isinstance(node.value, ast.Constant):
        context.value(node.value)


def _assign(context: Context, node: ast.Assign) -> None:
    if len(node.targets) == 1:
        assign_expression(context, node.targets[0], node.value)
        return
    value = context.value(node.value)
    for target in node.targets:
        assign(context, target, value)


def _annotated(context: Context, node: ast.AnnAssign) -> None:
    if node.value is not None:
        assign_expression(context, node.target, node.value)


def _augmented(context: Context, node: ast.AugAssign) -> None:
    name = f"i{BINARY[type(node.op)]}"
    match node.target:
        case ast.Name(id=variable):
            out = direct(context, node.target)
            old = context.load(variable, node.target)
            value = context.emit(name, (old, context.value(node.value)), node, None, out)
            if out is None:
                context.store(variable, value, node)
        case ast.Attribute(value=base, attr=attribute):
            refuse_shared(context, node.target)
            owner = context.value(base)
            old = context.emit("getattr", (owner,), node.target, attribute)
            value = context.emit(name, (old, context.value(node.value)), node)
            context.effect("setattr", (owner, value), node, attribute)
        case ast.Subscript(value=base, slice=index):
            refuse_shared(context, node.target)
            place = context.values((base, index))
            old = context.emit("getitem", place, node.target)
            value = context.emit(name, (old, context.value(node.value)), node)
            context.effect("setitem", (*place, value), node)


def _delete(context: Context, node: ast.Delete) -> None:
    for target in node.targets:
        delete(context, target)


def _if(context: Context, node: ast.If) -> None:
    then, otherwise, done = context.label(), context.label(), context.label()
    context.condition(node.test, then, otherwise)
    context.place(then, node.body[0])
    context.statements(node.body)
    context.jump(done, node.body[-1])
    context.place(otherwise, (node.orelse or node.body)[0])
    context.statements(node.orelse)
    context.place(done, (node.orelse or node.body)[-1])


def _while(context: Context, node: ast.While) -> None:
    head, body, done = context.label(), context.label(), context.label()
    orelse = context.label() if node.orelse else done
    context.place(head, node.test)
    context.condition(node.test, body, orelse)
    context.place(body, node.body[0])
    with context.loop(head, done):
        context.statements(node.body)
    context.jump(head, node.test)
    _loop_else(context, node.orelse, orelse)
    context.place(done, node.test)


def _for(context: Context, node: ast.For) -> None:
    generator = numbered_items(node.iter, context.static)
    if isinstance(generator, ast.GeneratorExp):
        return _for_each(context, node, generator, context.constant(0, node.iter))
    if isinstance(node.iter, ast.GeneratorExp):
        return _for_each(context, node, node.iter, None)
    head, done = context.label(), context.label()
    orelse = context.label() if node.orelse else done
    source = begun(context, node.iter)
    context.place(head, node.target)
    assign(context, node.target, source.take(context, node.target, orelse))
    draw(context.drawn, context.static, node.target, node.iter)
    with context.loop(head, done):
        context.statements(node.body)
    context.jump(head, node.target)
    _loop_else(context, node.orelse, orelse)
    context.place(done, node.target)


def _for_each(
    context: Context, node: ast.For, generator: ast.GeneratorExp, number: Var | None
) -> None:
    """A loop over a generator expression, which makes an item where the loop takes it.

    ``number`` is what counts the items, if ``enumerate`` does.
    """
    done = context.label()
    orelse = context.label() if node.orelse else done

    def each(item: Var, head: Label) -> None:
        if number is not None:
            item = context.emit("tuple", (number, item), node.iter)
            one = context.constant(1, node.iter)
            context.emit("add", (number, one), node.iter, None, number)
        assign(context, node.target, item)
        with context.loop(head, done):
            context.statements(node.body)

    over_items(context, generator, each, orelse)
    _loop_else(context, node.orelse, orelse)
    context.place(done, node.target)


def _loop_else(context: Context, body: Sequence[ast.stmt], label: int) -> None:
    if body:
        context.place(label, body[0])
        context.statements(body)


def _break(context: Context, node: ast.Break) -> None:
    loop = context.loops[-1]
    context.leave(loop.done, loop.depth, node)


def _continue(context: Context, node: ast.Continue) -> None:
    loop = context.loops[-1]
    context.leave(loop.head, loop.depth, node)


def _return(context: Context, node: ast.Return) -> None:
    if node.value is None:
        context.constant(None, node, RESULT)
    else:
        context.value(node.value, RESULT)
    context.displays.append(leaves(node.value))
    context.leave(context.exit, 0, node)


def _function(context: Context, node: ast.FunctionDef) -> None:
    if not node.decorator_list and not context.is_held(node.name):
        variable = context.target(node.name, node)
        if variable not in context.boxes:
            make_function(context, node, variable)
            return
    decorators = context.values(node.decorator_list)
    value: Var = make_function(context, node, None)
    context.store(node.name, apply_decorators(context, node, decorators, value), node)


def _import(context: Context, node: ast.Import) -> None:
    for alias in node.names:
        module = context.emit("import", (), node, (alias.name, 0, ()))
        top, *inner = alias.name.split(".")
        if alias.asname is not None:
            for part in inner:
                module = context.emit("import_from", (module,), node, part)
        context.store(alias.asname or top, module, node)
        context.imported(alias.asname or top, alias.name if alias.asname else top)


def _import_from(context: Context, node: ast.ImportFrom) -> None:
    names = tuple(alias.name for alias in node.names)
    module = context.emit("import", (), node, (node.module or "", node.level, names))
    for alias in node.names:
        value = context.emit("import_from", (module,), node, alias.name)
        context.store(alias.asname or alias.name, value, node)
        if not node.level:
            context.imported(alias.asname or alias.name, node.module or "", alias.name)


def _nothing(context: Context, node: ast.Pass | ast.Global | ast.Nonlocal) -> None:
    """Declarations matter to the scope only."""


STATEMENTS: dict[type[ast.stmt], StatementRule] = {
    ast.Expr: _expression,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Delete: _delete,
    ast.If: _if,
    ast.While: _while,
    ast.For: _for,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.Return: _return,
    ast.FunctionDef: _function,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Pass: _nothing,
    ast.Global: _nothing,
    ast.Nonlocal: _nothing,
}
