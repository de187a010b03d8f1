"""Comprehensions and generator expressions, as loops of the function that holds them.

Targets are variables of their own: ``x`` becomes ``x.1``. The first iterable is evaluated outside,
as in Python. A generator expression that is taken at once runs to its end where it stands (its
items go into a list), but ``any``, ``all``, ``sum`` and ``next`` of one, and a ``for`` over one,
are loops that take each item where Python does. All others are ``kept``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from autobatch.frontend.context import Context, ExpressionRule
from autobatch.frontend.items import draw
from autobatch.frontend.scope import Comprehension
from autobatch.frontend.sources import Pairs, Source, begun, own_names
from autobatch.frontend.targets import assign
from autobatch.ir import sums
from autobatch.ir.program import Label, Raise, Var

Element = Callable[[Label], None]
"""Lowers what is done with one item; the label is where the next item is taken."""


def _run(context: Context, node: Comprehension, first: Source, element: Element) -> None:
    """The loops of ``node`` over ``first``; the open block is then what follows."""
    done = context.label()
    with _own_names(context, node):
        _loops(context, node.generators, first, done, element)
    context.place(done, node)


def _loops(
    context: Context,
    generators: Sequence[ast.comprehension],
    source: Source,
    done: Label,
    element: Element,
) -> None:
    generator, *inner = generators
    head = context.label()
    context.place(head, generator.target)
    assign(context, generator.target, source.take(context, generator.target, done))
    draw(context.drawn, context.static, generator.target, generator.iter)
    for test in generator.ifs:
        passed = context.label()
        context.condition(test, passed, head)
        context.place(passed, test)
    if inner:
        _loops(context, inner, begun(context, inner[0].iter), head, element)
    else:
        element(head)
        context.jump(head, generator.target)


@contextmanager
def _own_names(context: Context, node: Comprehension) -> Iterator[None]:
    """Gives the targets of ``node`` names of their own."""
    context.within.append(own_names(context, node))
    yield
    context.within.pop()


@contextmanager
def _names_outside(context: Context) -> Iterator[None]:
    """What is lowered within stands outside the innermost comprehension, and has its names."""
    inner = context.within.pop()
    yield
    context.within.append(inner)


def over_items(
    context: Context, node: ast.GeneratorExp, each: Callable[[Var, Label], None], done: Label
) -> None:
    """A loop that takes the items of ``node`` one by one, and then goes to ``done``.

    ``each`` lowers what is done with an item; the label is where the next one is made.
    """
    first = _first(context, node)

    def element(head: Label) -> None:
        item = context.value(node.elt)
        with _names_outside(context):
            each(item, head)

    with _own_names(context, node):
        _loops(context, node.generators, first, done, element)


def numbered_items(node: ast.expr, static: Callable[[ast.expr], object]) -> ast.expr | None:
    """``xs`` in ``enumerate(xs)``."""
    match node:
        case ast.Call(func, [items], []) if static(func) is enumerate:
            return items
    return None


def _first(context: Context, node: Comprehension) -> Source:
    return begun(context, node.generators[0].iter)


def collect(context: Context, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Var:
    """A fresh list of the items of ``node``."""
    first = _first(context, node)
    items = context.emit("list", (), node)

    def element(_: Label) -> None:
        context.effect("append", (items, context.value(node.elt)), node.elt)

    _run(context, node, first, element)
    return items


def _list(context: Context, node: ast.ListComp, out: Var | None) -> Var:
    return context.deliver(collect(context, node), node, out)


def _set(context: Context, node: ast.SetComp, out: Var | None) -> Var:
    return context.emit("to_set", (collect(context, node),), node, None, out)


def _generator(context: Context, node: ast.GeneratorExp, out: Var | None) -> Var:
    return context.emit("iter", (collect(context, node),), node, None, out)


def _dict(context: Context, node: ast.DictComp, out: Var | None) -> Var:
    first = _first(context, node)
    items = context.emit("dict", (), node)

    def element(_: Label) -> None:
        key, value = context.values((node.key, node.value))
        context.effect("setitem", (items, key, value), node.key)

    _run(context, node, first, element)
    return context.deliver(items, node, out)


def _any_all(context: Context, node: ast.Call, out: Var | None, *, stop: bool) -> Var:
    """``any`` stops at the first true item, ``all`` at the first false one."""
    generator = _generator_of(node)
    first = _first(context, generator)
    result, done = context.constant(not stop, node), context.label()

    def element(head: Label) -> None:
        found = context.label()
        context.condition(generator.elt, *((found, head) if stop else (head, found)))
        context.place(found, generator.elt)
        context.constant(stop, node, result)
        context.jump(done, node)

    _run(context, generator, first, element)
    context.place(done, node)
    return context.deliver(result, node, out)


def _any(context: Context, node: ast.Call, out: Var | None) -> Var:
    return _any_all(context, node, out, stop=True)


def _all(context: Context, node: ast.Call, out: Var | None) -> Var:
    return _any_all(context, node, out, stop=False)


def _sum(context: Context, node: ast.Call, out: Var | None) -> Var:
    generator = _generator_of(node)
    first = _first(context, generator)
    starts = [*node.args[1:], *(keyword.value for keyword in node.keywords)]
    total = context.temporary()
    if starts:
        context.deliver(context.value(starts[0]), node, total)
    else:
        context.constant(0, node, total)
    lost = context.emit("sum_begun", (total,), node) if sums.COMPENSATED or starts else None

    def element(_: Label) -> None:
        item = context.value(generator.elt)
        with _names_outside(context):
            if lost is None or not sums.COMPENSATED:
                context.emit("add", (total, item), generator.elt, None, total)
                return
            context.emit("sum_left", (total, lost, item), generator.elt, None, total)
            after = context.emit("add", (total, item), generator.elt)
            context.emit("sum_lost", (lost, total, item, after), generator.elt, None, lost)
            context.deliver(after, generator.elt, total)

    _run(context, generator, first, element)
    if lost is not None and sums.COMPENSATED:
        return context.emit("sum_whole", (total, lost), node, None, out)
    return context.deliver(total, node, out)


def _next(context: Context, node: ast.Call, out: Var | None) -> Var:
    generator = _generator_of(node)
    first = _first(context, generator)
    default = context.value(node.args[1]) if len(node.args) > 1 else None
    result, done = context.temporary(), context.label()

    def element(_: Label) -> None:
        context.value(generator.elt, result)
        context.jump(done, node)

    _run(context, generator, first, element)
    if default is None:
        stop = context.emit("global", (), node, StopIteration.__name__)
        context.builder.end(Raise(stop, None, context.span(node)))
    else:
        context.deliver(default, node, result)
    context.place(done, node)
    return context.deliver(result, node, out)


def _as_list(context: Context, node: ast.Call, out: Var | None) -> Var:
    return context.deliver(collect(context, _generator_of(node)), node, out)


def _as_tuple(context: Context, node: ast.Call, out: Var | None) -> Var:
    return context.emit("to_tuple", (collect(context, _generator_of(node)),), node, None, out)


def _as_set(context: Context, node: ast.Call, out: Var | None) -> Var:
    return context.emit("to_set", (collect(context, _generator_of(node)),), node, None, out)


def _generator_of(node: ast.Call) -> ast.GeneratorExp:
    generator = node.args[0]
    assert isinstance(generator, ast.GeneratorExp)
    return generator


EXPRESSIONS: dict[type[ast.expr], ExpressionRule] = {
    ast.ListComp: _list,
    ast.SetComp: _set,
    ast.DictComp: _dict,
    Pairs: _dict,
    ast.GeneratorExp: _generator,
}

REDUCTIONS: dict[str, Callable[[Context, ast.Call, Var | None], Var]] = {
    "any": _any,
    "all": _all,
    "sum": _sum,
    "next": _next,
    "list": _as_list,
    "tuple": _as_tuple,
    "set": _as_set,
}
"""What becomes of a call of these builtins whose first argument is a generator expression."""
