"""Subscripts, and the methods of the lists and dicts that a program made.

While all threads agree on the structure, an operation on it is one operation on cells. Where a
thread's own number or key decides, a list of plain numbers is gathered from; anything else turns
the container, and what it holds, into objects.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching import lookup, torch_ops, writes
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.kinds import is_instance, is_tensor, parts_of
from autobatch.batching.operators import fresh, once
from autobatch.batching.rows import run_rows
from autobatch.batching.trees import is_plain
from autobatch.vm.values import (
    NUMBER_DTYPES,
    NUMBER_TAGS,
    Cell,
    Column,
    Container,
    Uniform,
    expand,
    fits_column,
    join_bounds,
    read,
    uniform,
)

NO_KEY = object()


def getitem(context: Context, base: Cell, index: Cell) -> Cell:
    """``x[i]``."""
    value = read(base)
    if type(value) is Container:
        return container_getitem(context, base, value, index)
    if is_tensor(value):
        return lookup.getitem(context, base, index)
    where = read(index)
    if type(value) is Uniform:
        key = static_key(index)
        if key is not NO_KEY:
            return shared_getitem(context, value, key)
        parts = parts_of(base)
        if parts is not None and is_index(where):
            return pick(context, base, parts, index)
    return run_rows(context, operator.getitem, [base, index], {}, "objects", fresh=False)


def shared_getitem(context: Context, value: Uniform, key: Any) -> Cell:
    try:
        return Cell(Uniform(value.obj[key], shared=True))
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error


def container_getitem(context: Context, base: Cell, value: Container, index: Cell) -> Cell:
    if is_instance(value):
        return special(context, "__getitem__", [base, index])
    key = static_key(index)
    if key is not NO_KEY and value.type is not range:
        try:
            if isinstance(key, slice):
                return Cell(Container(value.type if value.type is list else tuple, sequence(value)[key]))
            return sequence(value)[key]  # type: ignore[no-any-return]
        except Exception as error:
            raise RowsFail(context.lowest(), error) from error
    if is_index(read(index)) and isinstance(value.cells, list):
        return pick(context, base, value.cells, index)
    keep = value.type is not range
    return run_rows(context, operator.getitem, [base, index], {}, "objects", keep, fresh=False)


def sequence(value: Container) -> Any:
    """What Python itself can index, so that its errors are its own."""
    return value.cells if value.type in (list, dict) else tuple(value.cells)


def static_key(cell: Cell) -> Any:
    """An index or key that is the same for all threads; ``NO_KEY`` if it is not."""
    value = read(cell)
    if type(value) is Uniform:
        if isinstance(value.obj, Tensor):
            return NO_KEY if value.obj.dim() else int(value.obj)
        return value.obj
    if type(value) is Container and value.type in (slice, tuple):
        parts = [static_key(child) for child in value.children()]
        if NO_KEY not in parts:
            return slice(*parts) if value.type is slice else tuple(parts)
    return NO_KEY


def is_index(value: Any) -> bool:
    """A thread's own integer: a number, or a 0-d tensor of an integer dtype."""
    if type(value) is not Column:
        return False
    if value.tag == "tensor":
        return value.table.dim() == 1 and not value.table.dtype.is_floating_point
    return value.tag in ("int", "bool")


def pick(context: Context, base: Cell, parts: list[Cell], index: Cell) -> Cell:
    """``parts[i]`` with a thread's own ``i``: a gather if the parts are numbers of one type."""
    values = [read(part) for part in parts]
    tags = {tag_of(value) for value in values}
    if len(tags) != 1 or None in tags:
        return run_rows(
            context, operator.getitem, [base, index], {}, "objects", keep=True, fresh=False
        )
    tag = tags.pop()
    columns = [
        value if type(value) is Column else expand(value.obj, context.k, context.device)  # type: ignore[union-attr]
        for value in values
    ]
    where, failed = clamped(read(index).data.to(torch.int64), len(parts))  # type: ignore[union-attr]
    snapshot = [Cell(read(index)), *(Cell(value) for value in values)]
    context.check(failed, lambda row: pick_row(context, base, snapshot, row))
    data = torch.stack([column.data for column in columns]).gather(0, where[None]).squeeze(0)
    bounds = join_bounds(column.bounds for column in columns) if tag == "int" else None
    return Cell(Column(data, tag, bounds))  # type: ignore[arg-type]


