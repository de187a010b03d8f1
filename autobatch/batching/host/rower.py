"""From cells to real Python values, one for each thread.

``Rower`` gives each thread's real value of a cell. With ``keep`` the cell is turned into
``Objects`` of these very values (and so is every mutable cell that it reaches), so what a call
does to them is seen through every alias.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.context import Context, Due, Irrevocable
from autobatch.batching.host import making
from autobatch.presence.guards import guarded_rows
from autobatch.values import packs
from autobatch.values.cells import (
    BOX,
    CHANGED,
    CLOSURE,
    DEFERRAL,
    DICT_ITERATOR,
    DICT_VIEW,
    DOWN_ITERATOR,
    ENUMERATE_ITERATOR,
    EXHAUSTED,
    FORK,
    METHOD,
    NAMESPACE,
    NO_TIES,
    PARTIAL,
    PENDING,
    RANGE_ITERATOR,
    SEQUENCE_ITERATOR,
    STATELESS,
    UNSET,
    ZIP_ITERATOR,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    View,
    is_mutable,
    read,
)
from autobatch.values.strides import copies, copy_of


class Rower:
    """Turns cells into lists of ``k`` real values; one instance per operation keeps aliases.

    ``lend``: what they are for keeps none of them, and changes none. ``views``: a row of a view is
    a part of its base's row.
    """

    def __init__(
        self, context: Context, keep: bool = False, lend: bool = False, views: bool = False
    ) -> None:
        self.context = context
        self.views = views or keep
        self.lend = lend and not keep
        self.k = context.k
        self.keep = keep
        self.memo: dict[int, list[Any]] = {}

    def rows(self, cell: Cell) -> list[Any]:
        known = self.memo.get(id(cell))
        if known is not None:
            return known
        value = cell.value
        if type(value) is View and not self.views:
            value = read(cell)
        if type(value) is Container:
            return self.container(cell, value)
        rows = self.view(value) if type(value) is View else self.leaf(value)
        self.memo[id(cell)] = rows
        if self.keep and is_mutable(value):
            self.turn(cell, Objects(rows, getattr(read(cell), "ties", NO_TIES)))
        return rows

    def turn(self, cell: Cell, objects: Objects) -> None:
        """Let a cell be objects from now on: what is done to those is not taken back."""
        if self.context.ahead:
            raise Irrevocable
        cell.value = objects

    def leaf(self, value: Any) -> list[Any]:
        match value:
            case Objects(lists=lists) if lists is not None and self.lend:
                return lists.opened()  # type: ignore[no-any-return]
            case Objects(items=items):
                return items
            case Uniform(obj=obj):
                if isinstance(obj, Tensor) and not value.shared:
                    with self.context.services.moving():
                        return [copy_of(obj) for _ in range(self.k)]
                if value.shared:
                    self.context.foreign.note(obj)
                return [obj] * self.k
            case Column(data=data, tag="tensor"):
                with self.context.services.moving():
                    rows = copies(guarded_rows(data))
                if value.outside is not False:
                    for place in np.flatnonzero(np.broadcast_to(value.outside, self.k)):
                        self.context.foreign.note(rows[place])
                return rows
            case Column(data=data):
                return self.context.host(data, "objects")  # type: ignore[no-any-return]
        raise AssertionError(value)

    def view(self, view: View) -> list[Any]:
        bases = self.rows(view.base)
        args = [self.rows(arg) for arg in view.args]
        return [view.recipe.row(base, [arg[row] for arg in args]) for row, base in enumerate(bases)]

    def container(self, cell: Cell, value: Container) -> list[Any]:
        make = FILLED.get(value.type)
        if make is not None:
            rows = [make() for _ in range(self.k)]
            self.memo[id(cell)] = rows
            fill(rows, value, self)
        elif is_instance_type(value.type):
            rows = [value.type.__new__(value.type) for _ in range(self.k)]
            self.memo[id(cell)] = rows
            for name, child in value.cells.items():  # type: ignore[union-attr]
                for row, item in zip(rows, self.rows(child), strict=True):
                    object.__setattr__(row, name, item)
        else:
            rows = self.immutable(value)
            rows = self.memo.setdefault(id(cell), rows)  # there by way of a list that holds it
        if self.keep:
            self.turn(cell, Objects(rows))
        return rows

    def immutable(self, value: Container) -> list[Any]:
        if packs.is_packed(value):
            with self.context.services.moving():
                return packs.own_tensors(value)
        columns = [self.rows(child) for child in value.children()]
        parts = list(zip(*columns, strict=True)) if columns else [()] * self.k
        if value.type is CLOSURE:
            return list(map(self.maker(value.static), parts))
        make = MAKERS.get(value.type)
        if make is not None:
            return [make(value.static, part) for part in parts]
        if value.type is tuple:
            return list(parts)
        if value.type in (slice, range) or hasattr(value.type, "_fields"):
            return [value.type(*part) for part in parts]
        if value.type in (FORK, DEFERRAL, PENDING):  # a result that is not there yet
            raise Due
        return [value.type(part) for part in parts]

    def maker(self, static: Any) -> Callable[[tuple[Any, ...]], Any]:
        """What makes a function of the program's, of what it holds."""
        if static[0].yields is not None:
            return partial(making.python_function, static)
        return self.context.closure(static)


