"""Reads of shared tensors by threads that have written to them in the same call.

In: an operation, before it runs, while contributions wait to be applied. Out: the tensors among
its operands, or in what they hold, that its threads have written. To look at a tensor's shape, to
give it another name and to take a part of its memory is not to read it.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from autobatch.batching.calling import resolving
from autobatch.batching.context import Context
from autobatch.batching.contributions import Contributions
from autobatch.batching.foreign import memory_of
from autobatch.batching.unseen import refuse_late
from autobatch.compat import storage_id
from autobatch.ir.ops import INPLACE
from autobatch.ir.program import CallShape, Op
from autobatch.structure import own_attribute
from autobatch.values.cells import (
    PLACE,
    UPDATE,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    read,
)
from autobatch.values.heap import walks

# fmt: off
NAMING = frozenset(
    [
        "const", "copy", "tuple", "list", "dict", "append", "slice", "global", "load_free",
        "free_box", "box", "load_box", "store_box", "clear_box", "function", "is", "is_not",
        "delete", "fork", "defer", "getattr", "setattr", "delattr", "iter", "next", "unpack",
        "to_tuple", "extend", "update", "import", "import_from", "handled",
    ]
)
"""Operations that look at no element of a tensor."""
OF_PARTS = frozenset(["next", "unpack", "to_tuple", "extend", "update"])
"""Those of the above that read an array of one dimension: its parts are numbers, no memory."""
OF_SHAPES = frozenset(
    [
        "size", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous", "len",
        "__len__", "element_size", "storage_offset", "data_ptr", "is_floating_point", "is_complex",
        "get_device", "isinstance", "type", "id", "hasattr", "getattr", "callable",
    ]
)
"""Callees of which the same is true."""
# fmt: on
WITHIN = ("program", "construct", "objects", "transform", "chain", "hooked")
"""Effects of callees whose own operations are looked at."""
MOST_PARTS = 1000


def late_reads(context: Context, op: Op, env: dict[str, Cell]) -> list[Tensor]:
    """The tensors that an operation may read and that its threads have written."""
    if not all(name in env for name in op.args):
        return []
    if op.name in OF_PARTS:
        return written_in(context, [env[name] for name in op.args], arrays=True)
    if op.name in NAMING:
        return []
    return written_in(context, operands_read(context, op, [env[name] for name in op.args]))


def written_in(context: Context, cells: Sequence[Cell], arrays: bool = False) -> list[Tensor]:
    """The shared tensors that cells lead to and that the threads have written.

    ``arrays``: only those whose memory is shown by an array of one dimension, whose parts are
    numbers.
    """
    given = context.contributions
    if given is None or not given.written:
        return []
    whole = [
        tensor
        for cell in walks.reached(cells)
        if type(cell.value) is Uniform and cell.value.shared
        if not arrays or getattr(cell.value.obj, "ndim", 2) == 1
        for tensor in (*tensors_in(cell.value.obj, arrays), *shown_by(given, cell.value.obj))
        if given.has_written(context.threads, [tensor])
    ]
    return whole if arrays else whole + rows_written(context, cells)


def rows_written(context: Context, cells: Sequence[Cell]) -> list[Tensor]:
    """Those of which cells lead to a part of each thread's own: ``x[i]``, or ``x`` in some."""
    given = context.contributions
    if given is None or not given.written:
        return []
    return [
        tensor
        for cell in walks.reached(cells)
        for tensor in given.shown_by(context.threads, outside_of(cell.value, given.written))
    ]


def outside_of(value: Value, written: Collection[int]) -> np.ndarray | int:
    """Which memory from before the call, of some, the rows of a value show: ``Column.outside``."""
    if type(value) is Column:
        return value.outside
    if type(value) is not Objects or value.lists is not None or value.stacks is not None:
        return False
    if not any(isinstance(item, Tensor) for item in value.items):
        return False
    memories = (storage_id(item) if isinstance(item, Tensor) else 0 for item in value.items)
    return np.array([memory if memory in written else 0 for memory in memories])


