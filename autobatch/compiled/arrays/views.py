"""aten's operators that look at a tensor's elements in another way, and those that join some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from autobatch.compiled.arrays.memory import (
    Operand,
    Strided,
    contiguous_strides,
    copied,
    element,
    fill,
    is_contiguous,
    offset,
    room,
)
from autobatch.compiled.types import Value, refuse
from autobatch.compiled.writer import Writer


def dims_of(x: Operand) -> int:
    return len(x.shape) if isinstance(x, Strided) else 0


def expected(x: Operand) -> Strided:
    return x if isinstance(x, Strided) else refuse("a view of a 0-d tensor has no compiled form")


def with_shape(w: Writer, x: Operand, shape: tuple[int, ...]) -> Operand:
    """The same elements in another shape."""
    if not isinstance(x, Strided):
        if not shape:
            return x
        made = room(w, x.type.dtype, shape)  # type: ignore[union-attr]
        fill(w, made, x)
        return made
    if prod(x.shape) != prod(shape):
        refuse("a view has another number of elements")
    if not is_contiguous(x):
        y = copied(w, x)
        w.roots[y.leaf] = w.root(x.leaf)
        x = y
    if not shape:
        return viewed(w, x, "0")
    return Strided(x.dtype, shape, x.leaf, contiguous_strides(shape))


def viewed(w: Writer, x: Strided, place: str) -> Value:
    """An element as a 0-d view: what is written to the tensor later, it would have to show."""
    made = element(w, x, place)
    w.roots[made.leaf] = w.root(x.leaf)
    return made


def expanded(w: Writer, x: Operand, shape: tuple[int, ...]) -> Operand:
    if not isinstance(x, Strided):
        return with_shape(w, x, shape)
    new = len(shape) - len(x.shape)
    steps = (0,) * new + tuple(
        0 if size == 1 else step for size, step in zip(x.shape, x.strides, strict=True)
    )
    return Strided(x.dtype, shape, x.leaf, steps)


def spread(
    w: Writer, shape: tuple[int, ...], x: Operand, sizes: Any, dims: Sequence[int]
) -> Operand:
    """``broadcast_in_dim``: dimension ``n`` becomes the ``dims[n]``-th."""
    if not isinstance(x, Strided):
        return with_shape(w, x, shape)
    steps = [0] * len(shape)
    for at, dim in enumerate(dims):
        steps[dim] = 0 if x.shape[at] == 1 else x.strides[at]
    return Strided(x.dtype, shape, x.leaf, tuple(steps))


def view(w: Writer, shape: tuple[int, ...], x: Operand, *_: Any, **__: Any) -> Operand:
    return with_shape(w, x, shape)


def expand(w: Writer, shape: tuple[int, ...], x: Operand, *_: Any, **__: Any) -> Operand:
    return expanded(w, x, shape)


def permuted(w: Writer, shape: tuple[int, ...], x: Operand, dims: Sequence[int]) -> Operand:
    x = expected(x)
    order = [dim % len(x.shape) for dim in dims]
    return Strided(x.dtype, shape, x.leaf, tuple(x.strides[dim] for dim in order))


def transposed(w: Writer, shape: tuple[int, ...], x: Operand, *dims: int) -> Operand:
    if dims_of(x) < 2:
        return x
    order = list(range(dims_of(x)))
    one, other = dims or (0, 1)
    order[one], order[other] = order[other], order[one]
    return permuted(w, shape, x, order)


def unsqueezed(w: Writer, shape: tuple[int, ...], x: Operand, dim: int) -> Operand:
    if not isinstance(x, Strided):
        return with_shape(w, x, shape)
    at = dim % (len(x.shape) + 1)
    return Strided(x.dtype, shape, x.leaf, (*x.strides[:at], 1, *x.strides[at:]))


def squeezed(w: Writer, shape: tuple[int, ...], x: Operand, *dims: Any) -> Operand:
    """Without dimensions of one element: those that are not in the result's shape."""
    if not isinstance(x, Strided):
        return x
    if not shape:
        return viewed(w, x, "0")
    wanted: set[int] = set()
    for dim in dims or (range(len(x.shape)),):
        each = [dim] if isinstance(dim, int) else dim
        wanted |= {int(one) % len(x.shape) for one in each}
    kept = [at for at, size in enumerate(x.shape) if at not in wanted or size != 1]
    return Strided(x.dtype, shape, x.leaf, tuple(x.strides[at] for at in kept))


def selected(w: Writer, shape: tuple[int, ...], x: Operand, dim: int, index: int) -> Operand:
    x = expected(x)
    dim %= len(x.shape)
    return part_at(w, x, dim, index % x.shape[dim])


def at_place(w: Writer, x: Strided, dim: int, place: str) -> Strided:
    """The part at a place of one dimension, one that there is; it may have no dimensions."""
    step = x.strides[dim]
    far = str(int(place) * step) if place.isdigit() else w.made(f"mul i64 {place}, {step}")
    shape = (*x.shape[:dim], *x.shape[dim + 1 :])
    return offset(w, x, far, shape, (*x.strides[:dim], *x.strides[dim + 1 :]))


def part_at(w: Writer, x: Strided, dim: int, place: int) -> Operand:
    made = at_place(w, x, dim, str(place))
    return made if made.shape else viewed(w, made, "0")


