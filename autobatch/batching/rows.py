"""Thread by thread: from cells to real Python values and back.

``Rower`` gives each thread's real value of a cell. With ``keep`` the cell is turned into
``Objects`` of these very values (and so is every mutable cell that it reaches), so what a call
does to them is seen through every alias. ``from_rows`` goes the other way: results that again
share a type become a column, a tuple of columns or a uniform value, everything else objects.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.compat import operator_name
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.fallbacks import is_meant
from autobatch.batching.own_methods import Unknown, is_in, may_show
from autobatch.presence import moves
from autobatch.presence.guards import guarded_rows
from autobatch.random.drawing import drawing
from autobatch.random.sources import Thread, Threads
from autobatch.vm import packs
from autobatch.vm.values import (
    BOX,
    CLOSURE,
    ENUMERATE_ITERATOR,
    METHOD,
    NO_TIES,
    NUMBER_TAGS,
    PACKED,
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
    uniform,
)

SHARABLE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, torch.nn.Module)
"""Objects that stay one for all threads when all threads have the same."""


LENT: frozenset[Any] = frozenset(
    {
        *(sum, min, max, sorted, any, all, len, str, repr, tuple),
        *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
        operator.contains,
    }
)
"""Functions that look at lists and keep none: of lists in one table, they get copies."""
NUMPY_DTYPES: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}


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
            cell.value = Objects(rows, getattr(read(cell), "ties", NO_TIES))
        return rows

    def leaf(self, value: Any) -> list[Any]:
        match value:
            case Objects(lists=lists) if lists is not None and self.lend:
                return lists.opened()  # type: ignore[no-any-return]
            case Objects(items=items):
                return items
            case Uniform(obj=obj):
                if isinstance(obj, Tensor) and not value.shared:
                    with self.context.services.moving():
                        return [obj.clone() for _ in range(self.k)]
                if value.shared:
                    self.context.foreign.note(obj)
                return [obj] * self.k
            case Column(data=data, tag="tensor"):
                with self.context.services.moving():
                    rows = [row.clone() for row in moves.unbound(guarded_rows(data))]
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
            cell.value = Objects(rows)
        return rows

    def immutable(self, value: Container) -> list[Any]:
        columns = [self.rows(child) for child in value.children()]
        parts = list(zip(*columns, strict=True)) if columns else [()] * self.k
        make = self.context.closure if value.type is CLOSURE else MAKERS.get(value.type)
        if make is not None:
            return [make(value.static, part) for part in parts]
        if value.type is tuple:
            return list(parts)
        if value.type in (slice, range) or hasattr(value.type, "_fields"):
            return [value.type(*part) for part in parts]
        return [value.type(part) for part in parts]


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
    iterator = iter(source)
    for _ in range(position):
        next(iterator, None)
    return iterator


def bound(function: Any, given: tuple[Any, ...]) -> Any:
    """A method of a receiver, or a function with its first arguments."""
    if len(given) == 1:
        return types.MethodType(function, given[0])
    return partial(function, *given)


def with_parameters(
    module: torch.nn.Module, names: tuple[str, ...], tensors: tuple[Any, ...]
) -> Callable[..., Any]:
    """A module with given parameters, as a Python callable."""
    given = dict(zip(names, tensors, strict=True))
    return lambda *args, **kwargs: torch.func.functional_call(module, given, args, kwargs)


FILLED: dict[Any, Callable[[], Any]] = {
    list: list,
    dict: dict,
    set: set,
    BOX: lambda: types.CellType(),
}
MAKERS: dict[Any, Callable[[Any, tuple[Any, ...]], Any]] = {
    STATELESS: lambda static, part: with_parameters(static[0], static[1], part),
    METHOD: lambda function, part: bound(function, part),
    RANGE_ITERATOR: lambda _, part: iter(range(*part)),
    SEQUENCE_ITERATOR: _sequence_iterator,
    ENUMERATE_ITERATOR: lambda _, part: iter(enumerate(part[1], part[0])),
    ZIP_ITERATOR: lambda _, part: zip(*part, strict=False),
    PACKED: lambda table, part: packs.own_tensor(table, *part),
}


class RowDraws:
    """Lets what runs for one thread draw where that thread is; at the end each is farther on."""

    def __init__(self, source: Threads | None) -> None:
        self.source = source
        if source is not None:
            self.keys, self.before = source.paths.here()
            self.numbers = self.before.copy()

    @classmethod
    def of(cls, context: Context) -> RowDraws:
        return cls(context.source())

    def __enter__(self) -> RowDraws:
        return self

    def __exit__(self, *_: object) -> None:
        if self.source is not None and (self.numbers != self.before).any():
            self.source.paths.moved(self.numbers)

    def by_row(self, call: Callable[[int], Any]) -> Callable[[int], Any]:
        source = self.source
        if source is None:
            return call

        def drawn(row: int) -> Any:
            number = int(self.numbers[row])
            thread = Thread(int(source.threads[row]), int(self.keys[row]), number)
            try:
                with drawing(thread):
                    return call(row)
            finally:
                self.numbers[row] = thread.number

        return drawn


ANY_EFFECT = "it may have any effect"


def run_rows(
    context: Context,
    function: Callable[..., Any],
    args: Sequence[Cell],
    kwargs: dict[str, Cell],
    why: str,
    keep: bool = False,
    fresh: bool = True,
    effect: bool | None = None,
) -> Cell:
    """Call ``function`` once per thread, lowest thread first; a failure is ``RowsFail``.

    ``keep``: the call may change its arguments. ``fresh``: no other name refers to its results.
    ``effect``: the call may do anything, so it must not run twice for a thread; None where methods
    of the user's classes that it asks decide that. Where threads leave one by one, all others run,
    and ``RowsFail`` is for when none of them is left.
    """
    if effect is None and may_show(context, function, (*args, *kwargs.values())):
        return context.invoke(context, Unknown(function), list(args), kwargs)
    context.settle()
    if effect:
        context.visible(keep)
    if context.k > 0:
        note_fallback(context, function, (*args, *kwargs.values()), why, bool(effect))
    rower = Rower(context, keep, is_in(function, LENT))
    columns = [rower.rows(arg) for arg in args]
    named = {name: rower.rows(arg) for name, arg in kwargs.items()}
    if len(columns) == 1 and not named and context.paths is None:
        return called(context, function, columns[0], fresh, bool(effect))
    with RowDraws.of(context) as draws:
        call = draws.by_row(partial(call_row, function, columns, named))
        return called(context, call, range(context.k), fresh, bool(effect))


def map_rows(
    context: Context,
    function: Callable[[Any], Any],
    cell: Cell,
    items: list[Any],
    why: str,
    quick: Callable[[Any], Any] | None = None,
) -> Cell:
    """``function``, which has no effect, of each object of a cell; it may give what others name.

    ``quick`` gives the same, sooner.
    """
    context.settle()
    try:
        results = list(map(quick or function, items))
    except Exception:  # whose it is, and what the others have, tells the long way
        return run_rows(context, function, [cell], {}, why, fresh=False, effect=False)
    if items:
        note_fallback(context, function, (cell,), why)
    return from_rows(context, results, fresh=False)


def called(
    context: Context, call: Callable[..., Any], items: Sequence[Any], fresh: bool, effect: bool
) -> Cell:
    """What a call gives for the item of each row; see ``run_rows``."""
    try:
        if context.lost is not None:
            results = isolated(context, call, items)
        else:
            results = in_order(context, call, items, fresh, effect)
    finally:
        if effect:
            context.services.names_may_change()
    return from_rows(context, results, fresh)


def in_order(
    context: Context, call: Callable[..., Any], items: Sequence[Any], fresh: bool, effect: bool
) -> list[Any]:
    """What ``call`` gives for each row; with ``RowsFail`` come the results below, if need be."""
    results: list[Any] = [None] * context.k
    row = -1
    try:
        for row in context.order():
            results[row] = call(items[row])
    except Exception as error:
        done = finished(context, results, row, fresh) if effect else None
        raise RowsFail(row, error, done) from error
    return results


def call_row(
    function: Callable[..., Any], columns: list[list[Any]], named: dict[str, list[Any]], row: int
) -> Any:
    if len(columns) == 1 and not named:
        return function(columns[0][row])
    return function(
        *[column[row] for column in columns],
        **{name: column[row] for name, column in named.items()},
    )


def isolated(context: Context, call: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
    """What ``call`` gives for each row; a row that fails is lost, and gets what another has."""
    results: list[Any] = [None] * context.k
    failed: list[int] = []
    failure: RowsFail | None = None
    for row in context.order():
        try:
            results[row] = call(items[row])
        except Exception as error:
            context.lose(row, error)
            failed.append(row)
            failure = failure or RowsFail(row, error)
    if failure is None:
        return results
    if len(failed) == context.k:
        raise failure from failure.error
    spare = next(row for row in range(context.k) if row not in set(failed))
    for row in failed:
        results[row] = results[spare]
    return results


def finished(context: Context, results: list[Any], failed: int, fresh: bool) -> Cell:
    """The results of the threads below the one that failed."""
    limit = context.threads[failed]
    rows = [row for row in range(context.k) if context.threads[row] < limit]
    return from_rows(context.restricted(rows), [results[row] for row in rows], fresh)


def note_fallback(
    context: Context,
    function: Callable[..., Any],
    cells: Sequence[Cell],
    why: str,
    effect: bool = False,
) -> None:
    """Count what runs thread by thread, and hold it to the option ``fallback``."""
    if context.policy is None and not context.counter.listens:
        return
    what = name_of(function)
    meant = partial(is_meant, function, cells, why, effect)
    context.counter.fallback(context.span, what, why, meant)
    if context.policy is not None:
        context.policy.runs += 1
        if not meant():
            context.policy.met(context.span, what, why)


def name_of(function: Any) -> str:
    named = operator_name(function) or getattr(function, "__qualname__", None)
    return named or type(function).__name__


def from_rows(
    context: Context,
    items: list[Any],
    fresh: bool = True,
    known: dict[tuple[int, ...], Cell] | None = None,
) -> Cell:
    """One cell for a real value per thread; ``known`` are those of tuples met before, by id."""
    if not items:
        return Cell(Objects([]))
    first = items[0]
    kind = type(first)
    if len(set(map(type, items))) > 1:
        return Cell(Objects(items))
    if kind in NUMBER_TAGS:
        return numbers_from(context, items, kind)
    if kind in (str, bytes) and all(item == first for item in items):
        return uniform(first)
    if first is None or first is Ellipsis or first is NotImplemented:
        return uniform(first)
    if isinstance(first, SHARABLE) and all(item is first for item in items):
        return uniform(first, shared=True)
    if isinstance(first, Tensor) and fresh and len({signature(item) for item in items}) == 1:
        return Cell(Column(moves.stacked(items)))
    if kind is tuple and len({len(item) for item in items}) == 1:
        return tuples_from(context, items, fresh, {} if known is None else known)
    return Cell(Objects(items))


def tuples_from(
    context: Context, items: list[Any], fresh: bool, known: dict[tuple[int, ...], Cell]
) -> Cell:
    """The same for tuples of one length, each once: a tuple may hold one tuple many times."""
    key = tuple(map(id, items))
    if key not in known:
        columns = map(list, zip(*items, strict=True))
        parts = [from_rows(context, column, fresh, known) for column in columns]
        known[key] = Cell(Container(tuple, parts))
    return known[key]


def numbers_from(context: Context, items: list[Any], kind: type) -> Cell:
    try:
        numbers: np.ndarray = np.array(items, dtype=NUMPY_DTYPES[kind])
    except OverflowError:
        return Cell(Objects(items))
    bounds = (min(items), max(items)) if kind is int else None
    data = torch.from_numpy(numbers).to(context.device)
    return Cell(Column(data, NUMBER_TAGS[kind], bounds))


def signature(tensor: Tensor) -> Any:
    return (tensor.dtype, tensor.shape, tensor.device, tensor.layout, type(tensor))
