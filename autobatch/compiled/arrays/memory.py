"""Tensors in memory: where their elements lie, room for new ones, and loops over elements.

A ``Strided`` is a tensor while an operation is written: the address of its first element and its
strides, in elements. Between operations a tensor that a program has made is contiguous. New ones
lie in a *room* on the stack, one for each place in the program text. A *root* is the room, the
variable's slot or the argument that an address points into: tensors of one root may overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch

from autobatch.compiled.tensors import loaded
from autobatch.compiled.types import MACHINE, Array, Rows, Scalar, Value, refuse
from autobatch.compiled.writer import Writer

MOST_BYTES = 2**16
"""Of one tensor that a program makes: it lies on the stack."""


@dataclass(frozen=True, slots=True)
class Strided:
    """A tensor ``[*shape]`` of at least one dimension."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    leaf: str
    strides: tuple[int, ...]


Operand = Strided | Value
"""A tensor with dimensions, or a 0-d one, which is held by value."""


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[at + 1 :]) for at in range(len(shape)))


def is_contiguous(x: Strided) -> bool:
    return noted(x.shape, x.strides) is None


def strided(x: Value) -> Operand:
    """A tensor as operations take it."""
    if isinstance(x.type, Array | Rows):
        steps = x.type.steps if isinstance(x.type, Rows) else None
        steps = contiguous_strides(x.type.shape) if steps is None else steps
        return Strided(x.type.dtype, x.type.shape, x.leaf, steps)
    return x if isinstance(x.type, Scalar) else refuse(f"{x.type} is no tensor")


def room(w: Writer, dtype: torch.dtype, shape: tuple[int, ...]) -> Strided:
    """Room for a new tensor."""
    size = prod(shape) * dtype.itemsize
    if dtype not in MACHINE:
        refuse(f"a tensor has the dtype {dtype}")
    if not 0 < size <= MOST_BYTES:
        refuse(f"it makes a tensor of shape {list(shape)}")
    w.widest = max(w.widest, prod(shape))
    return Strided(dtype, shape, w.room(size), contiguous_strides(shape))


def noted(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """Strides as types have them: None where they are a contiguous tensor's."""
    pairs = zip(shape, strides, contiguous_strides(shape), strict=True)
    if all(size == 1 or mine == wanted for size, mine, wanted in pairs):
        return None
    return tuple(strides)


def copied(w: Writer, x: Strided) -> Strided:
    made = room(w, x.dtype, x.shape)
    fill(w, made, x)
    return made


def fill(w: Writer, target: Strided, source: Operand) -> None:
    """Write the elements of ``source``, of the same dtype and shape or 0-d, to ``target``."""
    if isinstance(source, Strided) and is_contiguous(source) and is_contiguous(target):
        w.move(target.leaf, source.leaf, prod(target.shape) * target.dtype.itemsize)
        return
    sources = [source] if isinstance(source, Strided) else []

    def body(places: list[str]) -> None:
        found = element(w, sources[0], places[1]) if sources else source
        store(w, target, places[0], found.leaf)

    nest(w, target.shape, [x.strides for x in [target, *sources]], body)


def address(w: Writer, x: Strided, place: str) -> str:
    """Of the element at a place, counted in elements from the first."""
    kind = "i8" if x.dtype is torch.bool else MACHINE[x.dtype]
    return w.made(f"getelementptr inbounds {kind}, ptr {x.leaf}, i64 {place}")


def element(w: Writer, x: Strided, place: str) -> Value:
    """A 0-d tensor."""
    return Value(Scalar(x.dtype), (loaded(w, MACHINE[x.dtype], address(w, x, place)),))


def store(w: Writer, x: Strided, place: str, leaf: str) -> None:
    machine = MACHINE[x.dtype]
    if machine == "i1":
        machine, leaf = "i8", w.made(f"zext i1 {leaf} to i8")
    w.emit(f"store {machine} {leaf}, ptr {address(w, x, place)}")


def offset(
    w: Writer, x: Strided, places: str, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Strided:
    """The part of a tensor that begins at a place and has its own shape and strides."""
    made = address(w, x, places)
    w.roots[made] = w.root(x.leaf)
    return Strided(x.dtype, shape, made, strides)


def from_first(w: Writer, at: str, size: int) -> str:
    """A place that may be counted from the end, as one from the first."""
    below = w.made(f"icmp slt i64 {at}, 0")
    return w.select(below, "i64", w.made(f"add i64 {at}, {size}"), at)


def nest(
    w: Writer,
    shape: Sequence[int],
    strides: Sequence[Sequence[int]],
    body: Callable[[list[str]], None],
) -> None:
    """Loops over all elements of a shape; ``body`` is given a place for each of the strides."""
    dims = merged(shape, strides)
    _loops(w, dims, ["0"] * len(strides), body)


def merged(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> list[tuple[int, tuple[int, ...]]]:
    """Dimensions with the stride of each operand; neighbours that are one row are made one."""
    dims: list[tuple[int, tuple[int, ...]]] = []
    for at, size in enumerate(shape):
        if size == 1:
            continue
        steps = tuple(each[at] for each in strides)
        if dims:
            before, outer = dims[-1]
            if all(out == step * size for out, step in zip(outer, steps, strict=True)):
                dims[-1] = before * size, steps
                continue
        dims.append((size, steps))
    return dims


def _loops(
    w: Writer,
    dims: Sequence[tuple[int, tuple[int, ...]]],
    places: list[str],
    body: Callable[[list[str]], None],
) -> None:
    if not dims:
        body(places)
        return
    (size, steps), *rest = dims

    def round_(i: str) -> None:
        inner = [advanced(w, place, i, step) for place, step in zip(places, steps, strict=True)]
        _loops(w, rest, inner, body)

    loop(w, size, round_)


def advanced(w: Writer, place: str, i: str, step: int) -> str:
    """``place + i * step``."""
    if step == 0:
        return place
    far = i if step == 1 else w.made(f"mul i64 {i}, {step}")
    return far if place == "0" else w.made(f"add i64 {place}, {far}")


def loop(w: Writer, size: int, body: Callable[[str], None]) -> None:
    """``for i in range(size)``, for a size that is known."""
    if size == 1:
        body("0")
        return
    at = w.slot("i64")
    head, inner, after = w.fresh(), w.fresh(), w.fresh()
    w.emit(f"store i64 0, ptr {at}")
    w.emit(f"br label %{head}")
    w.begin(head)
    i = w.made(f"load i64, ptr {at}")
    w.emit(f"br i1 {w.made(f'icmp slt i64 {i}, {size}')}, label %{inner}, label %{after}")
    w.begin(inner)
    body(i)
    w.emit(f"store i64 {w.made(f'add nuw nsw i64 {i}, 1')}, ptr {at}")
    w.emit(f"br label %{head}")
    w.begin(after)
