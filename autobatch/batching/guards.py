"""Calls outside the program that write to, or use up, what existed before it.

In: a callee that is no program function, and the cells of its arguments. ``refuse_writes`` raises
for a call that would change something that all threads share, before it runs. What a call writes
is known by name: the methods of the builtin containers, of numpy arrays and of ``nn.Module`` that
change their receiver, functions that change their first argument, and ``out=``.
"""

from __future__ import annotations

import array
import bisect
import functools
import hashlib
import heapq
import hmac
import operator
import random
import types
import zlib
from collections import deque
from collections.abc import Iterator, MutableMapping, MutableSequence, MutableSet, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from autobatch.batching import known_arrays, writes
from autobatch.batching.context import Context
from autobatch.batching.effects import (
    GENERATORS,
    MUTATING_METHODS,
    OF_MODULES,
    READ_ONLY,
    REMAKING,
    WRITING_OPERATORS,
    is_inplace_name,
)
from autobatch.batching.host.getters import method_called
from autobatch.batching.kinds import is_tensor
from autobatch.errors import Diagnostic, SharedWriteError
from autobatch.structure import own_attribute
from autobatch.values.cells import METHOD, Cell, Column, Container, Objects, Uniform, read, uniform

# fmt: off
SPECIAL = frozenset({f"__{name}__" for name in WRITING_OPERATORS})
"""Special methods of containers and arrays that write their receiver."""
OF_ATTRIBUTES = frozenset({"__setattr__", "__delattr__", "__setstate__"})
OF_ARRAYS = frozenset(
    ["fill", "sort", "partition", "put", "itemset", "resize", "setfield", "setflags"]
) | SPECIAL
OF_OPTIMIZERS = frozenset(["step", "zero_grad", "add_param_group", "load_state_dict"])
# fmt: on
CONTAINERS = (list, dict, set, deque, bytearray, array.array)
HOLDING = (MutableMapping, MutableSequence, MutableSet)
"""Python's own classes of containers, and those that are like them: ``os.environ``."""
GOING_ON = (
    *(type(hashlib.md5()), type(hashlib.blake2b()), type(hashlib.blake2s()), hmac.HMAC),
    *(type(zlib.compressobj()), type(zlib.decompressobj())),
)
"""Classes of what goes on from call to call: the state of a hash, of a compressor."""
SEEDED = (random.Random, torch.Generator, np.random.BitGenerator, *GENERATORS)
"""Classes of what is drawn from, which some methods set back or ahead: by draws it just goes on."""
WRITING_METHODS: tuple[tuple[Any, frozenset[str]], ...] = (
    (CONTAINERS, MUTATING_METHODS | SPECIAL | {"subtract", "move_to_end", "__init__"}),
    (HOLDING, MUTATING_METHODS | SPECIAL),
    (GOING_ON, frozenset({"update", "compress", "decompress", "flush"})),
    (np.ndarray, OF_ARRAYS),
    (nn.Module, OF_MODULES),
    (torch.optim.Optimizer, OF_OPTIMIZERS),
    (SEEDED, frozenset({"seed", "setstate", "set_state", "manual_seed", "advance", "spawn"})),
    (functools._lru_cache_wrapper, frozenset({"cache_info"})),
    (memoryview, frozenset({"release"})),
    (BaseException, frozenset({"add_note", "with_traceback"})),
    (object, OF_ATTRIBUTES),
)
WRITE_FIRST: tuple[Any, ...] = (
    *(heapq.heappush, heapq.heappop, heapq.heapify, heapq.heapreplace, heapq.heappushpop),
    *(bisect.insort_left, bisect.insort_right, random.shuffle, np.random.shuffle),
    *(np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal),
)
"""Functions that write their first argument."""
USES_UP = frozenset({next, iter, hasattr, getattr, len, *READ_ONLY})
"""Callees that take at most one item from an iterator."""


def refuse_writes(context: Context, callee: Any, args: list[Cell], kwargs: dict[str, Cell]) -> None:
    """Refuse a call on the host that writes to what existed before the program's call."""
    if is_one_of(callee, READ_ONLY):
        return
    for cell in written(callee, args, kwargs):
        refuse_shared(context, cell)
    for cell in (*args, *kwargs.values()):
        value = read(cell)
        handed = getattr(value, "obj", None)
        if type(handed) is types.BuiltinMethodType:  # ``map(xs.append, …)``
            for part in written(handed, [], {}):
                refuse_shared(context, part)
        if type(value) is Container and value.type is METHOD:  # ``map(t.add_, …)``
            refuse_in_place(
                context, own_attribute(value.static, "__name__", ""), [*value.children()]
            )
    if type(callee) is operator.methodcaller:
        refuse_in_place(context, method_called(callee), args)


def refuse_in_place(context: Context, name: str, operands: Sequence[Cell]) -> None:
    """Refuse a method that writes to its tensor, the first operand, if that existed before."""
    if not is_inplace_name(name) or not operands:
        return
    if is_tensor(read(operands[0])) and writes.is_outside(operands[0]):
        raise writes.shared_write(context, "a tensor")


def is_one_of(callee: Any, known: Any) -> bool:
    try:
        return callee in known
    except TypeError:  # unhashable
        return False


