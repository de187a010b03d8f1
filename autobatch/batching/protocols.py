"""What the methods of a user's class gave by which Python asks it: checked as Python checks it.

``__len__`` gives an int that is not negative, ``__bool__`` a bool. And where such methods are
looked up: in the class and its bases, never in the metaclass.
"""

from __future__ import annotations

from typing import Any

from autobatch.batching.context import Context
from autobatch.batching.host.rows import run_rows
from autobatch.batching.kinds import found_in_class
from autobatch.values.cells import Cell, Column, Uniform, read


class Sized:
    """Has a ``__len__`` that gives what it is told."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def __len__(self) -> Any:
        return self.given


class Truthful:
    """Has a ``__bool__`` that gives what it is told."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def __bool__(self) -> Any:
        return self.given


def sized(given: Any) -> int:
    return len(Sized(given))


def truthful(given: Any) -> bool:
    return bool(Truthful(given))


def special_method(kind: Any, name: str) -> Any:
    """The method that Python calls by itself on instances of a class; None if there is none."""
    return None if found_in_class(kind, name) is None else getattr(kind, name)


def length_given(context: Context, result: Cell) -> Cell:
    """The length that a ``__len__`` has given."""
    value = read(result)
    if type(value) is Uniform and type(value.obj) is int and value.obj >= 0:
        return result
    if type(value) is Column and value.tag == "int":
        bounds = value.bounds
        if bounds is None or bounds[0] < 0:
            numbers = value.data
            context.check(numbers < 0, lambda row: sized(int(numbers[row])))
        return result
    return run_rows(context, sized, [result], {}, "objects")


def truth_given(context: Context, result: Cell) -> Cell:
    """The truth that a ``__bool__`` has given."""
    value = read(result)
    if type(value) is Uniform and type(value.obj) is bool:
        return result
    if type(value) is Column and value.tag == "bool":
        return result
    return run_rows(context, truthful, [result], {}, "objects")
