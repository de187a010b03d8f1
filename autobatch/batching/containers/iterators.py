"""Iteration: iterators as containers of cells, so that they split and merge like everything else.

``for i in range(n)`` with a thread's own ``n`` and ``for x in xs`` over what all threads share the
structure of advance all threads by one operation; objects have a Python iterator per thread.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from autobatch.batching import guards, lists, semantics
from autobatch.batching.calling import stateless
from autobatch.batching.containers import entries, subscripts, zipped
from autobatch.batching.containers.in_step import (
    FARTHEST,
    advance_plain,
    over,
    over_range,
    over_shared,
    plain_range,
)
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.generators import is_generator
from autobatch.batching.host.from_rows import from_rows
from autobatch.batching.host.getters import note_class, note_reached
from autobatch.batching.host.own_methods import asks, each_thread
from autobatch.batching.host.rower import Rower, own_memory
from autobatch.batching.host.rows import RowDraws, run_rows
from autobatch.batching.kinds import (
    NO_FUNCTION,
    found_in_class,
    is_instance,
    is_number_column,
    is_tensor,
    parts_of,
)
from autobatch.batching.objects import namespaces
from autobatch.batching.operators import binary
from autobatch.batching.protocols import special_method
from autobatch.batching.tables import packed
from autobatch.batching.tensors.views import as_unbound
from autobatch.batching.truths import both, truth
from autobatch.ir.program import UnpackShape
from autobatch.structure import own_attribute
from autobatch.values import packs
from autobatch.values.cells import (
    DICT_ITERATOR,
    DICT_VIEW,
    DOWN_ITERATOR,
    ENUMERATE_ITERATOR,
    EXHAUSTED,
    PACKED,
    RANGE_ITERATOR,
    SEQUENCE_ITERATOR,
    ZIP_ITERATOR,
    Cell,
    Column,
    Container,
    Mark,
    Objects,
    Uniform,
    Value,
    as_column,
    is_iterator,
    read,
    uniform,
)
from autobatch.values.lists import Lists

_END = object()
KEPT = "kept"
"""Of an iterator over a sequence: the program has a name for it."""


def iterate(context: Context, cell: Cell) -> Cell:
    """``iter(x)``, to take all that it gives."""
    value = namespaces.opened(read(cell))
    if is_tensor(value):
        if not event_shape(value):
            error = TypeError("iteration over a 0-d tensor")
            raise RowsFail(context.lowest(), error)
        return over(cell)
    match value:
        case Container() if is_iterator(value):
            return cell
        case Container(type=kind) if kind is PACKED:
            return over(cell)
        case Container(type=kind, cells=cells) if kind is range:
            return Cell(Container(RANGE_ITERATOR, list(cells)))
        case Container(type=kind) if kind in (dict, DICT_VIEW):
            found = entries.iterate(cell, value)
            if found is not None:
                return found
        case Container(type=kind) if kind is list or (
            isinstance(kind, type) and issubclass(kind, tuple)
        ):
            return over(cell)
        case Container(type=kind) if is_instance(value):
            note_class(context.foreign, kind)
            method = special_method(kind, "__iter__")
            code = own_attribute(method, "__code__")
            if code is not None and not code.co_flags & NO_FUNCTION:
                return subscripts.special(context, "__iter__", [cell])
            refuse_writer(context, kind)
            return run_rows(context, iter, [cell], {}, "objects", keep=True, fresh=False)
        case Container() if (parts := stateless.in_order(value)) is not None:
            return over(Cell(Container(tuple, parts)))
        case Uniform(obj=obj):
            return uniform_iterator(context, cell, obj)
        case Objects(lists=found) if found is not None:
            return over(cell)
        case Objects(items=items):
            for kind in set(map(type, items)):
                refuse_writer(context, kind)
    guards.refuse_iterator(context, cell)
    return run_rows(context, iter, [cell], {}, "objects", fresh=False)


def refuse_writer(context: Context, kind: type) -> None:
    """Refuse a class's own generator that can be seen to write what others see.

    It goes on item by item, so that the writes of threads would come between each other.
    """
    method, handing = found_in_class(kind, "__iter__"), context.services.handing
    if is_generator(method) and handing is not None:
        handing.refuse(method)


def kept(iterator: Cell) -> Cell:
    """An iterator that the program has a name for, and may ask again when it has ended."""
    value = iterator.value
    if type(value) is Container and value.type is SEQUENCE_ITERATOR and value.static is None:
        iterator.value = Container(SEQUENCE_ITERATOR, [*value.cells], KEPT)
    return iterator


def moved_on(context: Context, value: Container, more: Cell) -> None:
    """Let an iterator be at the next position, or past all of them for good."""
    cells: list[Cell] = value.cells  # type: ignore[assignment]
    step = -1 if value.type is DOWN_ITERATOR else 1
    ends = read(more)
    asked_again = value.static == KEPT or value.type is not SEQUENCE_ITERATOR
    if asked_again and type(ends) is Uniform and not ends.obj:
        cells[0] = uniform(EXHAUSTED)
        return
    following = read(binary(context, "add", cells[0], uniform(step)))
    if asked_again and type(ends) is Column:
        at = following.data if type(following) is Column else following.obj  # type: ignore[union-attr]
        places = torch.where(ends.data, at, EXHAUSTED)
        following = Column(places, "int", (-1, EXHAUSTED))
    cells[0] = Cell(following)


def uniform_iterator(context: Context, cell: Cell, obj: Any) -> Cell:
    if isinstance(obj, range):
        return over_range(obj)
    guards.refuse_iterator(context, cell)
    if asks(context, len, (obj,)):
        return each_thread(context, iter, (obj,))
    try:
        items = tuple(obj)
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error
    return over_shared(items)


def event_shape(value: Any) -> torch.Size:
    return value.event_shape if type(value) is Column else value.obj.shape


def advance(context: Context, iterator: Cell, among: Cell | None = None) -> tuple[Cell, Cell]:
    """``next``: the item and whether there was one; advances the iterator.

    For the threads that are ``among`` those which take an item; the iterators of others stay.
    """
    value = read(iterator)
    if type(value) is Container:
        rule: Any = {
            RANGE_ITERATOR: _next_range,
            SEQUENCE_ITERATOR: _next_sequence,
            ENUMERATE_ITERATOR: _next_enumerate,
            DICT_ITERATOR: entries.advance,
            DOWN_ITERATOR: _next_down,
        }.get(value.type)
        if value.type is ZIP_ITERATOR:
            return _next_zip(context, value, among)
        if rule is not None:
            cells: list[Cell] = value.cells  # type: ignore[assignment]
            before = cells[0]
            is_counted = rule is _next_enumerate
            found = rule(context, value, among) if is_counted else rule(context, value)
            if among is not None and zipped.stays(among):
                cells[0] = zipped.chosen(context, among, cells[0], before)
            return found  # type: ignore[no-any-return]
    return _next_rows(context, iterator, among)


def _next_range(context: Context, value: Container) -> tuple[Cell, Cell]:
    cells: list[Cell] = value.cells  # type: ignore[assignment]
    if plain_range(Cell(value)) is not None:
        context.counter.launch(type(cells[1].value) is Column)
        return advance_plain(cells)
    now, stop, step = cells
    ahead = read(step)
    if type(ahead) is Uniform:
        more = binary(context, "lt" if ahead.obj > 0 else "gt", now, stop)
    else:
        up, down = (read(binary(context, name, now, stop)) for name in ("lt", "gt"))
        positive = ahead.data > 0  # type: ignore[union-attr]
        more = Cell(Column(torch.where(positive, as_bools(up), as_bools(down)), "bool"))
    if read(more) is not None and getattr(read(more), "obj", True):
        cells[0] = binary(context, "add", now, step)
    return now, more


def as_bools(value: Any) -> Tensor:
    return value.data if type(value) is Column else torch.tensor(value.obj)


def _next_sequence(context: Context, value: Container) -> tuple[Cell, Cell]:
    cells: list[Cell] = value.cells  # type: ignore[assignment]
    position, source = cells
    pack = read(source)
    if packs.is_packed(pack):
        cells[0] = binary(context, "add", position, uniform(1))
        more = binary(context, "lt", position, packs.length(pack))
        return packed.row_of(source, position, packed.LOOP_ROW), more
    found = lists.held(pack)
    if found is not None:
        item, more = lists.step(context, found, position)
        moved_on(context, value, more)
        return item, more
    size = length(source)
    if size is None:
        return _next_position(context, value)
    return item_at(context, value, size, binary(context, "lt", position, uniform(size)))


def _next_down(context: Context, value: Container) -> tuple[Cell, Cell]:
    """``next`` of ``reversed(xs)``, which sees what has become of the list since."""
    cells: list[Cell] = value.cells  # type: ignore[assignment]
    position, source = cells
    found = lists.held(read(source))
    if found is not None:
        item, more = lists.step_down(context, found, position)
        moved_on(context, value, more)
        return item, more
    size = length(source)
    if size is None:
        return _next_position(context, value, -1)
    inside = binary(context, "lt", position, uniform(size))
    more = both(binary(context, "ge", position, uniform(0)), truth(context, inside))
    return item_at(context, value, size, more)


def taken_down(context: Context, value: Container) -> Lists | None:
    """All that is left of ``reversed(xs)``; None where the lists are in no table."""
    cells: list[Cell] = value.cells  # type: ignore[assignment]
    position, found = (
        as_column(read(cells[0]), context.k, context.device),
        lists.held(read(cells[1])),
    )
    if found is None or position is None or context.forecasts is not None:
        return None
    cells[0] = uniform(EXHAUSTED)
    return lists.down_from(context, found, position.data)


def item_at(context: Context, value: Container, size: int, more: Cell) -> tuple[Cell, Cell]:
    """``next`` of an iterator over ``size`` items, for the threads that have ``more``."""
    cells: list[Cell] = value.cells  # type: ignore[assignment]
    position, source = cells
    now = read(position)
    if size == 0 or getattr(read(more), "obj", True) is False:
        cells[0] = uniform(EXHAUSTED)
        return uniform(None), more if size else uniform(False)
    index = position
    if type(now) is Column:
        index = Cell(Column(now.data.clamp(0, size - 1), "int", (0, size - 1)))
    moved_on(context, value, more)
    item = subscripts.getitem(context, source, index)
    return (as_unbound(item) if is_tensor(read(source)) else item), more


def _next_position(context: Context, value: Container, step: int = 1) -> tuple[Cell, Cell]:
    """A list that has become objects while it was iterated over."""
    cells: list[Cell] = value.cells  # type: ignore[assignment]
    own_memory(context, cells[1:])
    rower = Rower(context)
    positions, sources = rower.rows(cells[0]), rower.rows(cells[1])
    pairs = list(zip(positions, sources, strict=True))
    more = [0 <= position < len(source) for position, source in pairs]
    items = [source[position] for (position, source), m in zip(pairs, more, strict=True) if m]
    cells[0] = from_rows(
        context, [p + step if m else EXHAUSTED for p, m in zip(positions, more, strict=True)]
    )
    return spread(context, items, more), from_rows(context, more)


def length(source: Cell) -> int | None:
    value = read(source)
    if type(value) is Objects or packs.is_packed(value):
        return None
    if type(value) is Container:
        return len(value.cells)
    if is_tensor(value):
        return int(event_shape(value)[0])
    return len(value.obj)  # type: ignore[union-attr]


def _next_enumerate(context: Context, value: Container, among: Cell | None) -> tuple[Cell, Cell]:
    cells: list[Cell] = value.cells  # type: ignore[assignment]
    count, inner = cells
    following = binary(context, "add", count, uniform(1))  # nothing has changed where that escapes
    item, more = advance(context, inner, among)
    cells[0] = following
    return Cell(Container(tuple, [count, item])), more


def _next_zip(context: Context, value: Container, among: Cell | None) -> tuple[Cell, Cell]:
    items: list[Cell] = []
    if not context.before and any(map(may_escape, value.children())):
        context.about_to_change(Cell(value))
    more = both(uniform(bool(value.cells)), uniform(True) if among is None else among)
    for place, inner in enumerate(value.children()):
        apart = among is not None or place in value.static
        item, has = advance(context, inner, more if apart else None)
        items.append(item)
        more = both(more, truth(context, has))
        if getattr(read(more), "obj", True) is False:
            break
    return Cell(Container(tuple, items)), more


def may_escape(iterator: Cell) -> bool:
    """Whether the place of an iterator may leave its type, as far as is known of it."""
    value = read(iterator)
    if not is_iterator(value):
        return False
    where: Any = read(value.cells[0]) if value.cells else None  # type: ignore[union-attr]
    if type(where) is Column and (where.bounds is None or max(map(abs, where.bounds)) > FARTHEST):
        return True
    if value.type not in (ENUMERATE_ITERATOR, ZIP_ITERATOR):  # type: ignore[union-attr]
        return False
    return any(map(may_escape, value.children()))  # type: ignore[union-attr]


def _next_rows(context: Context, iterator: Cell, among: Cell | None) -> tuple[Cell, Cell]:
    takes = zipped.flags(context, among)
    iterators = Rower(context, keep=True).rows(iterator)
    note_reached(context.foreign, next, iterators)
    items: list[Any] = []
    more: list[bool] = []
    results: dict[int, Any] = {}
    rows = range(context.k)
    with RowDraws.of(context) as draws:
        take = draws.by_row(lambda row: next(iterators[row], _END))
        for row in context.order():
            try:
                results[row] = take(row) if takes[row] else _END
            except Exception as error:
                if context.lost is None:
                    taken = [results.get(row, _END) for row in rows]
                    iterator.value = Objects(list(map(put_back, iterators, taken)))
                context.lose(row, error)
                results[row] = _END
    for row in rows:
        more.append(results[row] is not _END)
        if more[-1]:
            items.append(results[row])
    return spread(context, items, more), from_rows(context, more)


def put_back(iterator: Any, item: Any) -> Any:
    """An iterator from which an item has been taken that nobody has got, since a thread failed."""
    return iterator if item is _END else itertools.chain((item,), iterator)


def spread(context: Context, items: list[Any], more: list[bool]) -> Cell:
    """A row for each thread; those that have no item get one that nobody looks at."""
    if not items:
        return uniform(None)
    remaining = iter(items)
    return from_rows(context, [next(remaining) if m else items[0] for m in more], fresh=False)


def may_iterate(items: Value) -> bool:
    """Whether ``iter(x)`` may be asked for; what is raised for numbers depends on who asks."""
    if type(items) is Uniform:
        return hasattr(type(items.obj), "__iter__") or hasattr(type(items.obj), "__getitem__")
    return not is_number_column(items)


def exhausted(context: Context, iterable: Cell) -> list[Cell] | None:
    """The items of an iterable of which all threads have equally many, else None.

    An iterator is at its end then; who goes on another way puts it back (``Context.put_back``).
    """
    guards.refuse_iterator(context, iterable)
    parts = parts_of(iterable)
    if parts is not None:
        return parts
    value = read(iterable)
    found = entries.parts(value)
    if found is not None:
        return found
    if type(value) is Objects or (type(value) is Container and value.type in (range, PACKED)):
        return None
    if type(value) is Container and not in_lockstep(value):
        return None
    if is_instance(value):
        return None
    if type(value) is Uniform and asks(context, len, (value.obj,)):
        return None
    iterator = iterate(context, iterable)
    if type(read(iterator)) is Objects:
        return None
    context.about_to_change(iterator)
    items: list[Cell] = []
    while True:
        item, more = advance(context, iterator)
        flag = read(more)
        assert type(flag) is Uniform
        if not flag.obj:
            return items
        items.append(item)


def in_lockstep(value: Container) -> bool:
    """Whether an iterator ends for all threads at once."""
    if value.type is RANGE_ITERATOR:
        return all(type(read(cell)) is Uniform for cell in value.children())
    if value.type is SEQUENCE_ITERATOR:
        position, source = value.cells
        return type(read(position)) is Uniform and length(source) is not None
    if value.type in (DICT_ITERATOR, DOWN_ITERATOR):
        position, source, *_ = value.cells
        return type(read(position)) is Uniform and type(read(source)) is Container
    if value.type is DICT_VIEW:
        return False
    if value.type in (ENUMERATE_ITERATOR, ZIP_ITERATOR):
        inner = [cell for cell in value.children() if type(read(cell)) is not Uniform]
        return all(
            type(v) is Container
            and not is_instance(v)
            and (not isinstance(v.type, Mark) or in_lockstep(v))
            for v in map(read, inner)
        )
    return True


def unpack(context: Context, shape: UnpackShape, cell: Cell) -> tuple[Cell, ...]:
    """``a, *b, c = x``."""
    packed.unpack(context, [cell])
    value = read(cell)
    if type(value) is Uniform and not isinstance(value.obj, Tensor):
        guards.refuse_iterator(context, cell)
        return unpacked_shared(context, shape, value.obj)
    if is_tensor(value) and not event_shape(value):
        error = TypeError("iteration over a 0-d tensor")
        raise RowsFail(context.lowest(), error) from error
    since = len(context.before)
    items = None if is_number_column(value) else exhausted(context, cell)
    if items is None:
        return unpacked_once(context, shape, cell)
    try:
        parts = semantics.unpack(shape, items)
    except Exception as error:
        if is_iterator(value):  # who has too many to give keeps those that nobody has asked for
            context.put_back(since)
            return unpacked_once(context, shape, cell)
        raise RowsFail(context.lowest(), error) from error
    return tuple(Cell(Container(list, p)) if isinstance(p, list) else p for p in parts)


def unpacked_once(context: Context, shape: UnpackShape, cell: Cell) -> tuple[Cell, ...]:
    """Each thread's own object; of an iterator no item is taken twice, whoever fails."""

    def meaning(obj: Any) -> Any:
        return semantics.unpack(shape, obj)

    try:
        rows = run_rows(context, meaning, [cell], {}, "objects", fresh=False, once=True)
    except RowsFail as failure:
        if failure.partial is not None:
            failure.parts = unpacked_rows(context, shape, failure.partial)
        raise
    return unpacked_rows(context, shape, rows)


def unpacked_shared(context: Context, shape: UnpackShape, obj: Any) -> tuple[Cell, ...]:
    if asks(context, len, (obj,)):
        unpacked = each_thread(context, lambda x: semantics.unpack(shape, x), (obj,))
        return unpacked_rows(context, shape, unpacked)
    try:
        items = semantics.unpack(shape, obj)
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error
    parts = [Cell(Uniform(item, shared=True)) for item in items]
    if shape.starred:
        rest = [Cell(Uniform(item, shared=True)) for item in items[shape.before]]
        parts[shape.before] = Cell(Container(list, rest))
    return tuple(parts)


def unpacked_rows(context: Context, shape: UnpackShape, rows: Cell) -> tuple[Cell, ...]:
    value = read(rows)
    if type(value) is Container:
        return tuple(value.children())
    if type(value) is Objects:
        return tuple(
            from_rows(context, list(part), fresh=False) for part in zip(*value.items, strict=True)
        )
    count = shape.before + shape.starred + shape.after
    return tuple(Cell(Objects([])) for _ in range(count))