def written(callee: Any, args: list[Cell], kwargs: dict[str, Cell]) -> list[Cell]:
    """The cells of what a call writes, its receiver among them."""
    found = outputs(callee, args, kwargs)
    name = own_attribute(callee, "__name__", "")
    owner = own_attribute(callee, "__self__")
    if type(callee) is operator.methodcaller:
        name = method_called(callee)
    if owner is not None and not isinstance(owner, types.ModuleType):
        if writes_receiver(type(owner), name):
            found.append(uniform(owner, shared=True))
    elif args and (kind := receiver_type(callee, args[0])) and writes_receiver(kind, name):
        found.append(args[0])
    if args and is_one_of(callee, WRITE_FIRST):
        found.append(args[0])
    elif own_attribute(callee, "__module__") in REMAKING:
        found += args[:1] or list(kwargs.values())[:1]
    elif callee is np.random.seed:
        found.append(uniform(np.random.mtrand._rand, shared=True))
    elif name == "add_note":
        found += map(notes_of, items_of(found))
    elif name == "shuffle":
        found += args[1:2] if owner is None else args[:1]
    elif name in ("pack_into", "readinto", "readinto1"):  # the first buffer that is given
        found += [*args, *kwargs.values()]
    return found


def items_of(cells: list[Cell]) -> list[Any]:
    """The objects that cells hold."""
    values = [read(cell) for cell in cells]
    return [
        item
        for value in values
        for item in (value.items if type(value) is Objects else [getattr(value, "obj", None)])
    ]


def notes_of(error: Any) -> Cell:
    """The list of an exception to which ``add_note`` adds."""
    return Cell(Objects([getattr(error, "__notes__", None)]))


def outputs(callee: Any, args: list[Cell], kwargs: dict[str, Cell]) -> list[Cell]:
    """What ``out=`` names, and the operands of a ufunc behind its inputs."""
    given = [kwargs["out"]] if "out" in kwargs else []
    if isinstance(callee, np.ufunc):
        given += args[callee.nin :]
    elif is_one_of(callee, known_arrays.CHANGES):
        given += [*args[:1], *(kwargs[name] for name in ("dst", "arr", "a") if name in kwargs)]
    elif is_one_of(callee, known_arrays.FUNCTIONS):
        out = known_arrays.places_of(callee).get("out", known_arrays.NOWHERE)
        given += args[out : out + 1]
        if "overwrite_input" in kwargs:
            given += args[:1]
    found: list[Cell] = []
    for cell in given:
        value = read(cell)
        is_tuple = type(value) is Container and value.type is tuple
        found += value.children() if is_tuple else [cell]  # type: ignore[union-attr]
    owner = own_attribute(callee, "__self__")
    kinds = (np.ndarray, *known_arrays.DRAWING)
    is_free = args and receiver_type(callee, args[0]) in kinds
    if is_free or isinstance(owner, (np.ufunc, *kinds)):
        place = known_arrays.place_of_methods_out(own_attribute(callee, "__name__", ""))
        place += bool(is_free)
        found += args[place : place + 1]
    if isinstance(owner, np.ufunc) and own_attribute(callee, "__name__", "") == "at":
        found += args[:1]
    return found


def receiver_type(callee: Any, receiver: Cell) -> Any:
    """The class whose method a callee is, if its first argument is the receiver."""
    kind = own_attribute(callee, "__objclass__")
    if kind is not None:
        return kind
    value = read(receiver)
    if type(value) is Objects:
        own: Any = value.items if value.lists is None else ([],)
    else:
        own = [value.obj] if type(value) is Uniform else ()
    for obj in own:
        if type(callee) is operator.methodcaller:
            return type(obj)
        if getattr(type(obj), own_attribute(callee, "__name__", ""), None) is callee:
            return type(obj)
    return None


def writes_receiver(kind: type, name: str) -> bool:
    return any(name in names and issubclass(kind, owners) for owners, names in WRITING_METHODS)


def refuse_shared(context: Context, cell: Cell) -> None:
    """Refuse a write to what a cell holds, if it existed before the call."""
    value = read(cell)
    if type(value) is Uniform and not isinstance(value.obj, str | int | float | tuple | None):
        raise writes.shared_write(context, writes.described(value.obj))
    if type(value) is Column and writes.is_outside(cell):
        raise writes.shared_write(context, "a tensor")
    writes.refuse_foreign(context, cell, "{}")


# Iterators.


def refuse_iterators(
    context: Context, callee: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> None:
    """Refuse a builtin that takes all that an iterator of all threads has left."""
    if is_one_of(callee, USES_UP):
        return
    for cell in (*args, *kwargs.values()):
        refuse_iterator(context, cell)


def refuse_iterator(context: Context, cell: Cell) -> None:
    """Refuse to go through an iterator that existed before the call."""
    value = read(cell)
    if type(value) is Uniform:
        found = isinstance(value.obj, Iterator)
    elif type(value) is Objects and value.lists is None:
        own = [id(item) for item in value.items if isinstance(item, Iterator)]
        found = len(set(own)) < len(own)
    else:
        return
    if found:
        raise SharedWriteError(
            Diagnostic(
                "A program uses up an iterator that existed before the call.",
                context.span,
                "used up here",
                ("all threads share it, and the first would leave nothing to the others.",),
                (
                    "iterate over a list, make the iterator inside the program, "
                    "or take one item for each thread with next(...).",
                ),
                "shared-iterator",
            )
        )
