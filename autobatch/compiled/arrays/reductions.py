"""aten's operators over dimensions: sums, extremes, where they are, running sums.

Sums within a tensor may be taken in another order than torch's (LLVM's ``reassoc``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch

from autobatch.compiled import tensors
from autobatch.compiled.arrays.mapping import mapped
from autobatch.compiled.arrays.memory import (
    Operand,
    Strided,
    advanced,
    contiguous_strides,
    element,
    loop,
    nest,
    room,
    store,
)
from autobatch.compiled.machine import intrinsic
from autobatch.compiled.types import FLOATS, MACHINE, Scalar, Value, refuse
from autobatch.compiled.writer import Writer
from autobatch.llvm import literal

FREE = "reassoc contract"
"""The order of sums is free."""
Fold = Callable[[Writer, Value, Value], Value]
"""What has been found so far, with one more element."""


def split_dims(x: Strided, dims: Any) -> tuple[list[int], list[int]]:
    """The dimensions that stay, and those that are reduced."""
    if dims is None or (isinstance(dims, Sequence) and not dims):
        return [], list(range(len(x.shape)))
    each = [dims] if isinstance(dims, int) else dims
    gone = sorted({int(dim) % len(x.shape) for dim in each})
    return [at for at in range(len(x.shape)) if at not in gone], gone


def folded(
    w: Writer, x: Strided, dims: Any, start: str | None, fold: Fold, dtype: torch.dtype
) -> tuple[Callable[[str], Value], list[int]]:
    """How to reduce what begins at a place; from ``start``, or from the first element."""
    kept, gone = split_dims(x, dims)
    shape = [x.shape[at] for at in gone]
    steps = [x.strides[at] for at in gone]
    machine = MACHINE[dtype]

    def at(place: str) -> Value:
        so_far = w.slot(machine)
        first = start if start is not None else converted(w, element(w, x, place), dtype).leaf
        w.emit(f"store {machine} {first}, ptr {so_far}")

        def body(places: list[str]) -> None:
            before = Value(Scalar(dtype), (w.made(f"load {machine}, ptr {so_far}"),))
            one = converted(w, element(w, x, sum_of(w, place, places[0])), dtype)
            w.emit(f"store {machine} {fold(w, before, one).leaf}, ptr {so_far}")

        nest(w, shape, [steps], body)
        return Value(Scalar(dtype), (w.made(f"load {machine}, ptr {so_far}"),))

    return at, kept


def sum_of(w: Writer, a: str, b: str) -> str:
    return a if b == "0" else b if a == "0" else w.made(f"add i64 {a}, {b}")


def converted(w: Writer, x: Value, dtype: torch.dtype) -> Value:
    return Value(Scalar(dtype), (tensors.cast(w, x, dtype),))


def each_kept(
    w: Writer,
    x: Strided,
    kept: Sequence[int],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    at: Callable[[str], Value],
) -> Operand:
    """What ``at`` gives at each place of the dimensions that stay."""
    (made,) = all_kept(w, x, kept, shape, (dtype,), lambda place: (at(place),))
    return made


def all_kept(
    w: Writer,
    x: Strided,
    kept: Sequence[int],
    shape: tuple[int, ...],
    dtypes: Sequence[torch.dtype],
    at: Callable[[str], Sequence[Value]],
) -> list[Operand]:
    """The same of several values at each place."""
    if not shape:
        return list(at("0"))
    made = [room(w, dtype, shape) for dtype in dtypes]
    sizes = [x.shape[dim] for dim in kept]

    def body(places: list[str]) -> None:
        for target, value in zip(made, at(places[1]), strict=True):
            store(w, target, places[0], value.leaf)

    nest(w, sizes, [contiguous_strides(sizes), [x.strides[dim] for dim in kept]], body)
    return list(made)


def reduced(
    w: Writer,
    x: Operand,
    dims: Any,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    start: str | None,
    fold: Fold,
) -> Operand:
    if not isinstance(x, Strided):
        one = converted(w, x, dtype)
        return one if start is None else fold(w, Value(Scalar(dtype), (start,)), one)
    at, kept = folded(w, x, dims, start, fold, dtype)
    return each_kept(w, x, kept, shape, dtype, at)


def added(w: Writer, a: Value, b: Value) -> Value:
    dtype = a.type.dtype  # type: ignore[union-attr]
    word = f"fadd {FREE}" if dtype in FLOATS else "add"
    return Value(a.type, (w.made(f"{word} {MACHINE[dtype]} {a.leaf}, {b.leaf}"),))


def multiplied(w: Writer, a: Value, b: Value) -> Value:
    dtype = a.type.dtype  # type: ignore[union-attr]
    word = f"fmul {FREE}" if dtype in FLOATS else "mul"
    return Value(a.type, (w.made(f"{word} {MACHINE[dtype]} {a.leaf}, {b.leaf}"),))


def total(
    w: Writer, shape: Any, dtype: torch.dtype, x: Operand, dims: Any = None, *_: Any, **__: Any
) -> Operand:
    return reduced(w, x, dims, shape, dtype, literal(0, MACHINE[dtype]), added)


def product(
    w: Writer, shape: Any, dtype: torch.dtype, x: Operand, dims: Any = None, *_: Any, **__: Any
) -> Operand:
    return reduced(w, x, dims, shape, dtype, literal(1, MACHINE[dtype]), multiplied)


def mean(
    w: Writer, shape: Any, dtype: torch.dtype, x: Operand, dims: Any = None, *_: Any, **__: Any
) -> Operand:
    if not isinstance(x, Strided):
        return x
    kept, gone = split_dims(x, dims)
    count = prod(x.shape[at] for at in gone)
    at, kept = folded(w, x, dims, literal(0, MACHINE[dtype]), added, dtype)
    many = Value(Scalar(dtype), (literal(float(count), MACHINE[dtype]),))
    return each_kept(
        w, x, kept, shape, dtype, lambda place: tensors.binary(w, "truediv", at(place), many)
    )


def variance(
    deviation: bool,
    w: Writer,
    shape: Any,
    dtype: torch.dtype,
    x: Operand,
    dims: Any = None,
    correction: float = 1,
    **_: Any,
) -> Operand:
    if not isinstance(x, Strided):
        return refuse("the variance of a 0-d tensor has no compiled form")
    count = prod(x.shape[at] for at in split_dims(x, dims)[1])
    wide = kept_in(dtype)
    zero, machine = literal(0, MACHINE[wide]), MACHINE[wide]
    many = Value(Scalar(wide), (literal(float(count), machine),))
    free = Value(Scalar(wide), (literal(max(count - correction, 0.0), machine),))
    sums, kept = folded(w, x, dims, zero, added, wide)

    def at(place: str) -> Value:
        middle = tensors.binary(w, "truediv", sums(place), many)

        def square_added(w: Writer, so_far: Value, one: Value) -> Value:
            far = tensors.binary(w, "sub", one, middle)
            return added(w, so_far, multiplied(w, far, far))

        squares = folded(w, x, dims, zero, square_added, wide)[0]
        found = tensors.binary(w, "truediv", squares(place), free)
        if deviation:
            found = Value(found.type, (intrinsic(w, "sqrt", machine, found.leaf),))
        return converted(w, found, dtype)

    return each_kept(w, x, kept, shape, dtype, at)


def kept_in(dtype: torch.dtype) -> torch.dtype:
    """What torch's variances and running sums are kept in: float32 loses small ones in large."""
    return torch.float64 if dtype is torch.float32 else dtype


