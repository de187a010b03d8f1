"""From a Python function to the intermediate representation.

In: a Python function (or bound method) with source, and a ``Resolver``. Out: a ``Function``, or a
``Program`` of it and of every program function that its calls can be seen to run. The blocks are
as the source lays them out; ``passes`` joins and threads them.

Each stage narrows the language: ``subset`` refuses what has no meaning, ``scope`` settles which
variable a name is, the rules turn expressions and statements into operations and jumps.
"""

from __future__ import annotations

import ast
import builtins
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import FunctionType, MethodType
from typing import Any

from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.frontend import (
    calls,
    comprehensions,
    conditions,
    exceptions,
    expressions,
    functions,
    kept,
    managers,
    patterns,
    searching,
    statements,
)
from autobatch.frontend.context import RESULT, Context, Root, Rules
from autobatch.frontend.decided import Decided, Path
from autobatch.frontend.mangling import mangle_names
from autobatch.frontend.resolve import ANY_FUNCTION, MISSING, Resolver
from autobatch.frontend.results import leaves
from autobatch.frontend.scope import Scope, function_scope, walrus_targets
from autobatch.frontend.subset import refuse_node
from autobatch.frontend.yielding import without_yields
from autobatch.ir.dataflow import maybe_unbound
from autobatch.ir.program import Function, Program, Return
from autobatch.source import SourceUnavailable, function_node
from autobatch.structure import own_attribute


@dataclass(frozen=True, slots=True)
class Lowered:
    """A lowered function, what its calls were seen to run, and the leaves of its result.

    It holds where what has ``decided`` means what it meant.
    """

    function: Function
    callees: tuple[object, ...]
    out_vars: tuple[str, ...]
    decided: Decided


def lower_function(
    pyfunc: Callable[..., Any],
    resolver: Resolver = ANY_FUNCTION,
    *,
    receiver: object = MISSING,
    yields: bool = False,
) -> Function:
    """The lowering of one Python function.

    ``receiver`` is the value of its first parameter where that is known and existed before the
    call. ``yields``: it may yield, and is only looked into (see ``yielding``). Raises
    ``UnsupportedError`` with a caret for what programs cannot hold.
    """
    return lower(pyfunc, resolver, receiver=receiver, yields=yields).function


def lower(
    pyfunc: Callable[..., Any],
    resolver: Resolver = ANY_FUNCTION,
    *,
    receiver: object = MISSING,
    yields: bool = False,
) -> Lowered:
    """``lower_function``, with what was learned on the way."""
    function, receiver = _with_receiver(pyfunc, receiver)
    context = _context(function, resolver, receiver, yields)
    lowered, displays = _lower_carefully(context)
    out_vars = displays.pop() if len(displays) == 1 else ("out",)
    root = context.root
    return Lowered(lowered, tuple(root.callees), out_vars, tuple(root.decided.items()))


def _with_receiver(pyfunc: object, receiver: object) -> tuple[FunctionType, object]:
    """A bound method as its function and its receiver."""
    if isinstance(pyfunc, MethodType):
        return _with_receiver(pyfunc.__func__, pyfunc.__self__)
    if not isinstance(pyfunc, FunctionType):
        raise _no_source(pyfunc, "it is not a Python function")
    return pyfunc, receiver


def lower_program(
    pyfunc: Callable[..., Any],
    resolver: Resolver = ANY_FUNCTION,
    *,
    receiver: object = MISSING,
    transform: Callable[[Function], Function] = lambda function: function,
) -> Program:
    """``pyfunc`` and every program function that it is seen to call, however deep.

    ``transform`` is applied to each function (the passes).
    """
    entry = lower(pyfunc, resolver, receiver=receiver)
    found = {entry.function.name: transform(entry.function)}
    seen = {_code(pyfunc)}
    pending = list(entry.callees)
    while pending:
        target = resolver.function_of(pending.pop(0))
        if target is None or target[0].__code__ in seen:
            continue
        seen.add(target[0].__code__)
        callee = _lower_callee(target[0], resolver, target[1])
        if callee is not None:
            name = _unique(callee.function.name, found)
            found[name] = transform(replace(callee.function, name=name))
            pending += callee.callees
    return Program(found, entry.function.name, pyfunc, entry.out_vars)


def lower_body(context: Context) -> Function:
    """Lowers the function that ``context`` stands for."""
    return _lower_carefully(context)[0]


def _lower_carefully(context: Context) -> tuple[Function, set[tuple[str, ...]]]:
    """The function, and the leaves of each of its returns.

    Where a variable turns out to be read without a value, the function is lowered again, so that
    this read raises before what stands to its right is evaluated.
    """
    function = _lower_once(context)
    params = [param.name for param in context.scope.params]
    careful = maybe_unbound(function.blocks, params) - context.careful
    if not careful:
        return function, set(context.displays)
    fresh = Context(
        context.root, context.source, context.name, context.scope, context.known, careful
    )
    return _lower_once(fresh), set(fresh.displays)


