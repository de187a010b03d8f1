"""Iterators that are zipped with others: those before may have ended in some threads only.

``zip`` takes nothing of what comes after the first iterator that has ended. Where nobody else can
see how far an iterator is, all threads take an item of it together, which keeps them in lockstep;
where the program has a name for it, or the host makes its items, those without ``more`` must not.
"""

from __future__ import annotations

import torch

from autobatch.batching.context import Context
from autobatch.batching.host.from_rows import from_rows
from autobatch.batching.host.rower import Rower
from autobatch.compat import on_host
from autobatch.values.cells import Cell, Column, Container, Uniform, as_column, read


def seen_apart(args: list[Cell], begun: list[Cell]) -> frozenset[int]:
    """The places of the iterators that have begun before, or are the host's."""
    pairs = enumerate(zip(args, begun, strict=True))
    return frozenset(
        place
        for place, (arg, iterator) in pairs
        if iterator is arg or type(read(iterator)) is not Container
    )


def flags(context: Context, more: Cell | None) -> list[bool]:
    """Which threads take an item."""
    value = None if more is None else read(more)
    if type(value) is Column:
        return on_host(value.data).tolist()  # type: ignore[no-any-return]
    return [value is None or bool(value.obj)] * context.k  # type: ignore[union-attr]


def stays(more: Cell) -> bool:
    """Whether some threads may take none."""
    return type(read(more)) is not Uniform


def chosen(context: Context, more: Cell, after: Cell, before: Cell) -> Cell:
    """Where an iterator is: ``after`` for the threads that have taken an item of it."""
    both = [as_column(read(cell), context.k, context.device) for cell in (after, before)]
    if both[0] is None or both[1] is None:  # one that has found its dict changed
        rows = zip(flags(context, more), *map(Rower(context).rows, (after, before)), strict=True)
        return from_rows(context, [new if taken else old for taken, new, old in rows])
    takes = read(more).data  # type: ignore[union-attr]
    return Cell(Column(torch.where(takes, both[0].data, both[1].data), "int"))