def sliced(
    w: Writer,
    shape: tuple[int, ...],
    x: Operand,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Operand:
    x = expected(x)
    if not prod(shape):
        refuse("a tensor has no elements")
    dim %= len(x.shape)
    first = range(x.shape[dim])[slice(start, end, step)][0]
    steps = list(x.strides)
    steps[dim] *= step
    return offset(w, x, str(first * x.strides[dim]), shape, tuple(steps))


def diagonal(
    w: Writer, shape: tuple[int, ...], x: Operand, place: int = 0, one: int = 0, other: int = 1
) -> Operand:
    x = expected(x)
    one, other = one % len(x.shape), other % len(x.shape)
    first = place * x.strides[other] if place >= 0 else -place * x.strides[one]
    rest = [step for at, step in enumerate(x.strides) if at not in (one, other)]
    steps = (*rest, x.strides[one] + x.strides[other])
    return offset(w, x, str(first), shape, steps)


def flipped(w: Writer, shape: tuple[int, ...], x: Operand, dims: Sequence[int]) -> Operand:
    if not isinstance(x, Strided):
        return x
    turned = {dim % len(x.shape) for dim in dims}
    last = sum((x.shape[at] - 1) * x.strides[at] for at in turned)
    steps = tuple(-step if at in turned else step for at, step in enumerate(x.strides))
    return copied(w, offset(w, x, str(last), shape, steps))


def joined(w: Writer, shape: tuple[int, ...], parts: Sequence[Operand], dim: int = 0) -> Operand:
    """``torch.cat``."""
    whole = [expected(part) for part in parts]
    dtype = whole[0].dtype
    if any(part.dtype is not dtype for part in whole):
        refuse("torch.cat of several dtypes has no compiled form")
    made = room(w, dtype, shape)
    dim %= len(shape)
    at = 0
    for part in whole:
        if len(part.shape) != len(shape):
            refuse("torch.cat of an empty tensor")
        fill(w, offset(w, made, str(at * made.strides[dim]), part.shape, made.strides), part)
        at += part.shape[dim]
    return made


def scattered(
    view: Callable[..., Operand],
    w: Writer,
    shape: tuple[int, ...],
    x: Operand,
    source: Operand,
    *place: Any,
) -> Operand:
    """A copy of a tensor in which the part that a view means is another."""
    made = copied(w, expected(x))
    part = view(w, source.shape if isinstance(source, Strided) else (), made, *place)
    if not isinstance(part, Strided):
        return refuse("one element is scattered")
    fill(w, part, source)
    return made


def repeated(w: Writer, shape: tuple[int, ...], x: Operand, times: Sequence[int]) -> Operand:
    whole = with_shape(w, x, (1,) * len(shape)) if not isinstance(x, Strided) else x
    assert isinstance(whole, Strided)
    new = len(shape) - len(whole.shape)
    sizes, steps = (1,) * new + whole.shape, (0,) * new + whole.strides
    split_shape = tuple(n for pair in zip(times, sizes, strict=True) for n in pair)
    split_steps = tuple(n for step in steps for n in (0, step))
    made = copied(w, Strided(whole.dtype, split_shape, whole.leaf, split_steps))
    return with_shape(w, made, shape)


def parts(w: Writer, shape: Any, x: Operand, *args: Any) -> list[Operand]:
    """``unbind``: the parts along a dimension."""
    x = expected(x)
    dim = (args[0] if args else 0) % len(x.shape)
    return [part_at(w, x, dim, at) for at in range(x.shape[dim])]


def split(w: Writer, shapes: Any, x: Operand, *args: Any) -> list[Operand]:
    """``split``: pieces along a dimension, as long as the results' shapes say."""
    x = expected(x)
    dim = (args[1] if len(args) > 1 else 0) % len(x.shape)
    found: list[Operand] = []
    at = 0
    for shape in shapes:
        found.append(offset(w, x, str(at * x.strides[dim]), shape, x.strides))
        at += shape[dim]
    return found


def same(w: Writer, shape: tuple[int, ...], x: Operand, *_: Any, **__: Any) -> Operand:
    return x


RULES: dict[str, Callable[..., Operand]] = {
    "aten.view.default": view,
    "aten._unsafe_view.default": view,
    "aten.reshape.default": view,
    "aten.expand.default": expand,
    "prims.broadcast_in_dim.default": spread,
    "aten.permute.default": permuted,
    "aten.transpose.int": transposed,
    "aten.t.default": transposed,
    "aten.unsqueeze.default": unsqueezed,
    "aten.squeeze.default": squeezed,
    "aten.squeeze.dim": squeezed,
    "aten.squeeze.dims": squeezed,
    "aten.select.int": selected,
    "aten.slice.Tensor": sliced,
    "aten.diagonal.default": diagonal,
    "aten.alias.default": same,
    "aten.detach.default": same,
    "aten.flip.default": flipped,
    "aten.cat.default": joined,
    "aten.repeat.default": repeated,
    "aten.diagonal_scatter.default": partial(scattered, diagonal),
    "aten.select_scatter.default": partial(scattered, selected),
    "aten.slice_scatter.default": partial(scattered, sliced),
}
MANY: dict[str, Callable[..., list[Operand]]] = {
    "aten.unbind.int": parts,
    "aten.split.Tensor": split,
    "aten.split_with_sizes.default": split,
}
"""Operators that give several tensors."""
