"""aten's operators by tensors of places: ``x[i]``, ``gather``, ``scatter``, ``index_put``.

A place that torch refuses gives the thread up. Of several writes to one place the last one stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from autobatch.compiled import tensors
from autobatch.compiled.arrays.memory import (
    Operand,
    Strided,
    advanced,
    contiguous_strides,
    copied,
    element,
    fill,
    from_first,
    nest,
    offset,
    room,
    store,
)
from autobatch.compiled.arrays.views import expanded
from autobatch.compiled.types import Scalar, Value, number, refuse
from autobatch.compiled.writer import Writer

PLACES = (torch.int64, torch.int32)


def place_at(w: Writer, index: Operand, at: str, size: int, wraps: bool) -> str:
    """One place of a tensor of places, from the first; gives up beyond the ends."""
    w.unfused = True
    one = element(w, index, at) if isinstance(index, Strided) else index
    if not isinstance(one.type, Scalar) or one.type.dtype not in PLACES:
        refuse("an index tensor has a compiled form for int64")
    leaf = tensors.to_int(w, one).leaf
    if wraps:
        leaf = from_first(w, leaf, size)
    w.give_up_if(w.made(f"icmp uge i64 {leaf}, {size}"))
    return leaf


def spread_to(w: Writer, x: Operand, shape: tuple[int, ...]) -> Operand:
    return expanded(w, x, shape) if isinstance(x, Strided) else x


def shape_of(x: Operand) -> tuple[int, ...]:
    return x.shape if isinstance(x, Strided) else ()


@dataclass(frozen=True, slots=True)
class Picked:
    """The parts of ``x`` at places for some of its dimensions.

    Where they lie in a result of ``shape``: the places' own dimensions begin at ``first``.
    """

    x: Strided
    indices: dict[int, Operand]
    places: tuple[int, ...]
    first: int
    wraps: bool

    @classmethod
    def of(cls, x: Strided, indices: dict[int, Operand], wraps: bool = True) -> Picked:
        dims = sorted(indices)
        together = dims == list(range(dims[0], dims[0] + len(dims)))
        try:
            places = tuple(np.broadcast_shapes(*map(shape_of, indices.values())))
        except ValueError:
            refuse("index tensors do not fit each other")
        return cls(x, indices, places, dims[0] if together else 0, wraps)

    @property
    def kept(self) -> list[int]:
        return [dim for dim in range(len(self.x.shape)) if dim not in self.indices]

    @property
    def shape(self) -> tuple[int, ...]:
        rest = [self.x.shape[dim] for dim in self.kept]
        return (*rest[: self.first], *self.places, *rest[self.first :])

    def each(self, w: Writer, other: Strided, body: Callable[[Strided, Strided], None]) -> None:
        """``body`` for each place: the part of ``x`` there, and that of a tensor of ``shape``."""
        count = len(self.places)
        ends = self.first, self.first + count
        spread = {dim: spread_to(w, i, self.places) for dim, i in self.indices.items()}
        wide = [i for i in spread.values() if isinstance(i, Strided)]
        rest = tuple(self.x.shape[dim] for dim in self.kept)
        steps = tuple(self.x.strides[dim] for dim in self.kept)
        others = (*other.strides[: ends[0]], *other.strides[ends[1] :])

        def one(places: list[str]) -> None:
            at = iter(places[1:])
            far = "0"
            for dim, index in spread.items():
                here = next(at) if isinstance(index, Strided) else "0"
                place = place_at(w, index, here, self.x.shape[dim], self.wraps)
                far = advanced(w, far, place, self.x.strides[dim])
            mine = offset(w, self.x, far, rest, steps)
            body(mine, offset(w, other, places[0], rest, others))

        nest(w, self.places, [other.strides[ends[0] : ends[1]], *(i.strides for i in wide)], one)


def taken(w: Writer, picked: Picked) -> Operand:
    """A new tensor of the parts."""
    made = room(w, picked.x.dtype, picked.shape)
    picked.each(w, made, lambda mine, target: fill(w, target, mine))
    return made if picked.shape else element(w, made, "0")


def put(w: Writer, picked: Picked, value: Operand, accumulate: bool = False) -> None:
    """Write a value to the parts, or add it to what is there."""
    source = spread_to(w, value, picked.shape)
    if not isinstance(source, Strided):
        source = room(w, picked.x.dtype, picked.shape or (1,))
        fill(w, source, value)
        source = Strided(source.dtype, picked.shape, source.leaf, contiguous_strides(picked.shape))

    def one(target: Strided, given: Strided) -> None:
        if accumulate:
            added(w, target, given)
        else:
            fill(w, target, given)

    picked.each(w, source, one)


def added(w: Writer, target: Strided, given: Strided) -> None:
    def body(places: list[str]) -> None:
        both = element(w, target, places[0]), element(w, given, places[1])
        store(w, target, places[0], summed(w, *both))

    nest(w, target.shape, [target.strides, given.strides], body)


def summed(w: Writer, a: Value, b: Value) -> str:
    if a.type == Scalar(torch.bool):
        refuse("a sum of bools at places has no compiled form")
    return tensors.binary(w, "add", a, b).leaf


# The operators


def indexed(w: Writer, shape: Any, dtype: Any, x: Operand, indices: Sequence[Any]) -> Operand:
    return taken(w, Picked.of(dims_of(x), given(indices)))


def given(indices: Sequence[Any]) -> dict[int, Operand]:
    return {dim: index for dim, index in enumerate(indices) if index is not None}


def dims_of(x: Operand) -> Strided:
    return x if isinstance(x, Strided) else refuse("a 0-d tensor is looked up by places")


def selected(w: Writer, shape: Any, dtype: Any, x: Operand, dim: int, index: Operand) -> Operand:
    """``index_select``, which takes places from the first only."""
    x = dims_of(x)
    index = index if isinstance(index, Strided) else as_row(w, index)
    return taken(w, Picked.of(x, {dim % len(x.shape): index}, wraps=False))


def as_row(w: Writer, x: Value) -> Strided:
    assert isinstance(x.type, Scalar)
    made = room(w, x.type.dtype, (1,))
    store(w, made, "0", x.leaf)
    return made


def embedded(w: Writer, shape: Any, dtype: Any, table: Operand, index: Operand, *_: Any) -> Operand:
    return taken(w, Picked.of(dims_of(table), {0: index}, wraps=False))


def written(
    w: Writer,
    shape: Any,
    dtype: Any,
    x: Operand,
    indices: Sequence[Any],
    value: Operand,
    accumulate: bool = False,
) -> Operand:
    made = copied(w, dims_of(x))
    put(w, Picked.of(made, given(indices)), value, accumulate)
    return made


def written_along(
    accumulate: bool,
    w: Writer,
    shape: Any,
    dtype: torch.dtype,
    x: Operand,
    dim: int,
    index: Operand,
    value: Operand,
    alpha: float = 1,
) -> Operand:
    """``index_add`` and ``index_copy``, which take places from the first only."""
    made, source = copied(w, dims_of(x)), dims_of(value)
    if alpha != 1 or source.dtype is not dtype:
        refuse("what is written at places is of another dtype, or multiplied")
    picked = Picked.of(made, {dim % len(made.shape): dims_of(index)}, wraps=False)
    put(w, picked, source, accumulate)
    return made


def within(w: Writer, index: Operand, size: int) -> None:
    """Give up where a place is beyond the ends."""
    if isinstance(index, Strided):
        strides = [index.strides]
        nest(w, index.shape, strides, lambda at: _within(w, index, at[0], size))
    else:
        _within(w, index, "0", size)


def _within(w: Writer, index: Operand, at: str, size: int) -> None:
    place_at(w, index, at, size, wraps=False)


def along(
    w: Writer,
    x: Strided,
    dim: int,
    index: Strided,
    others: Sequence[Strided],
    body: Callable[[str, list[str]], None],
) -> None:
    """``body`` for each place of ``index`` along a dimension of ``x``: its address, and others'."""
    dim %= len(x.shape)
    if len(index.shape) != len(x.shape):
        refuse("a tensor and its index have other dimensions")
    still = tuple(0 if at == dim else step for at, step in enumerate(x.strides))

    def one(places: list[str]) -> None:
        place = place_at(w, index, places[0], x.shape[dim], wraps=False)
        body(advanced(w, places[1], place, x.strides[dim]), places[2:])

    nest(w, index.shape, [index.strides, still, *(each.strides for each in others)], one)


