"""Calls: which stay within their block, and which get a frame of their own.

A call of what is known to be opaque (a torch function, a builtin, a tensor's method) is an
operation; any other ends its block, since its callee may be a program. At run time both forms
take any callee: this decides the shape of the text only. A few builtins that take a generator
expression become loops, so that ``any(…)`` stops where Python's does.
"""

from __future__ import annotations

import ast
import builtins
import math
import sys
from collections import Counter, deque
from collections.abc import Sequence
from functools import partialmethod, singledispatchmethod
from itertools import chain
from types import FunctionType

from autobatch.frontend.comprehensions import REDUCTIONS, collect
from autobatch.frontend.context import Context, ExpressionRule
from autobatch.frontend.items import one_of
from autobatch.frontend.resolve import MISSING, Resolver, static_attribute
from autobatch.frontend.scope import CLASS_CELL
from autobatch.frontend.starring import in_one_list, is_seen_between
from autobatch.frontend.subset import FRAME_ACCESS, MODE_SWITCH, SHARED_WRITES, unsupported
from autobatch.frontend.targets import is_tensor, shared_write
from autobatch.ir.program import Call, CallShape, Var

_TAKE_ALL: tuple[object, ...] = (
    *(dict, frozenset, max, min, sorted, list, tuple, set, Counter, deque, math.prod, math.fsum),
)
"""Functions to which a list is as good as an iterator over it: they take all of it at once."""

_READ_THE_FRAME: tuple[object, ...] = (locals, globals, eval, exec)
_READ_THE_FRAME_BARE: tuple[object, ...] = (vars, dir)
_MUTATORS: dict[type, frozenset[str]] = {
    list: frozenset(["append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"]),
    dict: frozenset(["update", "pop", "popitem", "clear", "setdefault"]),
    set: frozenset(["add", "discard", "remove", "pop", "clear", "update"]),
}


def _call(context: Context, node: ast.Call, out: Var | None) -> Var:
    found = context.static(node.func)
    _refuse(context, node, found)
    reduction = next((name for name in REDUCTIONS if getattr(builtins, name) is found), None)
    if reduction is not None and _has_generator(node) and _reduces(node, reduction):
        return REDUCTIONS[reduction](context, node, out)
    for asked in (sys.exc_info, sys.exception):
        if found is asked and not node.args and not node.keywords:
            return context.emit("handled", context.handling[-1:], node, asked.__name__, out)
    callee = context.value(node.func)
    if found is super and not node.args and not node.keywords:
        implicit = _super_arguments(context, node)
        return invoke(context, node, True, callee, implicit, plain(len(implicit)), out)
    stars = tuple(isinstance(argument, ast.Starred) for argument in node.args)
    if is_seen_between(node):
        args, stars = [in_one_list(context, node, node.args, stars.index(True))], (True,)
    else:
        args = [_argument(context, node, argument, found) for argument in node.args]
    args += [context.value(keyword.value) for keyword in node.keywords]
    shape = CallShape(
        stars,
        tuple(keyword.arg for keyword in node.keywords),
        node in context.managers and (found is MISSING or context.root.resolver.switches(found)),
    )
    opaque = is_opaque(context, node.func, found, not shape.is_plain)
    return invoke(context, node, opaque, callee, args, shape, out)


def invoke(
    context: Context,
    node: ast.AST,
    opaque: bool,
    callee: Var,
    args: Sequence[Var],
    shape: CallShape,
    out: Var | None,
) -> Var:
    """The call itself: an operation, or the end of the block."""
    if opaque:
        return context.emit("call", (callee, *args), node, shape, out)
    result = context.temporary() if out is None else out
    after = context.label()
    span = context.span(node)
    context.builder.end(Call(result, callee, tuple(args), shape, after, span))
    context.place(after, node)
    return result


def is_opaque(context: Context, func: ast.expr, found: object, starred: bool = False) -> bool:
    """Whether a call of ``func``, known to be ``found`` or ``MISSING``, stays in its block.

    ``starred``: it hands on ``*x`` or ``**x``, which may be others in each thread.
    """
    if found is not MISSING and callable(found):
        return is_opaque_value(context, found, starred)
    if isinstance(func, ast.Call):
        return context.root.resolver.derives(context.static(func.func))
    if known := one_of(context.drawn, context.static, func):
        classify = context.root.resolver.classify
        return all(callable(each) and classify(each) == "opaque" for each in known)
    if not isinstance(func, ast.Attribute):
        return False
    return func.attr in context.root.resolver.opaque_methods and not _is_own(context, func.attr)


def _is_own(context: Context, name: str) -> bool:
    """Whether a class in sight (a global, a captured one) has a program for this method.

    ``update`` is a dict's method, and a filter's: a call that may be the latter ends its block, for
    where a program's threads part within an operation, what they return is joined as objects.
    """
    found = context.root.methods.get(name)
    if found is None:
        in_sight = chain(context.root.names.values(), context.known.values())
        found = any(_has_program(context.root.resolver, kind, name) for kind in in_sight)
        context.root.methods[name] = found
    return found