def operands_read(context: Context, op: Op, cells: list[Cell]) -> Sequence[Cell]:
    if op.name in ("getitem", "setitem") and is_of_names(read(cells[0])):
        return cells[1:2]
    if op.name == "setitem" or op.name in INPLACE:
        return cells[1:]
    if op.name != "call":
        return cells
    shape: CallShape = op.attr
    named = dict(zip(shape.keywords, cells[1 + len(shape.positional) :], strict=False))
    args = cells[1 : 1 + len(shape.positional)]
    target = resolving.resolve(cells[0], args, {k: v for k, v in named.items() if k is not None})
    return called_with(target, cells[0])


def is_of_names(value: Value) -> bool:
    """Whether items are names of what it holds: to take or to set one reads no tensor."""
    if type(value) is Container:
        return value.type in (list, tuple, dict)
    return type(value) is Uniform and (
        type(value.obj) in (list, tuple, dict) or isinstance(value.obj, nn.Module)
    )


def refuse_call(context: Context, target: resolving.Target, callee: Cell) -> None:
    """Refuse a call that ends its block and reads what its threads have written."""
    if context.contributions is None or not context.contributions.written:
        return
    found = written_in(context, called_with(target, callee))
    if found:
        raise refuse_late(context, found)


def called_with(target: resolving.Target, callee: Cell) -> Sequence[Cell]:
    """The operands of a call that it may read."""
    name = own_attribute(target.callee, "__name__", "")
    if target.effect in WITHIN or name in OF_SHAPES:
        return ()
    given = [*target.args, *target.kwargs.values()]
    if target.effect == "write":
        return given[1:]
    out = target.kwargs.get("out")
    if out is not None:
        return [cell for cell in given if cell is not out and not is_one(cell, out)]
    receiver = own_attribute(target.callee, "__self__")
    holder = [callee] if isinstance(target.callee, nn.Module) or is_memory(receiver) else []
    return [*given, *holder]


def is_one(cell: Cell, other: Cell) -> bool:
    return getattr(cell.value, "obj", cell) is getattr(other.value, "obj", other)


def is_memory(obj: Any) -> bool:
    """Whether it shows memory that may be a tensor's too."""
    return isinstance(obj, np.ndarray | np.flatiter | memoryview | bytearray | array)


def shown_by(given: Contributions, obj: Any) -> Iterator[Tensor]:
    """The tensors written to whose memory an array, or a method of one, looks at."""
    obj = obj if is_memory(obj) else own_attribute(obj, "__self__")
    if not is_memory(obj):
        return
    where = memory_of(obj)
    for tensor in {id(note.target.tensor): note.target.tensor for note in given.noted}.values():
        if where and memory_of(tensor) == where:
            yield tensor


def tensors_in(obj: Any, none: bool = False) -> Iterator[Tensor]:
    """The tensors that an object plainly holds; ``none``: none of them is wanted."""
    waiting, seen = [] if none else [obj], 0
    while waiting and seen < MOST_PARTS:
        part = waiting.pop()
        seen += 1
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, nn.Module):
            yield from part.parameters()
            yield from part.buffers()
        elif isinstance(part, list | tuple):
            waiting += part
        elif isinstance(part, dict):
            waiting += part.values()


def shown(context: Context, obj: Any) -> Iterator[Tensor]:
    return iter(()) if context.contributions is None else shown_by(context.contributions, obj)


def only_looks(op: Op, env: dict[str, Cell]) -> bool:
    """Whether an operation may turn out to give a part of the tensor, and has no effect."""
    if op.name == "getitem":
        return True
    return op.name == "call" and resolving.resolve(env[op.args[0]], [], {}).effect == "torch"


def still_read(
    context: Context, found: Sequence[Tensor], op: Op, env: dict[str, Cell]
) -> list[Tensor]:
    """What an operation has read that is done, of what it may have.

    Neither what it gives a part of, nor what it is put off for, but what else that is for.
    """
    outs = [env[out] for out in op.outs if out in env]
    for cell in outs:
        if type(cell.value) is Container and cell.value.type in (PLACE, UPDATE):
            return written_in(context, list(cell.value.children()))
    parts: set[int] = set()
    memories = {*map(storage_id, found)}
    for cell in walks.reached(outs):
        value = cell.value
        if type(value) is Uniform:
            tensors = (*tensors_in(value.obj), *shown(context, value.obj))
            parts.update(map(storage_id, tensors))
        elif type(value) is not Column or all(cell is not out for out in outs):  # else: looked up
            parts |= memories.intersection(np.unique(outside_of(value, memories)).tolist())
    return [tensor for tensor in found if parts != {storage_id(tensor)}]
