"""``functools.partial``: a function, what it is given first, and what by name."""

from __future__ import annotations

from functools import partial
from typing import Any

from autobatch.batching.context import Context, Handler
from autobatch.values.cells import PARTIAL, Cell, Container


def _partial(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    if not args:
        return None  # an error of Python's
    given = Cell(Container(tuple, args[1:]))
    return Cell(Container(PARTIAL, [args[0], given, Cell(Container(dict, dict(kwargs)))]))


HANDLERS: dict[Any, Handler] = {partial: _partial}