def _lower_once(context: Context) -> Function:
    node = context.source.node
    context.exit = context.label()
    _make_boxes(context)
    if isinstance(node, ast.Lambda):
        context.walrus = walrus_targets([node.body])
        context.value(node.body, RESULT)
        context.displays.append(leaves(node.body))
    else:
        context.statements(node.body)
        if context.builder.is_reached():
            context.constant(None, node.body[-1], RESULT)
            context.displays.append(("out",))
    return _finish(context)


def _finish(context: Context) -> Function:
    node = context.source.node
    last = node.body if isinstance(node, ast.Lambda) else node.body[-1]
    context.place(context.exit, last)
    if not context.builder.is_reached():
        context.constant(None, last, RESULT)
    context.builder.end(Return(RESULT, context.span(last)))
    return Function(
        context.name,
        context.scope.params,
        context.builder.finish(),
        context.scope.free,
        context.span(node),
        tuple(context.nested),
    )


def _make_boxes(context: Context) -> None:
    """Puts captured parameters into boxes, and makes empty ones for the other captured locals."""
    node = context.source.node
    params = {param.name for param in context.scope.params}
    for name in context.scope.locals():
        if name in context.scope.boxed:
            context.emit("box", (name,) if name in params else (), node, None, name)
            context.boxes.add(name)
            if name in params and name in context.scope.held:
                context.store(name, context.load_variable(name, node), node)


RULES = Rules(
    expressions={
        **expressions.EXPRESSIONS,
        **calls.EXPRESSIONS,
        **comprehensions.EXPRESSIONS,
        **functions.EXPRESSIONS,
        **kept.EXPRESSIONS,
        **searching.EXPRESSIONS,
    },
    conditions=conditions.CONDITIONS,
    statements={
        **statements.STATEMENTS,
        **exceptions.STATEMENTS,
        **managers.STATEMENTS,
        **patterns.STATEMENTS,
    },
    function=lower_body,
)


def _context(
    pyfunc: FunctionType, resolver: Resolver, receiver: object, yields: bool = False
) -> Context:
    try:
        source = function_node(pyfunc)
    except SourceUnavailable as error:
        raise _no_source(pyfunc, str(error)) from None
    if isinstance(source.node, ast.AsyncFunctionDef):
        raise refuse_node(source.node, source.span(source.node))
    if yields:
        source = replace(source, node=without_yields(source.node))
    source = replace(source, node=mangle_names(source.node, source.owner))
    scope = function_scope(source.node, pyfunc.__code__.co_freevars)
    name = pyfunc.__qualname__.rpartition("<locals>.")[2]
    known = _known(pyfunc, scope, receiver)
    names = ChainMap(pyfunc.__globals__, _builtins(pyfunc.__globals__))
    outside, decided = ChainMap(dict(known), names), dict[Path, object]()
    lazy = kept.keep_lazy(source.node, outside, decided)
    if lazy is not source.node:
        source = replace(source, node=lazy)
        scope = function_scope(source.node, pyfunc.__code__.co_freevars)
    return Context(Root(resolver, RULES, names, outside, decided), source, name, scope, known)


def _builtins(namespace: dict[str, Any]) -> dict[str, Any]:
    """The builtins of a module's code: ``__builtins__`` is a module or its dict."""
    found = namespace.get("__builtins__", builtins)
    return found if isinstance(found, dict) else vars(found)


def _known(pyfunc: FunctionType, scope: Scope, receiver: object) -> Mapping[str, object]:
    """Captured variables that have a value, and the receiver if its name is never reassigned."""
    known: dict[str, object] = {}
    for name, cell in zip(pyfunc.__code__.co_freevars, pyfunc.__closure__ or (), strict=True):
        try:
            known[name] = cell.cell_contents
        except ValueError:
            continue
    first = next(iter(scope.params), None)
    if first is None or receiver is MISSING or first.kind == "var_positional":
        return known
    if not scope.stored[first.name]:
        known[first.name] = receiver
    return known


def _lower_callee(pyfunc: FunctionType, resolver: Resolver, receiver: object) -> Lowered | None:
    """A callee's lowering; None for one without source, which is settled when it is called."""
    try:
        function_node(pyfunc)
    except SourceUnavailable:
        return None
    return lower(pyfunc, resolver, receiver=receiver)


def _code(pyfunc: Callable[..., Any]) -> object:
    return own_attribute(pyfunc, "__code__")


def _unique(name: str, taken: Mapping[str, object]) -> str:
    count = 2
    unique = name
    while unique in taken:
        unique, count = f"{name}#{count}", count + 1
    return unique


def _no_source(pyfunc: object, reason: str) -> UnsupportedError:
    name = own_attribute(pyfunc, "__qualname__", repr(pyfunc))
    code = own_attribute(pyfunc, "__code__")
    hint = "put the function into a file, or mark it with autobatch.per_thread or "
    hint += "autobatch.primitive."
    if code is not None and (code.co_name, code.co_filename) == ("__init__", "<string>"):
        hint = (
            "`dataclasses` has made it: assign the fields in your own `__init__` (`self.a = a`), "
        )
        hint += "or have none, and do the rest in `__post_init__`."
    return UnsupportedError(
        Diagnostic(
            f"{name} cannot run in a batch: its Python source is needed.",
            notes=(f"{reason}.",),
            hints=(hint,),
            code="no-source",
        )
    )
