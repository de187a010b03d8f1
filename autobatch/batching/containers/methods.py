"""The methods of lists and dicts that a program made, where all threads agree on the structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autobatch.batching import lists
from autobatch.batching.containers import entries
from autobatch.batching.containers.subscripts import NO_KEY, entry_key, static_key
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.kinds import named_cells, parts_of
from autobatch.batching.objects import namespaces
from autobatch.values.cells import Cell, Container, Objects, read, uniform

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
    return value.cells.pop(key)


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
    key = entry_key(args[0])
    if key is NO_KEY:
        return None
    return value.cells.get(key, args[1] if len(args) > 1 else uniform(None))  # type: ignore[union-attr]


def _setdefault(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    key = entry_key(args[0])
    if key is NO_KEY:
        return None
    return value.cells.setdefault(key, args[1] if len(args) > 1 else uniform(None))  # type: ignore[union-attr]


def _dict_pop(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    key = entry_key(args[0])
    if key is NO_KEY:
        return None
    if len(args) > 1:
        return named_cells(value).pop(key, args[1])
    return named_cells(value).pop(key)


def _update(context: Context, value: Container, args: list[Cell]) -> Cell | None:
    other = namespaces.opened(read(args[0]))
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
    dict.update: _update,
    dict.clear: _clear,
    dict.copy: _copy,
}


def method(context: Context, function: Any, receiver: Cell, args: list[Cell]) -> Cell | None:
    """A list or dict method on a program-made container; None if it has to run by thread."""
    value = namespaces.opened(read(receiver))
    if type(value) is Objects and value.lists is not None:
        return lists.method(context, function, value.lists, args)
    what = entries.VIEWS.get(function)
    if what is not None and type(value) is Container and value.type is dict and not args:
        return entries.view(receiver, what)
    rule = METHODS.get(function)
    if type(value) is not Container or rule is None or value.type is not function.__objclass__:
        return None
    try:
        return rule(context, value, args)
    except RowsFail:
        raise
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error
