"""``functools.partial``: a function, what it is given first, and what by name."""

from __future__ import annotations

from functools import partial
from typing import Any

from autobatch.batching.context import Context, Handler
from autobatch.batching.kinds import is_number_column
from autobatch.values.cells import PARTIAL, Cell, Container, Uniform, Value, read


def _partial(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value = read(args[0]) if args else None
    if value is None or is_no_function(value):
        return None  # an error of Python's
    given = Cell(Container(tuple, args[1:]))
    return Cell(Container(PARTIAL, [args[0], given, Cell(Container(dict, dict(kwargs)))]))


def is_no_function(value: Value) -> bool:
    return is_number_column(value) or (
        not callable(value.obj)
        if type(value) is Uniform
        else type(value) is Container and value.type in (list, dict, tuple)
    )


HANDLERS: dict[Any, Handler] = {partial: _partial}
