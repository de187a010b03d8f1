"""Which names have decided what a lowering is: those that mean ``sum``, ``map`` and their kin.

Functions of equal code share a lowering, and what is called is looked up when it runs. But of these
builtins a call may have become a loop, which goes on whatever the name means by then. So a lowering
notes the names that meant one of them, from outside, and holds only where they still do.
"""

from __future__ import annotations

import ast
import math
import sys
from collections import Counter, deque
from collections.abc import Callable, Mapping
from types import FunctionType

from autobatch.frontend.resolve import MISSING, static_attribute, static_value
from autobatch.structure import own_attribute

Path = tuple[str, ...]
"""A name from outside and attributes of it: ``("math", "prod")``."""
Decided = tuple[tuple[Path, object], ...]

DECIDING: tuple[object, ...] = (
    *(any, all, sum, next, map, filter, zip, enumerate, reversed),
    *(list, tuple, set, frozenset, dict, max, min, sorted, Counter, deque, math.prod, math.fsum),
    *(super, sys.exc_info, *filter(None, [getattr(sys, "exception", None)])),
)
"""What a call means that may be lowered as something else than a call."""


def decides(value: object) -> bool:
    return any(value is each for each in DECIDING)


def noting(
    name_value: Callable[[str], object], outside: Mapping[str, object], notes: dict[Path, object]
) -> Callable[[ast.expr], object]:
    """``static_value`` by ``name_value``; what decides and is the same ``outside`` is noted."""

    def static(node: ast.expr) -> object:
        found = static_value(node, name_value)
        if decides(found) and _outside(node, outside) is found:
            notes[_path(node)] = found
        return found

    return static


def _outside(node: ast.expr, outside: Mapping[str, object]) -> object:
    return static_value(node, lambda name: outside.get(name, MISSING))


def _path(node: ast.expr) -> Path:
    """The names of a chain of attributes."""
    if isinstance(node, ast.Attribute):
        return (*_path(node.value), node.attr)
    assert isinstance(node, ast.Name)
    return (node.id,)


def meaning(function: FunctionType, receiver: object, path: Path) -> object:
    """What a path means to a function now, if that decides; else ``MISSING``.

    ``receiver`` is its first argument, if known.
    """
    name, *attributes = path
    code = function.__code__
    if name in code.co_freevars and function.__closure__:
        try:
            found = function.__closure__[code.co_freevars.index(name)].cell_contents
        except ValueError:
            return MISSING
    elif code.co_varnames[: code.co_argcount][:1] == (name,):
        found = receiver
    else:
        found = function.__globals__.get(name, MISSING)
        if found is MISSING:
            known: dict[str, object] = own_attribute(function, "__builtins__", {})
            found = known.get(name, MISSING)
    for attribute in attributes:
        found = MISSING if found is MISSING else static_attribute(found, attribute)
    return found if decides(found) else MISSING
