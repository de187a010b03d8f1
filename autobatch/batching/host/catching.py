"""Exceptions of several threads: one object for each, in a cell.

In: the cell that a handler's block has, whose rows are the exceptions themselves. They are
objects like others; what stands here is what only ``except`` and ``raise`` ask of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

from autobatch.batching import raising
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.fallbacks import EXCEPTION
from autobatch.batching.host.from_rows import numbers_from
from autobatch.batching.host.getters import note_named
from autobatch.batching.host.own_methods import refuse_finalizer
from autobatch.batching.host.rower import Rower
from autobatch.batching.host.rows import run_rows
from autobatch.batching.shared import refusals
from autobatch.source import Span
from autobatch.values.cells import Cell, Objects, Uniform, is_mutable, read, uniform


def catches(context: Context, attr: Any, errors: Cell, kinds: Cell) -> Cell:
    """Whether ``except kinds`` takes each thread's exception, a bool of each."""
    rower = Rower(context)
    found: list[bool] = [False] * context.k
    for row, (error, kind) in enumerate(zip(rower.rows(errors), rower.rows(kinds), strict=True)):
        try:
            found[row] = raising.catches(error, kind)
        except TypeError as wrong:
            context.lose(row, wrong)
    return numbers_from(context, found, bool) if found else uniform(False)


def add_context(context: Context, new: Cell, handled: Cell) -> None:
    """``new`` has arisen in each thread while ``handled`` was being handled."""
    rower = Rower(context)
    for error, before in zip(rower.rows(new), rower.rows(handled), strict=True):
        refuse_change(context.foreign.holds, context.span, error, "__context__", before)
        raising.add_context(error, before)


def raised(context: Context, operands: Sequence[Cell]) -> Iterator[tuple[int, BaseException]]:
    """What each row raises, of the exception and, if there is one, its cause; lowest thread first.

    A thread's exception is made only when it is asked for.
    """
    rower = Rower(context)
    columns = [rower.rows(cell) for cell in operands]
    for row in context.order():
        given = [column[row] for column in columns]
        if len(given) > 1:
            refuse_change(context.foreign.holds, context.span, given[0], "__cause__", given[1])
        yield row, raising.raised(*given)


def refuse_change(
    holds: Callable[[Any], bool], span: Span | None, error: Any, name: str, new: Any
) -> None:
    """Refuse to give an exception that existed before another cause or context."""
    is_changed = isinstance(error, BaseException) and getattr(error, name) is not new
    if is_changed and holds(error):
        raise refusals.of_exception(span, name.strip("_"))


def made(
    context: Context, kind: type[BaseException], args: Sequence[Cell], kwargs: dict[str, Cell]
) -> Cell:
    """An exception of each thread's own, even where all are made alike: they can be changed."""
    refuse_finalizer(context.span, kind)
    cells = [*args, *kwargs.values()]
    values = [read(cell) for cell in cells]
    if type(kind.__init__) is FunctionType:  # it runs as it is, and may keep what it names
        note_named(context.foreign, kind)
    for value in values:
        if type(value) is Uniform and value.shared:  # it holds that very object
            context.foreign.note(value.obj)
    if not all(type(value) is Uniform and not is_mutable(value) for value in values):
        return run_rows(context, kind, args, kwargs, EXCEPTION, keep=True, fresh=False)
    objs = [value.obj for value in values]  # type: ignore[union-attr]
    named = dict(zip(kwargs, objs[len(args) :], strict=True))
    try:
        return Cell(Objects([kind(*objs[: len(args)], **named) for _ in range(context.k)]))
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error
