"""``sorted``, ``min`` and ``max`` by a function of the program's: each key once for all threads.

In: the call's operands, of which all threads have equally many items. The keys are those of the
items, in their order. Out: the items, picked by a thread's own order where they are numbers or
tensors alike; else each thread puts its own items into the order of its keys. None where the call
is to go another way, and then nothing has been called yet.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.calling.resolving import resolve
from autobatch.batching.containers import iterators
from autobatch.batching.containers.picking import as_column, picked, picked_number, tag_of
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.finishing import finish_below, rows_below
from autobatch.batching.host.rows import run_rows
from autobatch.batching.kinds import event_of, is_tensor, parts_of
from autobatch.values.cells import CLOSURE, Cell, Column, Container, Uniform, read, uniform
from autobatch.values.heap import selecting


def by_key(
    context: Context, choice: Callable[..., Any], args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    """``choice(xs, key=f)``, where ``choice`` is ``sorted``, ``min`` or ``max``."""
    named = {"key", "reverse"} if choice is sorted else {"key"}
    if len(args) != 1 or not named.issuperset(kwargs):
        return None
    reverse = read(kwargs["reverse"]) if "reverse" in kwargs else Uniform(False)
    if type(reverse) is not Uniform or type(reverse.obj) is not bool:
        return None
    key = kwargs["key"]
    if resolve(key, [], {}).effect != "program" or not is_list(args[0]):
        return None
    items = iterators.exhausted(context, args[0])
    if not items:
        return None
    if (choice is not sorted or context.lost is not None) and not is_silent(context, key):
        return None
    return ordered(context, choice, key, items, [], reverse.obj)


def ordered(
    context: Context,
    choice: Callable[..., Any],
    key: Cell,
    items: Sequence[Cell],
    keys: Sequence[Cell],
    reverse: bool,
) -> Cell:
    """The same of items of which the first have their ``keys``."""
    keys = [*keys]

    def go_on(part: Context, found: Cell, rows: np.ndarray) -> Cell:
        own = selecting.select([*items, *keys], rows)
        return ordered(part, choice, key, own[: len(items)], [*own[len(items) :], found], reverse)

    for item in items[len(keys) :]:
        try:
            keys.append(context.invoke(context, key, [item], {}))
        except RowsFail as failure:
            finish_below(context, failure, partial(go_on, rows=rows_below(context, failure)))
            raise
    places = order_of(context, keys, reverse or choice is max)
    if places is not None:
        found = placed(context, items, places if choice is sorted else places[:1])
        if found is not None:
            return Cell(Container(list, found)) if choice is sorted else found[0]
    operands = [Cell(Container(list, [*items])), Cell(Container(list, keys))]
    function = in_order if choice is sorted else {min: least, max: greatest}[choice]
    named_by = {"reverse": uniform(True)} if reverse else {}
    return run_rows(context, function, operands, named_by, "no batched form", True, False)


def by_themselves(context: Context, items: list[Cell], descending: bool) -> Cell | None:
    """``sorted`` of 0-d tensors of one dtype."""
    places = order_of(context, items, descending)
    found = None if places is None else placed(context, items, places)
    return None if found is None else Cell(Container(list, found))


def placed(context: Context, items: Sequence[Cell], places: Tensor) -> list[Cell] | None:
    """The items at the places ``[n, k]``; None where they are no columns."""
    found = [at(context, items, place) for place in places]
    parts = [part for part in found if part is not None]
    return parts if len(parts) == len(found) else None


def is_silent(context: Context, key: Cell) -> bool:
    """Whether the calls of a key can be seen to write nothing.

    ``min`` and ``max`` would meet what they write to the list itself. Where a failure is caught, a
    thread whose key has failed must not write what its later keys do.
    """
    value = read(key)
    if type(value) is Container and value.type is CLOSURE:
        return context.is_pure(value.static)
    function = value.obj if type(value) is Uniform else None
    return isinstance(function, FunctionType) and not context.has_effects(function, None)


def is_list(cell: Cell) -> bool:
    """Whether a cell may be gone through twice."""
    value = read(cell)
    return parts_of(cell) is not None or (type(value) is Uniform and type(value.obj) is range)


def order_of(context: Context, keys: Sequence[Cell], descending: bool) -> Tensor | None:
    """``[n, k]``: the places of the items in each thread's order; None where keys have none.

    Keys are numbers of one type, or 0-d tensors of one dtype. NaN has no order.
    """
    values = [read(key) for key in keys]
    tensors = [value for value in values if is_tensor(value)]
    if tensors:
        if len(tensors) < len(values) or len({kind_of(value) for value in values}) > 1:
            return None
        if event_of(values[0]) != ():
            return None
        data = torch.stack([rows_of(context, value).detach() for value in values])
    else:
        tags = {tag_of(value) for value in values}
        if len(tags) > 1 or None in tags:
            return None
        data = torch.stack([as_column(context, value).data for value in values])
    if data.dtype.is_complex:
        return None
    if data.dtype.is_floating_point and context.host(data.isnan().any(), "sorted"):
        return None
    context.counter.launch()
    return torch.sort(data, stable=True, dim=0, descending=descending).indices


def at(context: Context, items: Sequence[Cell], place: Tensor) -> Cell | None:
    """The item at a place of each thread's own; None where that is no column.

    A tensor that may be one of several by thread is a column of its own only where nothing tells.
    """
    values = [read(item) for item in items]
    tags = {tag_of(value) for value in values}
    if len(tags) == 1 and None not in tags:
        return picked_number(context, values, place)
    if not context.services.blind() or not all(map(is_tensor, values)):
        return None
    if len({kind_of(value) for value in values}) > 1:
        return None
    return Cell(Column(picked([rows_of(context, value) for value in values], place)))


def rows_of(context: Context, value: Any) -> Tensor:
    """A tensor's rows ``[k, *E]``."""
    if type(value) is Column:
        return value.data
    tensor: Tensor = value.obj
    return tensor.expand(context.k, *tensor.shape)


def kind_of(value: Any) -> tuple[Any, ...]:
    data = value.table if type(value) is Column else value.obj
    return (data.dtype, data.device, event_of(value))


def in_order(items: list[Any], keys: list[Any], *, reverse: bool = False) -> list[Any]:
    """``sorted`` of items whose keys are known."""
    places = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
    return list(operator.itemgetter(*places)(items)) if len(places) > 1 else list(items)


def least(items: list[Any], keys: list[Any]) -> Any:
    return items[min(range(len(items)), key=keys.__getitem__)]


def greatest(items: list[Any], keys: list[Any]) -> Any:
    return items[max(range(len(items)), key=keys.__getitem__)]
