"""``range``, ``zip``, ``len``, ``list``, ``next`` and the like on cells."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from autobatch.batching import arithmetic, lists
from autobatch.batching.calling import stateless
from autobatch.batching.containers import entries, iterators, zipped
from autobatch.batching.containers.in_step import over
from autobatch.batching.context import Context, Handler, RowsFail
from autobatch.batching.conversions import as_index
from autobatch.batching.finishing import finished
from autobatch.batching.host.from_rows import from_rows
from autobatch.batching.host.rower import Rower
from autobatch.batching.host.rows import run_rows
from autobatch.batching.kinds import is_instance, is_tensor, own_method, parts_of
from autobatch.batching.objects import namespaces
from autobatch.batching.operators import binary, unary
from autobatch.batching.protocols import length_given
from autobatch.batching.tensors import torch_ops
from autobatch.batching.truths import truth
from autobatch.compat import on_host
from autobatch.values import packs
from autobatch.values.cells import (
    DICT_VIEW,
    DOWN_ITERATOR,
    ENUMERATE_ITERATOR,
    ZIP_ITERATOR,
    Cell,
    Column,
    Container,
    Uniform,
    is_iterator,
    read,
    uniform,
)


def _len(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value = namespaces.opened(read(args[0]))
    if is_tensor(value) and iterators.event_shape(value):
        return uniform(int(iterators.event_shape(value)[0]))
    found = lists.held(value)
    if found is not None:
        return lists.length(context, found)
    method = own_method(value, "__len__")
    if method is not None:
        call = partial(context.invoke, context, method, args, {})
        return finished(context, call, length_given)
    if type(value) is Container and value.type is DICT_VIEW:
        return _len(context, value.cells, kwargs)  # type: ignore[arg-type]
    parts = stateless.in_order(value) if type(value) is Container else None
    if parts is not None:
        return uniform(len(parts))
    is_sized = type(value) is Container and isinstance(value.type, type)
    if is_sized and not is_instance(value) and value.type not in (range, slice):  # type: ignore[union-attr]
        return uniform(len(value.cells))  # type: ignore[union-attr]
    return None


def _range(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    cells = [as_index(context, arg) for arg in args]
    if kwargs or not 1 <= len(cells) <= 3 or any(cell is None for cell in cells):
        return None
    if all(type(read(cell)) is Uniform for cell in cells):  # type: ignore[arg-type]
        return None
    if len(cells) == 1:
        cells = [uniform(0), *cells]
    if len(cells) == 2:
        cells = [*cells, uniform(1)]
    step = read(cells[2])  # type: ignore[arg-type]
    if type(step) is not Uniform or step.obj == 0:
        zero = truth(context, binary(context, "eq", cells[2], uniform(0)))  # type: ignore[arg-type]
        if any(torch_ops.one_row(context, bool, [zero], row) for row in range(context.k)):
            return None
    return Cell(Container(range, cells))  # type: ignore[arg-type]


def _enumerate(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    named = {"iterable": args[0]} if args else {}
    named = {**named, **({"start": args[1]} if len(args) > 1 else {}), **kwargs}
    if "iterable" not in named or len(named) < len(args) + len(kwargs):
        return None
    start = as_index(context, named.get("start", uniform(0)))
    if start is None or not {"iterable", "start"}.issuperset(named):
        return None
    inner = iterators.iterate(context, named["iterable"])
    return Cell(Container(ENUMERATE_ITERATOR, [start, inner]))


def _zip(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    strict = read(kwargs["strict"]) if kwargs.keys() == {"strict"} else None
    if kwargs and type(strict) is not Uniform:
        return None
    if type(strict) is Uniform and strict.obj and not of_one_length(context, args):
        return None
    begun = [iterators.iterate(context, arg) for arg in args]
    return Cell(Container(ZIP_ITERATOR, begun, zipped.seen_apart(args, begun)))


def of_one_length(context: Context, args: list[Cell]) -> bool:
    """Whether sequences are known to be as long as each other, in every thread."""
    sizes = [size_of(context, arg) for arg in args]
    for size in sizes[1:]:
        if size is None or sizes[0] is None:
            return False
        same = read(binary(context, "eq", sizes[0], size))
        if type(same) is not Uniform and not (type(same) is Column and on_host(same.data).all()):
            return False
        if type(same) is Uniform and not same.obj:
            return False
    return True


def size_of(context: Context, cell: Cell) -> Cell | None:
    """The length of a sequence; None for what ``iter`` may use up, and for objects."""
    value = read(cell)
    if packs.is_packed(value):
        return packs.length(value)
    if type(value) is Uniform:
        return uniform(len(value.obj)) if type(value.obj) in (list, tuple, range, str) else None
    return None if is_instance(value) else _len(context, [cell], {})


def _reversed(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value = namespaces.opened(read(args[0]))
    if is_tensor(value):
        return iterators.iterate(
            context, torch_ops.apply(context, torch.flip, [*args, uniform((0,))], {}, False)
        )
    if packs.is_packed(value):
        return over(Cell(packs.turned(value)))
    if type(value) is Container and value.type is range:
        return reversed_range(context, value)
    if type(value) is Container and value.type in (dict, DICT_VIEW):
        return entries.iterate(args[0], value, turned=True)
    if type(value) is Container and value.type is list:
        return Cell(Container(DOWN_ITERATOR, [uniform(len(value.cells) - 1), args[0]]))
    found = lists.held(value)
    if found is not None:
        last = binary(context, "sub", lists.length(context, found), uniform(1))
        return Cell(Container(DOWN_ITERATOR, [last, args[0]]))
    parts = parts_of(args[0])
    if parts is None:
        return None
    return over(Cell(Container(tuple, parts[::-1])))


def reversed_range(context: Context, value: Container) -> Cell | None:
    """``reversed(range(start, stop, step))`` counts down from the last to before the start."""
    start, stop, step = value.children()
    distance = binary(context, "sub", stop, start)
    ahead = unary(
        context, "neg", binary(context, "floordiv", unary(context, "neg", distance), step)
    )
    zero = uniform(0)
    count = arithmetic.apply(context, max, max, [ahead, zero])
    if count is None:
        return None
    less = binary(context, "sub", count, uniform(1))
    last = binary(context, "add", start, binary(context, "mul", less, step))
    before = binary(context, "sub", start, step)
    down = unary(context, "neg", step)
    return iterators.iterate(context, Cell(Container(range, [last, before, down])))


def _sequence(kind: type) -> Handler:
    def handler(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
        if not args:
            return Cell(Container(kind, []))
        found = lists.held(read(args[0]))
        if found is not None and kind is list:
            return lists.made(found.copy())
        value = read(args[0])
        if kind is list and type(value) is Container and value.type is range:
            return lists.ranged(context, value)
        if kind is list and type(value) is Container and value.type is DOWN_ITERATOR:
            found = iterators.taken_down(context, value)
            if found is not None:
                return lists.made(found)
        parts = iterators.exhausted(context, args[0])
        return None if parts is None else Cell(Container(kind, list(parts)))

    return handler


def _dict(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    if not args:
        return Cell(Container(dict, dict(kwargs)))
    value = namespaces.opened(read(args[0]))
    if type(value) is Container and value.type is dict:
        return Cell(Container(dict, {**value.cells, **kwargs}))  # type: ignore[dict-item]
    if not is_iterator(value) and getattr(value, "type", None) not in (list, tuple):
        return None
    since = len(context.before)
    pairs = iterators.exhausted(context, args[0])
    if pairs is None:
        return None
    found = [parts_of(pair) or [] for pair in pairs]
    if all(len(pair) == 2 for pair in found):
        keys = [value_of(pair[0]) for pair in found]
        if all(type(key) in KEYS for key in keys):
            values = (pair[1] for pair in found)
            return Cell(Container(dict, {**dict(zip(keys, values, strict=True)), **kwargs}))
    context.put_back(since)
    return run_rows(context, dict, args, kwargs, "keys differ", keep=True, fresh=False)


KEYS = (str, int, bool, float, bytes, type(None))
"""Types of keys that are the same for all threads where they are one object for all."""


def value_of(cell: Cell) -> Any:
    """The object that all threads share; the cell itself where each has its own."""
    return getattr(read(cell), "obj", cell)


def _iter(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    if len(args) != 1:
        return None
    if isinstance(getattr(read(args[0]), "obj", None), Iterator):
        return args[0]  # one that all threads share stays itself, for ``next``
    return iterators.kept(iterators.iterate(context, args[0]))


def _next(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value = read(args[0])
    if not is_iterator(value):
        return None
    item, more = iterators.advance(context, args[0])
    flag = read(more)
    context.stays = True  # an iterator that has ended, or that others are zipped with, has moved on
    if type(flag) is not Uniform:
        blind = context.services.blind()
        rower = Rower(context, keep=len(args) > 1 and not blind)
        rows, has = rower.rows(item), rower.rows(more)
        if len(args) < 2:
            for row in context.order():
                if not has[row]:
                    context.lose(row, StopIteration())
            return item
        other = rower.rows(args[1])
        given = [r if h else o for r, h, o in zip(rows, has, other, strict=True)]
        return from_rows(context, given, fresh=blind)
    if flag.obj:
        return item
    if len(args) > 1:
        return args[1]
    raise RowsFail(context.lowest(), StopIteration())


def _slice(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    parts = {1: [uniform(None), *args, uniform(None)], 2: [*args, uniform(None)], 3: args}
    return Cell(Container(slice, parts[len(args)]))


HANDLERS: dict[Any, Handler] = {
    len: _len,
    range: _range,
    enumerate: _enumerate,
    zip: _zip,
    reversed: _reversed,
    list: _sequence(list),
    tuple: _sequence(tuple),
    dict: _dict,
    iter: _iter,
    next: _next,
    slice: _slice,
}