def gathered(
    w: Writer, shape: Any, dtype: Any, x: Operand, dim: int, index: Operand, *_: Any, **__: Any
) -> Operand:
    made, x = room(w, dtype, shape), dims_of(x)

    def body(at: str, others: list[str]) -> None:
        store(w, made, others[0], element(w, x, at).leaf)

    along(w, x, dim, dims_of(index), [made], body)
    return made


def scattered(
    accumulate: bool,
    w: Writer,
    shape: Any,
    dtype: torch.dtype,
    x: Operand,
    dim: int,
    index: Operand,
    value: Any,
) -> Operand:
    made = copied(w, dims_of(x))
    sources = [value] if isinstance(value, Strided) else []
    if any(each.dtype is not dtype for each in sources) or isinstance(value, Value):
        refuse("a tensor of another dtype is written")
    known = None if sources else number_of(w, value, dtype)

    def body(at: str, others: list[str]) -> None:
        one = element(w, sources[0], others[0]) if sources else known
        assert one is not None
        leaf = summed(w, element(w, made, at), one) if accumulate else one.leaf
        store(w, made, at, leaf)

    along(w, made, dim, dims_of(index), sources, body)
    return made


def number_of(w: Writer, value: float, dtype: torch.dtype) -> Value:
    if type(value) is float and not dtype.is_floating_point:
        refuse(f"a float is written to a tensor of {dtype}")
    return Value(Scalar(dtype), (tensors.cast(w, number(value), dtype),))


RULES: dict[str, Callable[..., Operand]] = {
    "aten.index.Tensor": indexed,
    "aten.index_select.default": selected,
    "aten.embedding.default": embedded,
    "aten.index_put.default": written,
    "aten.index_add.default": partial(written_along, True),
    "aten.index_copy.default": partial(written_along, False),
    "aten.gather.default": gathered,
    "aten.scatter.src": partial(scattered, False),
    "aten.scatter.value": partial(scattered, False),
    "aten.scatter_add.default": partial(scattered, True),
}
