"""Subscripts: ``x[i]``, ``x[i] = v``, ``del x[i]``.

While all threads agree on the structure, an operation on it is one operation on cells. Where a
thread's own number or key decides, a list of plain numbers is gathered from; anything else turns
the container, and what it holds, into objects.
"""

from __future__ import annotations

import operator
from array import array
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from torch import Tensor

from autobatch.batching import lists, writes
from autobatch.batching.calling import stateless
from autobatch.batching.containers.indices import as_ints
from autobatch.batching.containers.picking import pick, put
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.host.own_methods import ATOMS, Unknown, asks, each_thread
from autobatch.batching.host.rower import Rower
from autobatch.batching.host.rows import run_rows, write_rows
from autobatch.batching.kinds import (
    is_index,
    is_instance,
    is_tensor,
    own_method,
    parts_of,
    user_class,
)
from autobatch.batching.objects import namespaces
from autobatch.batching.operators import once
from autobatch.batching.protocols import special_method
from autobatch.batching.tables import masks, packed
from autobatch.batching.tensors import lookup, torch_ops, windows
from autobatch.batching.tensors.aliases import by_thread
from autobatch.batching.trees import is_plain
from autobatch.encoding import Parts
from autobatch.errors import AutobatchError
from autobatch.values import packs
from autobatch.values.cells import (
    Cell,
    Column,
    Container,
    Mark,
    Objects,
    Uniform,
    Value,
    View,
    read,
)
from autobatch.values.packs import is_packed

NO_KEY = object()
LONGEST = 256
"""Items of a slice that each get a cell, so that it may be written: of more that takes too long."""
MAKES_ENTRY = "a defaultdict (reading a missing entry makes it)"


def getitem(context: Context, base: Cell, index: Cell) -> Cell:
    """``x[i]``."""
    value = namespaces.opened(read(base))
    index = as_ints(context, value, index)
    if type(value) is Container:
        return container_getitem(context, base, value, index)
    if is_tensor(value):
        picked = masks.picked(context, base, index)
        return lookup.getitem(context, base, index) if picked is None else picked
    if type(value) is Objects and value.lists is not None:
        done = lists.getitem(context, value.lists, index)
        if done is not None:
            return done
    if type(value) is Objects and value.stacks is not None:
        return torch_ops.apply(context, operator.getitem, [base, index], {}, False)
    if own_method(value, "__getitem__"):
        return special(context, "__getitem__", [base, index])
    where = read(index)
    if type(value) is Uniform and type(value.obj) is Parts:
        return part(context, value.obj, index)
    if type(value) is Uniform:
        key = key_in(value, index)
        if key is not NO_KEY:
            return shared_getitem(context, value, key)
        parts = parts_of(base)
        if parts is not None and is_index(where):
            return pick(context, base, parts, index)
    table = getattr(value, "obj", None)
    keys = Rower(context).rows(index) if isinstance(table, defaultdict) else ()
    if any(makes_entry(table, key) for key in keys):
        raise writes.shared_write(context, MAKES_ENTRY)
    if type(base.value) is View and type(value) is Objects:
        return by_thread(context, operator.getitem, [base, index], {}, "objects")
    return run_rows(context, operator.getitem, [base, index], {}, "objects", fresh=False)


def part(context: Context, parts: Parts, index: Cell) -> Cell:
    """A node's part of a table: two numbers of each thread's own, no row is copied."""
    bounds = lookup.getitem(context, Cell(Uniform(parts.bounds, shared=True)), index)
    found = read(bounds)
    if type(found) is Column and found.table.dim() == 2:
        begins, ends = found.data.unbind(1)
        return Cell(packs.pack(parts.table, begins, ends - begins, parts.longest))
    if type(found) is Uniform:
        begin, end = found.obj.tolist()
        return Cell(Uniform(parts.table[begin:end].clone()))
    return run_rows(context, parts.__getitem__, [index], {}, "objects", fresh=False)


def makes_entry(table: Any, key: Any) -> bool:
    """Whether reading an item writes it, as a defaultdict does with a missing one."""
    made = isinstance(table, defaultdict) and table.default_factory is not None
    return made and key not in table


def shared_getitem(context: Context, value: Uniform, key: Any) -> Cell:
    if asks(context, operator.getitem, (value.obj, key)):
        return each_thread(context, operator.getitem, (value.obj, key))
    try:
        if makes_entry(value.obj, key):
            raise writes.shared_write(context, MAKES_ENTRY)
        found = value.obj[key]
    except AutobatchError:
        raise
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error
    return new_of(context, value.obj, found) if isinstance(key, slice) else shared_item(found)


def shared_item(found: Any) -> Cell:
    return Cell(Uniform(found, shared=True))


def new_of(context: Context, base: Any, found: Any) -> Cell:
    """A slice of what existed before: a list is the program's own, what is in it is not."""
    if isinstance(base, list) and len(found) <= LONGEST:
        return Cell(Container(list, list(map(shared_item, found))))
    if isinstance(base, bytearray | array):
        return Cell(Objects([found[:] for _ in range(context.k)]))
    return shared_item(found)