def _has_program(resolver: Resolver, kind: object, name: str) -> bool:
    if not issubclass(type(kind), type):  # not isinstance, which would ask it for its __class__
        return False
    method = static_attribute(kind, name)
    if isinstance(method, staticmethod | classmethod):
        method = method.__func__
    elif isinstance(method, partialmethod | singledispatchmethod):
        method = method.func
    return isinstance(method, FunctionType) and resolver.classify(method) == "program"


def is_opaque_value(context: Context, found: object, starred: bool = False) -> bool:
    """Whether a call of ``found`` stays in its block; notes a program's callee."""
    kind = context.root.resolver.classify(found)
    if kind != "opaque":
        context.root.callees.append(found)
    return kind == "opaque" or (kind == "inline" and not starred)


def apply_decorators(
    context: Context, node: ast.FunctionDef, decorators: Sequence[Var], value: Var
) -> Var:
    """``value`` handed through the decorators of ``node``, the lowest first."""
    for expression, decorator in reversed([*zip(node.decorator_list, decorators, strict=True)]):
        opaque = is_opaque(context, expression, context.static(expression))
        value = invoke(context, expression, opaque, decorator, (value,), plain(1), None)
    return value


def plain(count: int) -> CallShape:
    return CallShape((False,) * count)


def _argument(context: Context, node: ast.Call, argument: ast.expr, found: object) -> Var:
    if isinstance(argument, ast.Starred):
        return context.value(argument.value)
    if isinstance(argument, ast.GeneratorExp) and _takes_a_list(node, found):
        return collect(context, argument)
    return context.value(argument)


def _takes_a_list(node: ast.Call, found: object) -> bool:
    joins = isinstance(node.func, ast.Attribute) and node.func.attr == "join"
    return len(node.args) == 1 and (joins or any(found is each for each in _TAKE_ALL))


def takes_all(node: ast.Call, argument: ast.expr, found: object) -> bool:
    """Whether an argument is gone through by a call of ``found``, and not kept by it."""
    reduces = argument is node.args[0] and any(
        getattr(builtins, name) is found and _reduces(node, name) for name in REDUCTIONS
    )
    return reduces or _takes_a_list(node, found)


def _has_generator(node: ast.Call) -> bool:
    return bool(node.args) and isinstance(node.args[0], ast.GeneratorExp)


def _reduces(node: ast.Call, name: str) -> bool:
    """Whether a builtin is called with one iterable, and otherwise as it should be."""
    if any(isinstance(argument, ast.Starred) for argument in node.args):
        return False
    if any(name != "sum" or keyword.arg != "start" for keyword in node.keywords):
        return False
    return len(node.args) + len(node.keywords) <= (2 if name in ("sum", "next") else 1)


def _super_arguments(context: Context, node: ast.Call) -> list[Var]:
    """What ``super()`` takes from its function: the class and the first argument."""
    first = next(iter(context.scope.params), None)
    positional = first is not None and first.kind in ("positional", "positional_only")
    if first is None or not positional or CLASS_CELL not in context.scope.free:
        return []
    return [context.load(CLASS_CELL, node), context.load(first.name, node)]


def _refuse(context: Context, node: ast.Call, found: object) -> None:
    bare = not node.args and not node.keywords
    if any(found is each for each in _READ_THE_FRAME) or (
        bare and any(found is each for each in _READ_THE_FRAME_BARE)
    ):
        label = f"`{ast.unparse(node.func)}` works on a frame"
        raise unsupported(FRAME_ACCESS, context.span(node), label)
    if _switches_mode(context, node, found):
        raise unsupported(MODE_SWITCH, context.span(node), "switched here")
    if isinstance(node.func, ast.Attribute) and not context.root.resolver.writes:
        receiver = context.static(node.func.value)
        if receiver is not MISSING and _changes(receiver, node.func.attr):
            raise shared_write(context, node, node.func.value)


def _switches_mode(context: Context, node: ast.Call, found: object) -> bool:
    """Whether a call changes a mode of torch's where no `with` statement does."""
    resolver = context.root.resolver
    if resolver.switches(found):
        return node not in context.managers and not resolver.writes
    enters = isinstance(node.func, ast.Attribute) and node.func.attr == "enter_context"
    given = (arg.func for arg in node.args if isinstance(arg, ast.Call))
    return enters and any(resolver.makes_mode(context.static(each)) for each in given)


def _changes(receiver: object, method: str) -> bool:
    """Whether a method of an object from before the call is known to change it."""
    for kind in type(receiver).__mro__:
        if kind in _MUTATORS:
            return method in _MUTATORS[kind]
    in_place = method.endswith("_") and not method.startswith("_")
    return in_place and is_tensor(receiver) and method not in SHARED_WRITES


EXPRESSIONS: dict[type[ast.expr], ExpressionRule] = {ast.Call: _call}