def any_all(
    word: str,
    w: Writer,
    shape: Any,
    dtype: torch.dtype,
    x: Operand,
    dims: Any = None,
    *_: Any,
    **__: Any,
) -> Operand:
    """In bits; of tensors of bytes torch gives bytes."""

    def fold(w: Writer, a: Value, b: Value) -> Value:
        return Value(a.type, (w.made(f"{word} i1 {a.leaf}, {b.leaf}"),))

    start = "false" if word == "or" else "true"
    found = reduced(w, x, dims, shape, torch.bool, start, fold)
    if dtype is torch.bool:
        return found
    return mapped(w, shape, dtype, [found], lambda bits: converted(w, bits[0], dtype))


def running(
    fold: Fold,
    start: int,
    w: Writer,
    shape: Any,
    dtype: torch.dtype,
    x: Operand,
    dim: int,
    **_: Any,
) -> Operand:
    """``cumsum`` and ``cumprod``."""
    if not isinstance(x, Strided):
        return converted(w, x, dtype)
    made, wide = room(w, dtype, shape), kept_in(dtype)
    machine = MACHINE[wide]
    kept, (gone,) = split_dims(x, dim)
    so_far = w.slot(machine)

    def line(places: list[str]) -> None:
        w.emit(f"store {machine} {literal(start, machine)}, ptr {so_far}")

        def body(i: str) -> None:
            one = converted(w, element(w, x, advanced(w, places[1], i, x.strides[gone])), wide)
            before = Value(Scalar(wide), (w.made(f"load {machine}, ptr {so_far}"),))
            found = fold(w, before, one)
            w.emit(f"store {machine} {found.leaf}, ptr {so_far}")
            place = advanced(w, places[0], i, made.strides[gone])
            store(w, made, place, converted(w, found, dtype).leaf)

        loop(w, x.shape[gone], body)

    steps = [[y.strides[at] for at in kept] for y in (made, x)]
    nest(w, [x.shape[at] for at in kept], steps, line)
    return made


def in_order(word: str) -> Fold:
    """A fold that keeps the order."""

    def fold(w: Writer, a: Value, b: Value) -> Value:
        return tensors.binary(w, word, a, b)

    return fold


RULES: dict[str, Callable[..., Operand]] = {
    "aten.sum.default": total,
    "aten.sum.dim_IntList": total,
    "aten.prod.default": product,
    "aten.prod.dim_int": product,
    "aten.mean.default": mean,
    "aten.mean.dim": mean,
    "aten.var.correction": partial(variance, False),
    "aten.std.correction": partial(variance, True),
    "prims.var.default": partial(variance, False),
    "aten.cumsum.default": partial(running, in_order("add"), 0),
    "aten.cumprod.default": partial(running, in_order("mul"), 1),
    **{f"aten.any.{kind}": partial(any_all, "or") for kind in ("default", "dim", "dims")},
    **{f"aten.all.{kind}": partial(any_all, "and") for kind in ("default", "dim", "dims")},
}