def container_getitem(context: Context, base: Cell, value: Container, index: Cell) -> Cell:
    if is_instance(value):
        return special(context, "__getitem__", [base, index])
    if is_packed(value):
        return packed_getitem(context, base, value, index)
    key, parts = key_in(value, index), stateless.in_order(value)
    is_container = value.type not in (range, slice) and not isinstance(value.type, Mark)
    if key is not NO_KEY and (is_container or parts is not None):
        if type(key) not in ATOMS and asks(context, operator.getitem, (key,)):
            return context.invoke(context, Unknown(operator.getitem), [base, index], {})
        try:
            if parts is not None:
                return stateless.item(value, parts, key)
            if isinstance(key, slice):
                items = list(sequence(value)[key])
                return Cell(Container(value.type if value.type is list else tuple, items))
            return sequence(value)[key]  # type: ignore[no-any-return]
        except Exception as error:
            raise RowsFail(context.lowest(), error) from error
    if is_container and is_index(read(index)) and isinstance(value.cells, list):
        found = lists.opened(context, base)
        done = None if found is None else lists.getitem(context, found, index)
        if done is not None:
            return done
        if found is not None:
            return getitem(context, base, index)
        return pick(context, base, value.cells, index)
    keep = value.type is not range
    return run_rows(context, operator.getitem, [base, index], {}, "objects", keep, fresh=False)


def packed_getitem(context: Context, base: Cell, value: Container, index: Cell) -> Cell:
    done = packed.getitem(context, base, value, index)
    if done is not None:
        return done
    meaning = operator.getitem
    return packed.lent(
        context, [base, index], lambda: torch_ops.apply(context, meaning, [base, index], {}, False)
    )


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


def entry_key(cell: Cell) -> Any:
    """The same of a dict, where a tensor is no number: it is the key that it is."""
    return NO_KEY if holds_tensor(cell) else static_key(cell)


def holds_tensor(cell: Cell) -> bool:
    value = read(cell)
    if type(value) is Container and value.type is tuple:
        return any(map(holds_tensor, value.children()))
    return type(value) is Uniform and isinstance(value.obj, Tensor)


def key_in(value: Any, cell: Cell) -> Any:
    """An index or key of what is indexed, where it is the same for all threads; or ``NO_KEY``."""
    kind = value.type if type(value) is Container else type(getattr(value, "obj", None))
    is_dict = isinstance(kind, type) and issubclass(kind, dict)
    return entry_key(cell) if is_dict else static_key(cell)


SAYS: dict[str, Callable[..., Any]] = {
    "__getitem__": operator.getitem,
    "__iter__": iter,
    "__setitem__": operator.setitem,
    "__delitem__": operator.delitem,
}
"""What says, of an object without a method, that it has none."""


def special(context: Context, method: str, cells: list[Cell]) -> Cell:
    function = special_method(user_class(read(cells[0])), method)
    if function is None:
        return run_rows(context, SAYS[method], cells, {}, "objects", keep=True)
    return context.invoke(context, function, cells, {})


def setitem(context: Context, base: Cell, index: Cell, item: Cell) -> None:
    """``x[i] = v``."""
    value = namespaces.opened(read(base))
    index = as_ints(context, value, index)
    if is_tensor(value):
        if masks.put(context, base, index, item):
            return
        spread = windows.spread(context, lookup.shape_of(value), index)
        window = index if spread is not index else None
        writes.write(context, operator.setitem, [base, spread, item], {}, window)
        return
    if type(value) is Uniform:
        if is_there(value.obj, read(index), read(item)):
            return
        if isinstance(value.obj, list | dict | bytearray) or hasattr(value.obj, "__setitem__"):
            raise writes.shared_write(context, f"a {type(value.obj).__name__}")
        once(context, operator.setitem, value.obj, None, None)
    if type(value) is Container:
        if is_instance(value):
            special(context, "__setitem__", [base, index, item])
            return
        if is_index(read(index)) and lists.opened(context, base) is not None:
            setitem(context, base, index, item)
            return
        if container_setitem(context, value, index, item):
            return
    found = lists.held(value)
    if found is not None and lists.setitem(context, found, index, item):
        return
    writes.refuse_foreign(context, base, "{}")
    write_rows(context, operator.setitem, base, index, item)


def is_there(obj: Any, index: Value, item: Value) -> bool:
    """Whether a tensor is that item of a list or dict already, as in ``xs[i] += v``."""
    if type(obj) not in (list, dict) or type(index) is not Uniform or type(item) is not Uniform:
        return False
    try:
        return isinstance(item.obj, Tensor) and obj[index.obj] is item.obj
    except (LookupError, TypeError):
        return False


def container_setitem(context: Context, value: Container, index: Cell, item: Cell) -> bool:
    key = key_in(value, index)
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


def delitem(context: Context, base: Cell, index: Cell) -> None:
    """``del x[i]``."""
    value = namespaces.opened(read(base))
    key = key_in(value, index)
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
    write_rows(context, operator.delitem, base, index)
