"""``f(*x, **y)``: the arguments that ``x`` and ``y`` hand on, the same number in each thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autobatch.batching import (
    iterators,
    semantics,
)
from autobatch.batching.context import Context
from autobatch.batching.kinds import is_number_column
from autobatch.batching.rows import from_rows, run_rows
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.vm.values import (
    Cell,
    Container,
    Objects,
    Uniform,
    read,
    uniform,
)


def starred_parts(context: Context, title: Any, cell: Cell) -> list[Cell]:
    """What ``*x`` hands on, as many arguments in each thread."""
    parts = None if is_number_column(read(cell)) else iterators.exhausted(context, cell)
    if parts is not None:
        return parts

    def spread(items: Any) -> tuple[Any, ...]:
        return tuple(semantics.spread(title, items))

    rows = read(run_rows(context, spread, [cell], {}, "objects", keep=True, fresh=False))
    if type(rows) is Uniform:
        return [uniform(item) for item in rows.obj]
    if type(rows) is Container:
        return list(rows.children())
    raise differing(context, "`*` hands on a number of arguments that differs by thread")


def mapping_of(context: Context, title: Any, cell: Cell) -> dict[str, Cell]:
    """What ``**x`` hands on, under the same names in each thread."""
    value = read(cell)
    if type(value) is Container and isinstance(value.cells, dict):
        return value.cells
    if type(value) is Uniform and isinstance(value.obj, Mapping):
        return {key: uniform(item, shared=True) for key, item in value.obj.items()}

    def entries(mapping: Any) -> dict[str, Any]:
        return dict(semantics.entries(title, mapping))

    rows = read(run_rows(context, entries, [cell], {}, "objects", keep=True, fresh=False))
    items = rows.items if type(rows) is Objects else [rows.obj] * context.k  # type: ignore[union-attr]
    if len({tuple(item) for item in items}) > 1:
        raise differing(context, "`**` hands on names that differ by thread")
    names = list(items[0]) if items else []
    return {name: from_rows(context, [item[name] for item in items], False) for name in names}


class Differing(UnsupportedError):
    """A call of a program function whose arguments differ in number or name by thread."""


def differing(context: Context, what: str) -> Differing:
    hint = "branch on the number of arguments, or pass them as one list."
    return Differing(
        Diagnostic(f"In this call {what}.", context.span, "called here", (), (hint,), "star-args")
    )
