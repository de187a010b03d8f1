"""``torch.Size`` beside the tuples that a program makes: ``x.shape[:-1] + (-1,)``.

A shape whose numbers all threads share is one object, as ``x.shape`` gives it, so that what takes
it (``reshape``, ``expand``, ``zeros``) runs once for all; one with a number of each thread's own,
of a tensor of different lengths, is a container of cells.
"""

from __future__ import annotations

from typing import Any

import torch

from autobatch.batching.context import Context, Handler
from autobatch.values.cells import Cell, Container, Uniform, read, uniform

SIZES = (tuple, torch.Size)
SEQUENCES = (*SIZES, list)


def told(cell: Cell, kinds: tuple[type, ...] = SIZES) -> Any:
    """The tuple or shape of ints that a cell is for all threads; None if it is no such thing."""
    value = read(cell)
    if type(value) is Uniform:
        return value.obj if type(value.obj) in kinds else None
    if type(value) is not Container or value.type not in kinds:
        return None
    parts: list[Any] = [getattr(read(child), "obj", None) for child in value.children()]
    return value.type(parts) if all(type(part) is int for part in parts) else None


def both_told(left: Cell, right: Cell) -> list[Cell] | None:
    """Two operands as objects for all threads, where one is a shape; None if that is not so."""
    objs = [told(left), told(right)]
    if None in objs or torch.Size not in map(type, objs):
        return None
    return [uniform(obj) for obj in objs]


def size(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``torch.Size(numbers)``."""
    obj = told(args[0], SEQUENCES) if len(args) == 1 and not kwargs else None
    return None if obj is None else uniform(torch.Size(obj))


HANDLERS: dict[Any, Handler] = {torch.Size: size}