def pick_row(context: Context, base: Cell, snapshot: list[Cell], row: int) -> Any:
    index = torch_ops.one_row(context, operator.index, snapshot[:1], row)
    value = read(base)
    kind = value.type if type(value) is Container else type(value.obj)  # type: ignore[union-attr]
    return kind(range(len(snapshot) - 1))[index]


def clamped(index: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """A Python index made non-negative and in range, and where it was out of range."""
    failed = (index < -size) | (index >= size)
    return torch.where(index < 0, index + size, index).clamp(0, size - 1), failed


def tag_of(value: Any) -> str | None:
    if type(value) is Column and value.tag != "tensor":
        return value.tag
    if type(value) is Uniform and fits_column(value.obj):
        return NUMBER_TAGS[type(value.obj)]
    return None


def special(context: Context, method: str, cells: list[Cell]) -> Cell:
    kind = read(cells[0]).type  # type: ignore[union-attr]
    function = getattr(kind, method, None)
    if function is None:
        kinds = {"__getitem__": "subscriptable", "__iter__": "iterable"}
        what = kinds.get(method, f"usable with {method}")
        error = TypeError(f"{kind.__name__!r} object is not {what}")
        raise RowsFail(context.lowest(), error) from error
    return context.invoke(context, function, cells, {})


def setitem(context: Context, base: Cell, index: Cell, item: Cell) -> None:
    """``x[i] = v``."""
    value = read(base)
    if is_tensor(value):
        writes.write(context, operator.setitem, [base, index, item], {})
        return
    if type(value) is Uniform:
        if isinstance(value.obj, list | dict | bytearray) or hasattr(value.obj, "__setitem__"):
            raise writes.shared_write(context, f"a {type(value.obj).__name__}")
        once(context, operator.setitem, value.obj, None, None)
    if type(value) is Container:
        if is_instance(value):
            special(context, "__setitem__", [base, index, item])
            return
        if container_setitem(context, value, index, item):
            return
    writes.refuse_foreign(context, base, "{}")
    run_rows(context, operator.setitem, [base, index, item], {}, "objects", keep=True)


def container_setitem(context: Context, value: Container, index: Cell, item: Cell) -> bool:
    key = static_key(index)
    if key is NO_KEY or value.type not in (list, dict):
        return value.type is list and is_index(read(index)) and put(context, value, index, item)
    content: Any = item
    if isinstance(key, slice):
        parts = parts_of(item)
        if parts is None:
            return False
        content = parts
    try:
        value.cells[key] = content
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error
    return True


def put(context: Context, value: Container, index: Cell, item: Cell) -> bool:
    """``xs[i] = v`` with a thread's own ``i`` on a list of numbers of one type."""
    parts: list[Cell] = value.cells  # type: ignore[assignment]
    tags = {tag_of(read(cell)) for cell in (*parts, item)}
    if len(tags) != 1 or None in tags:
        return False
    tag = tags.pop()
    assert tag is not None
    where, failed = clamped(read(index).data.to(torch.int64), len(parts))  # type: ignore[union-attr]
    size, at = len(parts), Cell(read(index))

    def evaluated(row: int) -> None:
        items = list(range(size))
        items[torch_ops.one_row(context, operator.index, [at], row)] = 0

    context.check(failed, evaluated)
    new = as_column(context, read(item))
    for place, part in enumerate(parts):
        old = as_column(context, read(part))
        data = torch.where((where == place) & ~failed, new.data, old.data)
        bounds = join_bounds([new.bounds, old.bounds]) if tag == "int" else None
        parts[place] = Cell(Column(data.to(NUMBER_DTYPES[tag]), tag, bounds))
    return True


def as_column(context: Context, value: Any) -> Column:
    if type(value) is Column:
        return value
    return expand(value.obj, context.k, context.device)


def delitem(context: Context, base: Cell, index: Cell) -> None:
    """``del x[i]``."""
    value = read(base)
    key = static_key(index)
    if type(value) is Container and value.type in (list, dict) and key is not NO_KEY:
        try:
            del value.cells[key]
        except Exception as error:
            raise RowsFail(context.lowest(), error) from error
        return
    if type(value) is Uniform and not is_plain(value.obj):
        raise writes.shared_write(context, f"a {type(value.obj).__name__}")
    if is_instance(value):
        special(context, "__delitem__", [base, index])
        return
    writes.refuse_foreign(context, base, "{}")
    run_rows(context, operator.delitem, [base, index], {}, "objects", keep=True)


Method = Callable[[Context, Container, list[Cell]], Cell | None]


def _append(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    (item,) = args
    value.cells.append(item)  # type: ignore[union-attr]
    return uniform(None)


def _extend(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    parts = parts_of(args[0])
    if parts is None:
        return None
    value.cells.extend(parts)  # type: ignore[union-attr]
    return uniform(None)


def _pop(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    key = static_key(args[0]) if args else -1
    if key is NO_KEY:
        return None
    return value.cells.pop(key)  # type: ignore[union-attr]


def _insert(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    key = static_key(args[0])
    if key is NO_KEY:
        return None
    value.cells.insert(key, args[1])  # type: ignore[union-attr]
    return uniform(None)


def _reverse(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    value.cells.reverse()  # type: ignore[union-attr]
    return uniform(None)


def _clear(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    value.cells.clear()
    return uniform(None)


def _copy(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    return Cell(Container(value.type, value.cells.copy(), value.static))


def _get(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    key = static_key(args[0])
    if key is NO_KEY:
        return None
    return value.cells.get(key, args[1] if len(args) > 1 else uniform(None))  # type: ignore[union-attr]


def _setdefault(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    key = static_key(args[0])
    if key is NO_KEY:
        return None
    return value.cells.setdefault(key, args[1] if len(args) > 1 else uniform(None))  # type: ignore[union-attr]


def _dict_pop(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    key = static_key(args[0])
    if key is NO_KEY:
        return None
    if len(args) > 1:
        return value.cells.pop(key, args[1])  # type: ignore[union-attr, call-overload]
    return value.cells.pop(key)  # type: ignore[union-attr]


def _keys(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    return Cell(Container(tuple, [fresh(key) for key in value.cells]))


def _values(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    return Cell(Container(tuple, list(value.children())))


def _items(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    pairs = [
        Cell(Container(tuple, [fresh(key), cell]))
        for key, cell in value.cells.items()  # type: ignore[union-attr]
    ]
    return Cell(Container(tuple, pairs))


def _update(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    other = read(args[0])
    if type(other) is not Container or other.type is not dict:
        return None
    value.cells.update(other.cells)  # type: ignore[union-attr, arg-type]
    return uniform(None)


METHODS: dict[Any, Method] = {
    list.append: _append,
    list.extend: _extend,
    list.pop: _pop,
    list.insert: _insert,
    list.reverse: _reverse,
    list.clear: _clear,
    list.copy: _copy,
    dict.get: _get,
    dict.setdefault: _setdefault,
    dict.pop: _dict_pop,
    dict.keys: _keys,
    dict.values: _values,
    dict.items: _items,
    dict.update: _update,
    dict.clear: _clear,
    dict.copy: _copy,
}


def method(context: Context, function: Any, receiver: Cell, args: list[Cell]) -> Cell | None:
    """A list or dict method on a program-made container; None if it has to run by thread."""
    value = read(receiver)
    rule = METHODS.get(function)
    if type(value) is not Container or rule is None or value.type is not function.__objclass__:
        return None
    try:
        return rule(context, value, args)
    except RowsFail:
        raise
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error

