"""aten's operators that look for what is largest or least, and where it is; nan is ahead of all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from autobatch.compiled import tensors
from autobatch.compiled.arrays.memory import (
    Operand,
    Strided,
    advanced,
    element,
    loop,
)
from autobatch.compiled.arrays.reductions import all_kept, each_kept, reduced, split_dims
from autobatch.compiled.types import FLOATS, MACHINE, Scalar, Value, refuse
from autobatch.compiled.writer import Writer


def is_ahead(w: Writer, order: str, new: Value, old: Value, first: bool) -> str:
    """Whether a new element takes the place of the old one; nan is ahead of all."""
    ahead = tensors.compare(w, order, new, old).leaf
    dtype = new.type.dtype  # type: ignore[union-attr]
    if dtype not in FLOATS:
        return ahead
    machine = MACHINE[dtype]
    odd = w.made(f"fcmp uno {machine} {new.leaf}, {new.leaf}")
    if first:
        odd = w.made(f"and i1 {odd}, {w.made(f'fcmp ord {machine} {old.leaf}, {old.leaf}')}")
    return w.either(ahead, odd)


def extreme(
    order: str,
    w: Writer,
    shape: Any,
    dtype: torch.dtype,
    x: Operand,
    dims: Any = None,
    *_: Any,
    **__: Any,
) -> Operand:
    def fold(w: Writer, a: Value, b: Value) -> Value:
        ahead = is_ahead(w, order, b, a, first=False)
        return Value(a.type, (w.select(ahead, MACHINE[dtype], b.leaf, a.leaf),))

    return reduced(w, x, dims, shape, dtype, None, fold)


def place_of_extreme(
    order: str,
    w: Writer,
    shape: Any,
    dtype: torch.dtype,
    x: Operand,
    dim: int | None = None,
    *_: Any,
    **__: Any,
) -> Operand:
    """``argmax`` and ``argmin``: the first place of several."""
    if not isinstance(x, Strided):
        return Value(Scalar(torch.int64), ("0",))
    if dim is None and len(x.shape) > 1:
        return refuse("argmax over several dimensions has no compiled form")
    kept, (gone,) = split_dims(x, 0 if dim is None else dim)

    def at(place: str) -> Value:
        return _search(w, order, x, gone, place)[1]

    return each_kept(w, x, kept, shape, torch.int64, at)


def _search(w: Writer, order: str, x: Strided, dim: int, place: str) -> tuple[Value, Value]:
    """The extreme along a dimension, and its place."""
    machine = MACHINE[x.dtype]
    best, where = w.slot(machine), w.slot("i64")
    w.emit(f"store {machine} {element(w, x, place).leaf}, ptr {best}")
    w.emit(f"store i64 0, ptr {where}")

    def body(i: str) -> None:
        one = element(w, x, advanced(w, place, i, x.strides[dim]))
        before = Value(one.type, (w.made(f"load {machine}, ptr {best}"),))
        ahead = is_ahead(w, order, one, before, first=True)
        w.emit(f"store {machine} {w.select(ahead, machine, one.leaf, before.leaf)}, ptr {best}")
        known = w.made(f"load i64, ptr {where}")
        w.emit(f"store i64 {w.select(ahead, 'i64', i, known)}, ptr {where}")

    loop(w, x.shape[dim], body)
    return (
        Value(Scalar(x.dtype), (w.made(f"load {machine}, ptr {best}"),)),
        Value(Scalar(torch.int64), (w.made(f"load i64, ptr {where}"),)),
    )


def extreme_with_place(
    order: str, w: Writer, shapes: Any, x: Operand, dim: int = 0, *_: Any
) -> list[Operand]:
    """``max(x, dim)`` and ``min(x, dim)``: values and places."""
    if not isinstance(x, Strided):
        return [x, Value(Scalar(torch.int64), ("0",))]
    kept, (gone,) = split_dims(x, dim)
    dtypes = x.dtype, torch.int64
    return all_kept(w, x, kept, shapes[0], dtypes, lambda place: _search(w, order, x, gone, place))


RULES: dict[str, Callable[..., Operand]] = {
    "aten.amax.default": partial(extreme, "gt"),
    "aten.amin.default": partial(extreme, "lt"),
    "aten.max.default": partial(extreme, "gt"),
    "aten.min.default": partial(extreme, "lt"),
    "aten.argmax.default": partial(place_of_extreme, "gt"),
    "aten.argmin.default": partial(place_of_extreme, "lt"),
}
MANY: dict[str, Callable[..., list[Operand]]] = {
    "aten.max.dim": partial(extreme_with_place, "gt"),
    "aten.min.dim": partial(extreme_with_place, "lt"),
}
