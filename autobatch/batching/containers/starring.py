"""``f(*x, **y)``: the arguments that ``x`` and ``y`` hand on.

They are the same in number and name in each thread of a group; where they are not, ``Differing``
says which threads have the same, and the call is made for each of these apart.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from autobatch.batching import semantics
from autobatch.batching.containers import iterators
from autobatch.batching.context import Context
from autobatch.batching.host.from_rows import from_rows
from autobatch.batching.host.rows import run_rows
from autobatch.batching.objects import namespaces
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.values.cells import (
    CLOSURE,
    METHOD,
    Cell,
    Container,
    Objects,
    Uniform,
    Value,
    read,
    uniform,
)


def titled(callee: Cell) -> object:
    """What Python's messages name a callee after."""
    value = read(callee)
    if type(value) is Objects:
        return value.items[0] if value.items else callee
    if type(value) is not Container:
        return getattr(value, "obj", callee)
    if value.type is CLOSURE:
        function, namespace, outer = value.static
        return SimpleNamespace(
            __qualname__=function.title_in(outer), __module__=namespace.get("__name__")
        )
    return value.static if value.type is METHOD else "an object"


def starred_parts(context: Context, title: Any, cell: Cell, alone: bool) -> list[Cell]:
    """What ``*x`` hands on, as many arguments in each thread; ``alone``: there is no other."""
    parts = iterators.exhausted(context, cell) if iterators.may_iterate(read(cell)) else None
    if parts is not None:
        return parts

    def spread(items: Any) -> tuple[Any, ...]:
        return tuple(semantics.spread(title, items, alone))

    rows = read(run_rows(context, spread, [cell], {}, "objects", keep=True, fresh=False))
    if type(rows) is Uniform:
        return [uniform(item) for item in rows.obj]
    if type(rows) is Container:
        return list(rows.children())
    what = "`*` hands on a number of arguments that differs by thread"
    raise differing(context, what, rows, [len(item) for item in rows.items])  # type: ignore[union-attr]


def mapping_of(context: Context, title: Any, cell: Cell) -> dict[str, Cell]:
    """What ``**x`` hands on, under the same names in each thread."""
    value = namespaces.opened(read(cell))
    if type(value) is Container and value.type is dict:
        return value.cells  # type: ignore[return-value]
    if type(value) is Uniform and isinstance(value.obj, Mapping):
        return {key: uniform(item, shared=True) for key, item in value.obj.items()}

    def entries(mapping: Any) -> dict[str, Any]:
        return dict(semantics.entries(title, mapping))

    rows = read(run_rows(context, entries, [cell], {}, "objects", keep=True, fresh=False))
    items = rows.items if type(rows) is Objects else [rows.obj] * context.k  # type: ignore[union-attr]
    if len({tuple(item) for item in items}) > 1:
        what = "`**` hands on names that differ by thread"
        raise differing(context, what, Objects(items), [tuple(item) for item in items])
    names = list(items[0]) if items else []
    return {name: from_rows(context, [item[name] for item in items], False) for name in names}


class Differing(UnsupportedError):
    """A call of a program function whose arguments differ in number or name by thread.

    ``laid_open`` is what the starred argument hands on in each thread, ``parts`` are the rows for
    which that is alike. ``cells`` are the call's arguments with what was laid open in the place of
    what is used up by that; the call for a part takes its rows of them.
    """

    laid_open: Cell
    parts: list[list[int]]
    cells: list[Cell]


def differing(context: Context, what: str, rows: Value, keys: Sequence[Hashable]) -> Differing:
    hint = "branch on the number of arguments, or pass them as one list."
    found = Differing(
        Diagnostic(f"In this call {what}.", context.span, "called here", (), (hint,), "star-args")
    )
    parts: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        parts.setdefault(key, []).append(row)
    found.laid_open, found.parts, found.cells = Cell(rows), list(parts.values()), []
    return found


def used_up(starred: bool | str | None, laid_open: Any) -> Cell:
    """What stands for an argument that was laid open: the same is laid open of it again."""
    if starred is True:
        return Cell(Container(tuple, list(laid_open)))
    return Cell(Container(dict, dict(laid_open))) if starred is None else laid_open
