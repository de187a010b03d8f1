"""Exceptions: ``try``, ``raise`` and ``assert``.

Before:                                  After:

    try:                                     b1 except %1 -> b2: x = call f(n)
        x = f(n)                                 jump b4
    except KeyError as e:                    b2: %3 = catches %1, %2
        x = e.args                               branch %3 ? b3 : b6
    finally:                                 b3 except %4 -> b5: e = copy %1 …
        done()                               b4: call done()
                                                 jump b8
                                             b5: delete e
                                                 context %4, %1
                                                 raise %4
                                             b6: raise %1

(the blocks above are themselves under the handler that runs ``done()`` and raises again.) What
stands in ``finally`` is lowered once for each way out: the end, an exception, and one each for all
``break``, ``continue`` and ``return`` that leave the statement; so statements nested in a ``try``
grow as they do in the source, and those nested in a ``finally`` three times with each, as in
CPython's own code. An exception that leaves a handler gets the
one that was handled as its context, and the name of that is deleted, on every way; one that a
statement within the handler catches has it before, in the functions that it calls too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from autobatch.frontend.context import RESULT, Cleanup, Context, StatementRule
from autobatch.ir.program import Handler, Raise, Var


def raise_(context: Context, node: ast.Raise) -> None:
    cause = None
    if node.exc is not None:
        exception = context.value(node.exc)
        cause = context.value(node.cause) if node.cause is not None else None
    elif context.handling:
        exception = context.handling[-1]
    else:
        exception = context.emit("handled", (), node, "raise")
    context.builder.end(Raise(exception, cause, context.span(node)))


def assert_(context: Context, node: ast.Assert) -> None:
    if not __debug__:
        return
    failed, passed = context.label(), context.label()
    context.condition(node.test, passed, failed)
    context.place(failed, node)
    message = context.values((node.msg,)) if node.msg is not None else ()
    exception = context.emit("assertion", message, node)
    context.builder.end(Raise(exception, None, context.span(node)))
    context.place(passed, node)


def try_(context: Context, node: ast.Try) -> None:
    if not node.finalbody:
        try_except(context, node)
        return
    done = context.label()
    handler = Handler(context.label(), context.temporary())
    last = node.finalbody[-1]

    def finish() -> None:
        context.statements(node.finalbody)

    again = any(isinstance(each, ast.Return) for part in node.finalbody for each in ast.walk(part))
    left = cleaned_up(context, finish, node.finalbody[0], again)
    with left, context.builder.handled(handler):
        context.place(context.label(), node.body[0])
        try_except(context, node)
    context.jump(done, last)
    context.place(handler.target, node.finalbody[0])
    arisen_within(context, handler.out, node)
    with while_handling(context, handler.out, last):
        finish()
    raise_again(context, handler.out, last)
    context.place(done, last)


def try_except(context: Context, node: ast.Try) -> None:
    """The statement without its ``finally``."""
    if not node.handlers:
        context.statements(node.body)
        return
    done = context.label()
    handler = Handler(context.label(), context.temporary())
    with context.builder.handled(handler):
        context.place(context.label(), node.body[0])
        context.statements(node.body)
    context.place(context.label(), (node.orelse or node.body)[-1])
    context.statements(node.orelse)
    context.jump(done, (node.orelse or node.body)[-1])
    context.place(handler.target, node.handlers[0])
    arisen_within(context, handler.out, node)
    with while_handling(context, handler.out, node.handlers[0]):
        for each in node.handlers:
            except_(context, each, handler.out, done)
        if node.handlers[-1].type is not None:
            raise_again(context, handler.out, node.handlers[-1])
    context.place(done, node.handlers[-1])


def except_(context: Context, node: ast.ExceptHandler, caught: Var, done: int) -> None:
    """A handler for those whose exception it takes; the open block is then that of the others."""
    otherwise = context.label()
    if node.type is not None:
        kinds = context.value(node.type)
        takes = context.emit("catches", (caught, kinds), node.type)
        own = context.label()
        context.branch(takes, own, otherwise, node.type)
        context.place(own, node)

    if node.name is None:
        context.statements(node.body)
    else:
        with named(context, node, caught, node.name):
            context.statements(node.body)
    context.jump(done, node.body[-1])
    if node.type is not None:
        context.place(otherwise, node)


@contextmanager
def named(context: Context, node: ast.ExceptHandler, caught: Var, name: str) -> Iterator[None]:
    """What is lowered within has a name for the exception, which it loses however it ends."""

    def forget() -> None:
        context.forget(name, node)

    context.store(name, caught, node)
    with cleaned_up(context, forget, node), on_exception(context, node, forget):
        yield


def arisen_within(context: Context, caught: Var, node: ast.AST) -> None:
    """What a statement has caught has arisen while the handler around it handled its exception.

    Where there is none around it, a function's caller may be in one.
    """
    context.effect("context", (caught, *context.handling[-1:]), node)


@contextmanager
def while_handling(context: Context, caught: Var, node: ast.AST) -> Iterator[None]:
    """What is lowered within handles an exception."""
    failed = context.temporary()

    def chain() -> None:
        context.effect("context", (failed, caught), node)

    with on_exception(context, node, chain, failed):
        context.handling.append(caught)
        yield
        context.handling.pop()


@contextmanager
def on_exception(
    context: Context, node: ast.AST, run: Callable[[], None], failed: Var | None = None
) -> Iterator[None]:
    """An exception that leaves what is lowered within does ``run`` on its way, from ``failed``."""
    done = context.label()
    handler = Handler(context.label(), failed or context.temporary())
    with context.builder.handled(handler):
        context.place(context.label(), node)
        yield
    context.jump(done, node)
    context.place(handler.target, node)
    run()
    raise_again(context, handler.out, node)
    context.place(done, node)


@contextmanager
def cleaned_up(
    context: Context, run: Callable[[], None], node: ast.AST, returns: bool = False
) -> Iterator[None]:
    """What is lowered within does ``run`` at its end, and on the ways that lead out of it.

    All ``return`` share one way: else it would be lowered for each, and so would what is around it.
    ``returns``: there is a ``return`` in what is run; another ``finally`` may take that back.
    """
    cleanup = Cleanup()
    context.cleanups.append(cleanup)
    yield
    context.cleanups.pop()
    done = context.label()
    context.place(context.label(), node)
    run()
    context.jump(done, node)
    for (target, depth), way in cleanup.ways.items():
        context.place(way, node)
        if returns and target == context.exit:
            result = context.emit("copy", (RESULT,), node)
            run()
            context.emit("copy", (result,), node, None, RESULT)
        else:
            run()
        context.leave(target, depth, node)
    context.place(done, node)


def raise_again(context: Context, caught: Var, node: ast.AST) -> None:
    context.builder.end(Raise(caught, None, context.span(node)))


STATEMENTS: dict[type[ast.stmt], StatementRule] = {
    ast.Raise: raise_,
    ast.Assert: assert_,
    ast.Try: try_,
}
