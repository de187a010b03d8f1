"""``x[i]`` and ``x[i] = v`` of tensors with dimensions: ints, slices, None and ``...``.

An int may differ from thread to thread; one beyond the ends gives the thread up.
"""

from __future__ import annotations

from typing import Any

import torch

from autobatch.compiled import tensors
from autobatch.compiled.arrays.graph import Of
from autobatch.compiled.arrays.lowering import kept
from autobatch.compiled.arrays.memory import (
    Operand,
    Strided,
    fill,
    from_first,
    nest,
    noted,
    offset,
    store,
    strided,
)
from autobatch.compiled.arrays.picking import Picked, put
from autobatch.compiled.arrays.views import at_place, expanded, viewed
from autobatch.compiled.types import (
    INT,
    INTS,
    Array,
    Number,
    Rows,
    Scalar,
    Static,
    Structure,
    Value,
    parts_of,
    refuse,
)
from autobatch.compiled.writer import Writer


def getitem(w: Writer, owner: Value, index: Value) -> Value:
    x = part(w, owner, index)
    if not x.shape:
        return kept(w, viewed(w, x, "0"), owner.type, None)
    return kept(w, x, owner.type, strides_of(owner, index))


def strides_of(owner: Value, index: Value) -> tuple[int, ...] | None:
    """The strides of a part in torch, which are the same at all places."""
    assert isinstance(owner.type, Array | Rows)
    wanted = [0 if isinstance(each, Value) else each for each in spelled_parts(index)]
    like = Of(owner.type.dtype, owner.type.shape, owner.type.strides)
    found = like.empty("meta")[tuple(wanted)]
    return noted(tuple(found.shape), found.stride())


def spelled_parts(index: Value) -> list[Any]:
    many = isinstance(index.type, Structure) and index.type.kind is tuple
    return [spelled(each) for each in (parts_of(index) if many else [index])]


def part(w: Writer, owner: Value, index: Value) -> Strided:
    """The view that an index means; it may have no dimensions."""
    x = strided(owner)
    assert isinstance(x, Strided)
    given = spelled_parts(index)
    taken = sum(each is not None and each is not Ellipsis for each in given)
    rest: list[Any] = [slice(None)] * (len(x.shape) - taken)
    if taken > len(x.shape):
        refuse("a tensor has fewer dimensions than its index has parts")
    if any(each is Ellipsis for each in given):
        at = next(n for n, each in enumerate(given) if each is Ellipsis)
        given[at : at + 1] = rest
    dim, found = 0, x
    for each in given:
        found = step(w, found, dim, each)
        dim += isinstance(each, slice) or each is None
    return found


def by_tensor(index: Value) -> bool:
    """Whether an index has a part that is a tensor with dimensions, or a list."""
    return any(is_places(each) for each in spelled_parts(index))


def is_places(each: Any) -> bool:
    if not isinstance(each, Value):
        return False
    listed = isinstance(each.type, Structure) and each.type.kind is list
    return listed or isinstance(each.type, Array | Rows)


def spelled(each: Value) -> Any:
    """A part of an index: None, ``...``, a slice of known ends, or a value."""
    if isinstance(each.type, Static):
        return each.type.obj
    if not isinstance(each.type, Structure) or each.type.kind is not slice:
        return each
    ends = [None if part.type == Static(None) else part.known for part in parts_of(each)]
    for part, end in zip(parts_of(each), ends, strict=True):
        if end is None and part.type != Static(None):
            refuse("a slice has a compiled form for ends that are known")
    return slice(*ends)


def step(w: Writer, x: Strided, dim: int, each: Any) -> Strided:
    """One part of an index, at a dimension."""
    if each is None:
        shape = (*x.shape[:dim], 1, *x.shape[dim:])
        return Strided(x.dtype, shape, x.leaf, (*x.strides[:dim], 1, *x.strides[dim:]))
    if isinstance(each, slice):
        ends = (each.start, each.stop, each.step)
        if not all(end is None or type(end) is int for end in ends) or (each.step or 1) < 1:
            refuse("a slice has a compiled form for ends that are known, and a step forwards")
        taken = range(x.shape[dim])[each]
        if not taken:
            refuse("a tensor has no elements")
        steps = (*x.strides[:dim], x.strides[dim] * taken.step, *x.strides[dim + 1 :])
        shape = (*x.shape[:dim], len(taken), *x.shape[dim + 1 :])
        return offset(w, x, str(taken[0] * x.strides[dim]), shape, steps)
    return at_place(w, x, dim, place(w, each, x.shape[dim]))


