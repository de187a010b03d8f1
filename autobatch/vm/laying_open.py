"""``f(*x)`` of an iterator: its items are taken once, whoever fails in the call and begins again.

In: a call and its group's variables. Out: the same call of what has been laid open, which stands
under names of its own until the call has been made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from autobatch.batching.containers.starring import Differing, starred_parts, titled
from autobatch.batching.context import Context
from autobatch.ir.program import Call, CallShape, Op
from autobatch.values.cells import Cell, Container, Objects, is_iterator, read

ARGUMENT = "%argument"

AnyCall = TypeVar("AnyCall", Op, Call)


def uses_up(shape: CallShape, cells: list[Cell]) -> bool:
    """Whether a call takes all items of an iterator."""
    stars = zip(shape.positional, cells[: len(shape.positional)], strict=True)
    return any(starred and moves_on(cell) for starred, cell in stars)


def moves_on(cell: Cell) -> bool:
    value = read(cell)
    if type(value) is Objects:
        return any(hasattr(type(item), "__next__") for item in value.items)
    return is_iterator(value)


def laid_open(
    context: Context, call: AnyCall, shape: CallShape, callee: Cell, env: dict[str, Cell]
) -> AnyCall:
    """The call of what its iterators give, from left to right."""
    title = titled(callee)
    for place, starred in enumerate(shape.positional, len(call.args) - count(shape)):
        cell = env[call.args[place]]
        if starred and moves_on(cell):
            try:
                parts = starred_parts(context, title, cell, len(shape.positional) == 1)
                env[name_of(place)] = Cell(Container(tuple, parts))
            except Differing as found:
                env[name_of(place)] = found.laid_open
    return standing(call, env)


def standing(call: AnyCall, env: dict[str, Cell]) -> AnyCall:
    """The call of what has been laid open, if anything has."""
    names = [name_of(place) if name_of(place) in env else n for place, n in enumerate(call.args)]
    return call if names == list(call.args) else replace(call, args=tuple(names))


def count(shape: CallShape) -> int:
    return len(shape.positional) + len(shape.keywords)


def name_of(place: int) -> str:
    return f"{ARGUMENT} {place}"


def forget(env: dict[str, Cell]) -> None:
    """The call has been made, or is not to be."""
    for name in [name for name in env if name.startswith(ARGUMENT)]:
        del env[name]
