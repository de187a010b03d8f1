"""Objects of the user's classes as indices: ``x[i]`` of an object with an ``__index__``.

In: the cell of an index into a tensor or a sequence. Out: one that holds ints in their place, for
which each such object has been asked once for each thread, lowest first, as any method that Python
calls by itself; what stands in a tuple or slice has been, too, from left to right.
"""

from __future__ import annotations

import operator
from functools import cache
from types import FunctionType
from typing import Any

from autobatch.batching.context import Context
from autobatch.batching.host.rows import run_rows
from autobatch.batching.kinds import is_tensor, is_users
from autobatch.batching.operators import once
from autobatch.values.cells import Cell, Container, Uniform, Value, read

SEQUENCES = (list, tuple, str, bytes, range, bytearray)


def as_ints(context: Context, base: Value, index: Cell) -> Cell:
    """An index in which no object is left that would be asked each time that it is looked at."""
    if not is_sequence(base) or not holds_asked(index, is_tensor(base)):
        return index
    return replaced(context, index, is_tensor(base))


def is_sequence(base: Value) -> bool:
    kind = base.type if type(base) is Container else type(getattr(base, "obj", None))
    return kind in SEQUENCES or is_tensor(base)


def holds_asked(index: Cell, of_tensor: bool) -> bool:
    value = read(index)
    if type(value) is Container and value.type in (tuple, slice):
        return any(holds_asked(child, of_tensor) for child in value.children())
    return is_asked(kind_of(value), of_tensor)


def kind_of(value: Value) -> Any:
    """The class of which all threads have an instance, if it may be one of the user's."""
    return type(value.obj) if type(value) is Uniform else getattr(value, "type", None)


@cache
def is_asked(kind: Any, of_tensor: bool) -> bool:
    """Whether instances are ints by Python code of the user's.

    To torch those that have a length and items are lists of indices first.
    """
    if not isinstance(kind, type) or not is_users(kind):
        return False
    if of_tensor and (hasattr(kind, "__len__") or hasattr(kind, "__getitem__")):
        return False
    return isinstance(getattr(kind, "__index__", None), FunctionType)


def replaced(context: Context, index: Cell, of_tensor: bool) -> Cell:
    value = read(index)
    if type(value) is Container and value.type in (tuple, slice):
        parts = [replaced(context, part, of_tensor) for part in value.children()]
        return Cell(Container(value.type, parts))
    if not is_asked(kind_of(value), of_tensor):
        return index
    if type(value) is Uniform:
        return once(context, operator.index, value.obj)
    return run_rows(context, operator.index, [index], {}, "its own number", fresh=False)
