"""Generators of the user's classes that do something when they are left before their end.

    def __iter__(self):
        with self.opened() as lines:
            yield from lines

Python ends a generator as soon as nobody holds it: where a loop is left, or a name is given up. A
batch holds what threads have together for as long as one of them needs it, and drops what a thread
does not read again, so what stands behind the ``yield`` would be done later, or sooner. One that
comes to its end does it in its place.

In: what a program asks an object for. Out: what stands for it, which the run looks at in the end
(``batching.generators``).
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from inspect import CO_GENERATOR
from types import CellType, CodeType, FunctionType, GeneratorType
from typing import Any

from autobatch.batching.generators import Generators
from autobatch.batching.host.getters import functions, is_gone_through, names_in
from autobatch.source import SourceUnavailable, Span, function_node

LAZY = (iter, zip, map, filter, enumerate)
BODIES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
ENDING = (ast.Try, ast.TryStar, ast.With, ast.AsyncWith)
ENDS: dict[CodeType, bool] = {}


def seen(generators: Generators, of: Any, iterator: Any, span: Span | None) -> Any:
    """What stands for an iterator that a program has asked an object ``of`` its own for."""
    if type(iterator) is not GeneratorType or not ends(type(of), iterator):
        return iterator
    return generators.add(type(of), iterator, span)


def made(generators: Generators, function: FunctionType, *args: Any, **kwargs: Any) -> Any:
    """What stands for the generator that a call of a function makes."""
    iterator = function(*args, **kwargs)
    if type(iterator) is not GeneratorType or not may_end(function, function):
        return iterator
    return generators.add(function, iterator, None)


def keeps(function: Any) -> bool:
    """Whether what a call gives keeps iterators of its operands."""
    lazy = any(function is each for each in LAZY)
    return lazy or getattr(function, "__module__", None) == itertools.__name__


def begun(generators: Generators, item: Any, span: Span | None) -> Any:
    """An operand of what keeps its iterator: that, where it is seen to that it comes to its end."""
    if not is_gone_through(type(item)) or hasattr(type(item), "__next__"):
        return item
    if not any(may_end(each, type(item)) for each in functions(getattr(type(item), "__iter__", 0))):
        return item
    return seen(generators, item, iter(item), span)


def ends(kind: type, generator: Any) -> bool:
    """Whether more of a generator runs where it is left."""
    code = generator.gi_code
    cells = tuple(CellType() for _ in code.co_freevars)
    space = {} if generator.gi_frame is None else generator.gi_frame.f_globals
    return may_end(FunctionType(code, space, closure=cells), kind)


def may_end(function: FunctionType, kind: type | FunctionType) -> bool:
    """The same of a function of a class's, and of the generators that it names."""
    waiting, seen = [function], set()
    while waiting:
        each = waiting.pop()
        if each.__code__ in seen:
            continue
        seen.add(each.__code__)
        if each.__code__.co_flags & CO_GENERATOR and yields_within(each):
            return True
        for name in names_in(each.__code__):
            for found in (each.__globals__.get(name), getattr(kind, name, None)):
                waiting += functions(found)
    return False


def yields_within(function: FunctionType) -> bool:
    """Whether it yields within what is to do more; it may where there is no text."""
    code = function.__code__
    if code not in ENDS:
        try:
            node = function_node(function).node
        except SourceUnavailable:
            return True
        ENDS[code] = any(isinstance(e, ENDING) and yields(e) for e in within(node))
    return ENDS[code]


def yields(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in within(node))


def within(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a node, but for functions in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, BODIES):
            yield child
            yield from within(child)
