"""Python numbers of the threads: number columns in, number columns out, Python's own meaning.

``numbers.apply`` computes a whole column and says in which rows Python would raise (seen at the
next host read) and which rows its dtype cannot hold (seen then too, and recomputed here, exactly).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from autobatch.batching import numbers
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.escapes import Escape, any_left, bind, ends_of
from autobatch.batching.host.from_rows import from_rows
from autobatch.values.cells import Cell, Column, Container, Uniform, is_number, read

LOOSE = 2**52
"""Where the ints of a column may lie further out, a branch's read looks where they do."""


def loose_columns(env: Mapping[str, Cell]) -> dict[str, Column]:
    """The variables with int columns whose bounds may soon let a result leave int64."""
    return {
        name: value
        for name, cell in env.items()
        if type(value := cell.value) is Column and value.tag == "int" and is_loose(value)
    }


def is_loose(column: Column) -> bool:
    bounds = column.bounds
    return bounds is None or bounds[0] < -LOOSE or bounds[1] > LOOSE


def number_operands(cells: Sequence[Cell]) -> list[Any] | None:
    """Operands for ``numbers.apply``; None unless all are numbers and one of them is a column."""
    operands: list[Any] = []
    columns = False
    for cell in cells:
        value = read(cell)
        if type(value) is Column and value.tag != "tensor":
            operands.append(numbers.Number(value.tag, value.data, value.bounds))
            columns = True
        elif type(value) is Uniform and is_number(value.obj):
            operands.append(value.obj)
        else:
            return None
    return operands if columns else None


def apply(
    context: Context, rule: Any, meaning: Callable[..., Any], cells: Sequence[Cell]
) -> Cell | None:
    """``rule`` (an opcode or a callable) on numbers; None if it has no batched form for them.

    ``meaning`` is the Python callable that it stands for.
    """
    operands = number_operands(cells)
    if operands is None:
        return None
    known = rule if isinstance(rule, str) else numbers.lookup(rule)
    result = None if known is None else numbers.apply(known, *operands)
    if result is None:
        return None
    pending = len(context.escapes)
    done = finish(context, result, meaning, cells)
    if context.forecasts is not None:
        given = [read(cell) for cell in cells]
        parts = done.value.children() if type(done.value) is Container else (done,)
        deferred = len(context.escapes) > pending
        context.forecasts.append((known, given, [part.value for part in parts], deferred))
    return done


def finish(
    context: Context, result: Any, meaning: Callable[..., Any], cells: Sequence[Cell]
) -> Cell:
    """The result, or the results of ``divmod``, as a cell."""
    context.counter.launch()
    snapshot = [Cell(read(cell)) for cell in cells]
    if isinstance(result, tuple):
        parts = [
            settle(context, part, lambda row, i=i: one(context, meaning, snapshot, row)[i])  # type: ignore[misc]
            for i, part in enumerate(result)
        ]
        return Cell(Container(tuple, parts))
    return settle(context, result, lambda row: one(context, meaning, snapshot, row))


def one(context: Context, meaning: Callable[..., Any], cells: Sequence[Cell], row: int) -> Any:
    """What Python gives, or raises, for the thread at ``row``."""
    operands: list[Any] = []
    for cell in cells:
        value = read(cell)
        if type(value) is Column:
            operands.append(context.host(value.data[row], "blame"))
        else:
            operands.append(value.obj)  # type: ignore[union-attr]
    return meaning(*operands)


def settle(context: Context, result: Any, evaluate: Callable[[int], Any]) -> Cell:
    """The result as a cell: failures and rows that its dtype may not hold are noted."""
    if result.failed is not None:
        context.check(result.failed, evaluate)
    column = Column(result.data, result.tag, result.bounds)
    if result.escape is None or not context.k:
        return Cell(column)
    left = result.escape if result.failed is None else result.escape & ~result.failed
    ints = (column,) if result.tag == "int" else ()
    if context.may_look_later:
        context.note_escape(Escape(left, ints))
        return Cell(column)
    seen = torch.cat([any_left([Escape(left, ints)]), *ends_of(ints)])
    some, *ends = context.host(seen, "overflow")
    if some:
        return patched(context, column, context.host(left, "overflow"), evaluate)
    bind(ints, ends)
    return Cell(column)


def patched(
    context: Context, column: Column, rows: list[Any], evaluate: Callable[[int], Any]
) -> Cell:
    items = context.host(column.data, "overflow")
    for row in context.order():
        if rows[row]:
            try:
                items[row] = evaluate(row)
            except Exception as error:
                raise RowsFail(row, error) from error
    return from_rows(context, items)