def own_memory(context: Context, cells: Iterable[Cell]) -> None:
    """Let views that are objects be parts of their bases' own rows, where those may be written."""
    if context.services.blind():
        return
    rower = Rower(context, keep=True)
    for cell in cells:
        if type(cell.value) is View and type(read(cell)) is Objects:
            rower.rows(cell)


def is_instance_type(kind: Any) -> bool:
    return isinstance(kind, type) and kind not in (slice, range) and not issubclass(kind, tuple)


def fill(rows: list[Any], value: Container, rower: Rower) -> None:
    """Put the children's rows into fresh lists, dicts or boxes."""
    if isinstance(value.cells, dict):
        for key, child in value.cells.items():
            for row, item in zip(rows, rower.rows(child), strict=True):
                row[key] = item
        return
    for child in value.cells:
        for row, item in zip(rows, rower.rows(child), strict=True):
            if isinstance(row, list):
                row.append(item)
            elif isinstance(row, set):
                row.add(item)
            elif item is not UNSET:
                row.cell_contents = item


def _sequence_iterator(_: Any, part: tuple[Any, ...]) -> Any:
    position, source = part
    if position == EXHAUSTED:
        return iter(())
    iterator = iter(source)
    for _ in range(position):
        next(iterator, None)
    return iterator


def _dict_iterator(static: tuple[str, bool], part: tuple[Any, ...]) -> Any:
    (what, turned), (position, source, keys) = static, part
    if position == EXHAUSTED:
        return iter(())
    if position == CHANGED or len(source) != len(keys):
        return _changed()
    found = getattr(source, what)()
    iterator = iter(reversed(found) if turned else found)
    for _ in range(position):
        next(iterator, None)
    return iterator


def _changed() -> Iterator[Any]:
    """What is left of an iterator whose dict has grown or shrunk: one that always fails."""
    changed: dict[int, int] = {}
    iterator = iter(changed)
    changed[0] = 0
    return iterator


def _down_iterator(_: Any, part: tuple[Any, ...]) -> Any:
    position, source = part
    if not 0 <= position < len(source):
        return iter(())
    iterator = reversed(source)
    iterator.__setstate__(position)
    return iterator


def bound(function: Any, given: tuple[Any, ...]) -> Any:
    """A method of a receiver, or a function with its first arguments."""
    if len(given) == 1:
        return types.MethodType(function, given[0])
    return partial(function, *given)


def with_parameters(
    module: torch.nn.Module, names: tuple[str, ...], tensors: tuple[Any, ...]
) -> torch.nn.Module:
    """A copy of a module that has the given parameters, and shares all else with it."""
    given = dict(zip(names, tensors, strict=True))
    made = {id(part): copy.copy(part) for part in module.modules()}
    for path, part in module.named_modules():
        start = path + "." if path else ""
        table = made[id(part)].__dict__
        for kind in ("_parameters", "_buffers"):
            own = getattr(part, kind)
            table[kind] = {name: given.get(start + name, old) for name, old in own.items()}
        parts = part._modules.items()
        table["_modules"] = {name: None if sub is None else made[id(sub)] for name, sub in parts}
        if isinstance(part, torch.nn.RNNBase):
            table["_flat_weights"] = [getattr(made[id(part)], n) for n in part._flat_weights_names]
    return made[id(module)]


FILLED: dict[Any, Callable[[], Any]] = {
    list: list,
    dict: dict,
    set: set,
    BOX: lambda: types.CellType(),
}
MAKERS: dict[Any, Callable[[Any, tuple[Any, ...]], Any]] = {
    STATELESS: lambda static, part: with_parameters(static[0], static[1], part),
    METHOD: lambda function, part: bound(function, part),
    PARTIAL: lambda _, part: partial(part[0], *part[1], **part[2]),
    RANGE_ITERATOR: lambda _, part: iter(range(*part)),
    SEQUENCE_ITERATOR: _sequence_iterator,
    ENUMERATE_ITERATOR: lambda _, part: iter(enumerate(part[1], part[0])),
    ZIP_ITERATOR: lambda _, part: zip(*part, strict=False),
    DICT_ITERATOR: _dict_iterator,
    DOWN_ITERATOR: _down_iterator,
    DICT_VIEW: lambda what, part: getattr(part[0], what)(),
    NAMESPACE: lambda _, part: vars(part[0]),
}