def place(w: Writer, index: Any, size: int) -> str:
    """An int as a place from the first."""
    if not isinstance(index, Value):
        return refuse("an index of that kind has no compiled form")
    if type(index.known) is int and -size <= index.known < size:
        return str(index.known % size)
    if index.type == INT:
        leaf = index.leaf
    elif isinstance(index.type, Scalar) and index.type.dtype in INTS - {torch.uint8}:
        leaf = tensors.to_int(w, index).leaf
    else:
        refuse(f"an element at {index.type} has no compiled form")
    return place_in(w, leaf, size)


def place_in(w: Writer, at: str, size: int) -> str:
    """An index from either end as a place; beyond them that is an error."""
    at = from_first(w, at, size)
    w.raise_if(w.made(f"icmp uge i64 {at}, {size}"), IndexError)
    return at


def assign(w: Writer, owner: Value, index: Value, value: Value) -> None:
    """Write a tensor or a number to the part that an index means."""
    assert isinstance(owner.type, Array)
    if isinstance(index.type, Scalar | Array | Rows) and index.type.dtype is torch.bool:
        refuse("a write under a mask has no compiled form")
    if by_tensor(index):
        assign_at(w, owner, index, value)
        return
    target = part(w, owner, index)
    dtype = target.dtype
    if isinstance(value.type, Number | Scalar):
        one = Value(Scalar(dtype), (cast(w, value, dtype),))
        nest(w, target.shape, [target.strides], lambda at: store(w, target, at[0], one.leaf))
        return
    fill(w, target, source_of(w, owner, value, target.shape))


def source_of(w: Writer, owner: Value, value: Value, shape: tuple[int, ...]) -> Strided:
    """A tensor that is written to a part of ``owner``, in the part's shape."""
    source = strided(value)
    assert isinstance(source, Strided) and isinstance(owner.type, Array)
    if source.dtype is not owner.type.dtype:
        refuse(f"a tensor of {source.dtype} is written to one of {owner.type.dtype}")
    while len(source.shape) > len(shape) and source.shape[0] == 1:
        source = Strided(source.dtype, source.shape[1:], source.leaf, source.strides[1:])
    if not spreads(source.shape, shape):
        refuse("a tensor of another shape is written")
    spread = expanded(w, source, shape)
    assert isinstance(spread, Strided)
    if w.root(source.leaf) == w.root(owner.leaf):
        refuse("a tensor is written with a part of itself")
    return spread


def assign_at(w: Writer, owner: Value, index: Value, value: Value) -> None:
    """``x[i] = v``, where ``i`` has tensors of places."""
    found = strided(owner)
    assert isinstance(found, Strided) and isinstance(owner.type, Array)
    indices: dict[int, Operand] = {}
    dim = 0
    for each in spelled_parts(index):
        if each is Ellipsis or (isinstance(each, Value) and isinstance(each.type, Structure)):
            refuse("a write at places has a compiled form for tensors, ints and slices")
        if is_places(each):
            if w.root(each.leaf) == w.root(owner.leaf):
                refuse("a tensor is written at places of its own")
            indices[dim] = strided(each)
        else:
            found = step(w, found, dim, each)
        dim += is_places(each) or isinstance(each, slice) or each is None
    picked = Picked.of(found, indices)
    if isinstance(value.type, Number | Scalar):
        put(w, picked, Value(Scalar(found.dtype), (cast(w, value, found.dtype),)))
    else:
        put(w, picked, source_of(w, owner, value, picked.shape))


def spreads(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether a tensor of a shape can be broadcast to another."""
    if len(shape) > len(to):
        return False
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return all(mine in (1, theirs) for mine, theirs in pairs)


def cast(w: Writer, value: Value, dtype: torch.dtype) -> str:
    source = value.type.dtype if isinstance(value.type, Scalar) else None
    is_float = value.type == Number("float") or (source is not None and source.is_floating_point)
    if is_float and not dtype.is_floating_point:
        refuse(f"a float is written to a tensor of {dtype}")
    return tensors.cast(w, value, dtype)
