"""What a recording reads from outside its inputs, to be read again before each replay.

An inlined helper's globals, captured variables, attributes, code and defaults, and the class
attributes of instances that the program made, may be other things at the next run. Each read is
kept as a way to read it again, with the key of what it gave.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Hashable
from types import FunctionType
from typing import Any

from torch import Tensor

from autobatch.batching.operations import Env, Scope
from autobatch.batching.semantics import load_global
from autobatch.batching.stretches.contents import content_key
from autobatch.ir.program import Op
from autobatch.values.cells import Cell, Container, Uniform, read

Read = tuple[Callable[[], Any], Hashable]


def noted(again: Callable[[], Any]) -> Read:
    return (again, content_key(again()))


def outside_reads(
    scope: Scope, op: Op, env: Env, twins: Collection[int] = frozenset()
) -> list[Read]:
    """What an operation has read that may be another thing next time.

    ``twins`` are the ids of functions' cells that stand for those of inputs.
    """
    name = op.attr
    if op.name == "global":
        return [noted(lambda: load_global(scope.namespace, name))]
    if op.name == "load_free":
        box: Any = scope.free[name]
        known = isinstance(box, Cell) or id(box) in twins
        return [] if known else [noted(lambda: box.cell_contents)]
    if op.name != "getattr":
        return []
    base = read(env[op.args[0]])
    if type(base) is Uniform and not isinstance(base.obj, Tensor):
        obj = base.obj
        if type(read(env[op.outs[0]])) is Uniform:
            return [noted(lambda: getattr(obj, name))]
    if type(base) is Container and isinstance(base.type, type) and name not in base.cells:
        kind = base.type
        return [noted(lambda: inspect.getattr_static(kind, name, None))]
    return []


def function_reads(function: Any) -> list[Read]:
    """What an inlined function is, apart from its module and captured variables."""
    if not isinstance(function, FunctionType):
        return []
    return [
        noted(lambda: function.__code__),
        noted(lambda: function.__defaults__),
        noted(lambda: function.__kwdefaults__),
    ]
