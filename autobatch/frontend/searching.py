"""Generator expressions that an operation goes through where it stands, as loops.

``x in (f(y) for y in ys)`` makes items up to the first that is equal. ``xs.extend(... for ...)``
appends each as it is made, and ``d.update((k, v) for ...)`` stores it: the expression may look
at what it fills: where ``xs`` and ``d`` can only be a list and a dict that the function makes.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator

from autobatch.frontend.calls import plain
from autobatch.frontend.comprehensions import over_items
from autobatch.frontend.context import Context, ExpressionRule
from autobatch.ir.program import Label, Op, UnpackShape, Var

Static = Callable[[ast.expr], object]


class Search(ast.expr):
    """``item in generator``, or ``not in`` if it is ``negated``."""

    _fields = ("item", "generator")
    item: ast.expr
    generator: ast.GeneratorExp
    negated: bool


class Filling(ast.expr):
    """``receiver.extend(generator)`` of a list, ``receiver.update(generator)`` of a dict."""

    _fields = ("receiver", "generator")
    receiver: ast.Name
    generator: ast.GeneratorExp
    pairs: bool


def gone_through(node: ast.AST, made: Callable[[str], type | None]) -> ast.expr | None:
    """What becomes of an operation; ``made`` tells what a name means wherever it is bound."""
    generator = next(looked_through(node, made), None)
    if not isinstance(generator, ast.GeneratorExp):
        return None
    match node:
        case ast.Compare(left, [op]):
            search = Search(item=left, generator=generator)  # type: ignore[call-arg]
            search.negated = isinstance(op, ast.NotIn)
            return search
        case ast.Call(ast.Attribute(receiver, method)):
            if method == "update" and not is_pair(generator.elt):
                return None
            filling = Filling(receiver=receiver, generator=generator)  # type: ignore[call-arg]
            filling.pairs = method == "update"
            return filling
    return None


def looked_through(node: ast.AST, made: Callable[[str], type | None]) -> Iterator[ast.expr]:
    """What an operation goes through that is one of these."""
    match node:
        case ast.Compare(_, [ast.In() | ast.NotIn()], [items]):
            yield items
        case ast.Call(ast.Attribute(ast.Name(name), method), [items], []):
            if (made(name), method) in ((list, "extend"), (dict, "update")):
                yield items


def is_pair(node: ast.expr) -> bool:
    match node:
        case ast.Tuple([key, value]):
            return not isinstance(key, ast.Starred) and not isinstance(value, ast.Starred)
    return False


def kinds_of(
    node: ast.AST, static: Static, binds: Callable[[ast.AST], Iterator[str]]
) -> dict[str, type]:
    """The names in ``node`` that are bound to nothing but lists, or to dicts, that it makes."""
    bound = Counter(name for part in ast.walk(node) for name in binds(part))
    found: dict[str, Counter[type]] = {}
    for part in ast.walk(node):
        match part:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, value):
                kind = None if value is None else kind_of(value, static)
                if kind is not None:
                    found.setdefault(name, Counter())[kind] += 1
    return {
        name: kind
        for name, kinds in found.items()
        for kind, times in kinds.items()
        if times == bound[name]
    }


def kind_of(value: ast.expr, static: Static) -> type | None:
    match value:
        case ast.List() | ast.ListComp():
            return list
        case ast.Dict() | ast.DictComp():
            return dict
        case ast.Call(func):
            kind = static(func)
            return kind if kind is list or kind is dict else None
    return None


def _search(context: Context, node: Search, out: Var | None) -> Var:
    item = context.value(node.item)
    result, done = context.temporary(), context.label()

    def each(made: Var, head: Label) -> None:
        found = context.label()
        alone = context.emit("tuple", (made,), node)
        context.branch(context.emit("in", (item, alone), node), found, head, node)
        context.place(found, node)
        context.constant(not node.negated, node, result)
        context.jump(done, node)

    context.constant(node.negated, node, result)
    over_items(context, node.generator, each, done)
    context.place(done, node)
    return context.deliver(result, node, out)


def _fill(context: Context, node: Filling, out: Var | None) -> Var:
    receiver, done = context.value(node.receiver), context.label()
    if not node.pairs:
        append = context.emit("getattr", (receiver,), node, "append")

    def each(made: Var, _: Label) -> None:
        if node.pairs:
            key, value = context.temporary(), context.temporary()
            span = context.span(node)
            context.builder.emit(Op("unpack", (key, value), (made,), UnpackShape(2), span))
            context.effect("setitem", (receiver, key, value), node)
        else:
            context.emit("call", (append, made), node, plain(1))

    over_items(context, node.generator, each, done)
    context.place(done, node)
    return context.constant(None, node, out)


EXPRESSIONS: dict[type[ast.expr], ExpressionRule] = {Search: _search, Filling: _fill}
