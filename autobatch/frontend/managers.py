"""``with``: torch's modes are attributes of the blocks inside, other managers are called.

Before:                                  After:

    with manager(n) as x:                    b0: call manager(n) -> %1, then b1
        body                                 b1: %2 = manager[__enter__] %1
                                                 %3 = manager[__exit__] %1
                                                 call %2(%1) -> %4, then b2
                                             b2 under %1 except %5 -> b4: x = copy %4
                                                 body
                                             b3: call %3(%1, None, None, None) -> %6, then b6
                                             b4: call %3(%1, class, %5, traceback) -> %7, then b5
                                             b5: branch %7 ? b6 : raise %5 again

What kind a manager is, is seen when the program runs (``batching.managing``): for a mode the two
functions do nothing, for any other ``under`` does. What is known to make a mode has the attribute
alone. ``break``, ``continue`` and ``return`` that leave the body call ``__exit__`` on their way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from autobatch.frontend.calls import invoke, plain
from autobatch.frontend.context import Context, StatementRule
from autobatch.frontend.exceptions import arisen_within, cleaned_up, raise_again, while_handling
from autobatch.frontend.resolve import MISSING
from autobatch.frontend.targets import assign
from autobatch.ir.program import Handler, Var


def with_(context: Context, node: ast.With) -> None:
    within(context, node, node.items)


def within(context: Context, node: ast.With, items: Sequence[ast.withitem]) -> None:
    """The body within the managers that are left to enter."""
    if not items:
        context.statements(node.body)
        return
    item, rest = items[0], items[1:]
    context.managers.update(made_by(item.context_expr))
    manager = context.value(item.context_expr, context.temporary())
    if makes_mode(context, item.context_expr):
        asked = item.optional_vars is not None or not is_everyones(context, item.context_expr)
        given = context.emit("enter", (manager,), item.context_expr) if asked else manager
        with context.builder.modes(manager):
            body(context, node, rest, item, given)
        context.place(context.label(), node.body[-1])
        return
    managed(context, node, rest, item, manager)


def made_by(node: ast.expr) -> Iterator[ast.expr]:
    """The expressions whose value may be that of ``node`` itself."""
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            yield from made_by(body)
            yield from made_by(orelse)
        case ast.BoolOp(values=values):
            yield from made_by(values[-1])
        case ast.NamedExpr(value=value):
            yield from made_by(value)
        case _:
            yield node


def makes_mode(context: Context, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return context.root.resolver.makes_mode(context.static(node.func))


def is_everyones(context: Context, node: ast.expr) -> bool:
    """Whether a mode is made of nothing that may differ by thread."""
    assert isinstance(node, ast.Call)
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    return all(isinstance(arg, ast.Constant) or context.static(arg) is not MISSING for arg in given)


def body(
    context: Context,
    node: ast.With,
    rest: Sequence[ast.withitem],
    item: ast.withitem,
    given: Var,
) -> None:
    context.place(context.label(), item.context_expr)
    if item.optional_vars is not None:
        assign(context, item.optional_vars, given)
    within(context, node, rest)


def managed(
    context: Context,
    node: ast.With,
    rest: Sequence[ast.withitem],
    item: ast.withitem,
    manager: Var,
) -> None:
    """The body within a manager that is to be called."""
    where = item.context_expr
    enter = context.emit("manager", (manager,), where, "__enter__")
    leave = context.emit("manager", (manager,), where, "__exit__")
    given = invoke(context, where, False, enter, (manager,), plain(1), None)
    done, again = context.label(), context.label()
    handler = Handler(context.label(), context.temporary())

    def leave_with(*failure: Var) -> Var:
        return invoke(context, where, False, leave, (manager, *failure), plain(4), None)

    def leave_well() -> None:
        none = context.constant(None, where)
        leave_with(none, none, none)

    inside = context.builder.modes(manager), context.builder.handled(handler)
    with cleaned_up(context, leave_well, node.body[-1]), inside[0], inside[1]:
        body(context, node, rest, item, given)
    context.jump(done, node.body[-1])
    context.place(handler.target, where)
    arisen_within(context, handler.out, where)
    with while_handling(context, handler.out, where):
        kind = context.emit("getattr", (handler.out,), where, "__class__")
        trace = context.emit("getattr", (handler.out,), where, "__traceback__")
        context.branch(leave_with(kind, handler.out, trace), done, again, where)
        context.place(again, where)
    raise_again(context, handler.out, where)
    context.place(done, node.body[-1])


STATEMENTS: dict[type[ast.stmt], StatementRule] = {ast.With: with_}
