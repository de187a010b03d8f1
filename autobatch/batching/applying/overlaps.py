"""Whether a write reads parts of the tensor that it writes, as ``x[1:] = x[:-1]`` does.

torch refuses most of that; batched, the operands are read before anything is written. In: the cell
to write and the operands. Out: whether for one example two of them are parts of one tensor that
overlap without being the same part. Of parts that a thread's own numbers pick, ``own_overlap``
tells it thread by thread, from where in memory each of their elements lies.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.applying import vmapped
from autobatch.batching.levels import Batched
from autobatch.batching.trees import tree_of
from autobatch.values.cells import Cell, Column, Container, Uniform, View, read
from autobatch.values.heap import walks


def overlaps(target: Cell, operands: Iterable[Cell], index: Cell | None = None) -> bool:
    """Whether torch refuses a write to ``target``, for an operand that is partly the same.

    With an index: a write to what it selects.
    """
    parts = [part for cell in operands for part in walks.parts(cell)]
    others = [part for part in parts if is_part(part) or is_part(target) or index is not None]
    root = root_of(target)
    others = [part for part in others if root_of(part) is root]
    if not others:
        return False
    known: dict[int, Tensor | None] = {}
    own = outline(target, known)
    if own is not None and index is not None:
        own = selected(own, index)
    if own is None:
        return False
    outlines = [outline(part, known) for part in others]
    if index is not None and gathers(index):
        return any(other is None or is_met(own, other) for other in outlines)
    return any(other is not None and is_partly(own, other) for other in outlines)


def selected(whole: Tensor, index: Cell) -> Tensor | None:
    """The part that an index selects which all threads share; None for other indices.

    Of an index that gathers, all that it may select of: torch writes into that.
    """
    try:
        return whole[plain(index)]
    except (IndexError, TypeError, Varies):  # the write says what is wrong
        return None


class Varies(Exception):
    """An index that differs by thread: what it selects does too."""


MASKS = (torch.bool, torch.uint8)


def gathers(index: Cell) -> bool:
    """Whether a tensor or list in an index picks elements, which it selects as a copy."""
    match read(index):
        case Column(tag="tensor", table=table, event_shape=shape):
            return len(shape) > 0 or table.dtype in MASKS
        case Uniform(obj=Tensor() as obj):
            return obj.dim() > 0 or obj.dtype in MASKS
        case Uniform(obj=tuple() as obj):
            return any(isinstance(part, Tensor | list) for part in obj)
        case Uniform(obj=obj):
            return isinstance(obj, list)
        case Container(type=kind) as value if kind is tuple:
            return any(map(gathers, value.children()))
        case Container(type=kind):
            return kind is list
    return False


def picked(index: Cell) -> Any:
    """An index that gathers with all that it picks of."""
    match read(index):
        case Column(tag="tensor", table=table, event_shape=shape) if table.dtype in MASKS:
            return [slice(None)] * len(shape)
        case Uniform(obj=Tensor() as obj) if obj.dtype in MASKS:
            return [slice(None)] * obj.dim()
    return [slice(None)] if gathers(index) else [plain(index)]


def plain(index: Cell) -> Any:
    if gathers(index):
        whole = index.value
        is_tuple = type(whole) is Container and whole.type is tuple
        parts = whole.children() if is_tuple else [index]  # type: ignore[union-attr]
        return tuple(place for part in parts for place in picked(part))
    match index.value:
        case Uniform(obj=int() | None | slice() | EllipsisType() | tuple() as obj):
            if type(obj) is not tuple or not any(isinstance(part, Tensor | list) for part in obj):
                return obj
        case Container(type=kind) if kind in (slice, tuple):
            parts = map(plain, index.value.children())
            return slice(*parts) if kind is slice else tuple(parts)
    raise Varies


def is_part(cell: Cell) -> bool:
    return type(cell.value) is View


def root_of(cell: Cell) -> Cell:
    while type(cell.value) is View:
        cell = cell.value.base
    return cell


def outline(cell: Cell, known: dict[int, Tensor | None]) -> Tensor | None:
    """One example's tensor without its data; None where each thread has another part."""
    if id(cell) not in known:
        known[id(cell)] = outline_of(cell, known)
    return known[id(cell)]


def outline_of(cell: Cell, known: dict[int, Tensor | None]) -> Tensor | None:
    match cell.value:
        case Column(tag="tensor", table=table, event_shape=shape):
            return torch.empty(tuple(shape), dtype=table.dtype, device="meta")
        case Uniform(obj=Tensor() as obj):
            return torch.empty_strided(obj.shape, obj.stride(), dtype=obj.dtype, device="meta")
        case View(base=base, recipe=recipe, args=args):
            whole = outline(base, known)
            given = [arg.value for arg in args]
            if whole is None or any(type(value) is not Uniform for value in given):
                return None
            objs = [value.obj for value in given]  # type: ignore[union-attr]
            if any(isinstance(obj, Tensor) for obj in objs):
                return None
            part = recipe.row(whole, objs)
            return part if isinstance(part, Tensor) else None
    return None


def is_partly(one: Tensor, other: Tensor) -> bool:
    """Whether two dense parts of one memory overlap and are not the same; torch's own rule."""
    same = extent(one) == extent(other) and one.stride() == other.stride()
    return not same and is_met(one, other)


def is_met(one: Tensor, other: Tensor) -> bool:
    """Whether two dense parts of one memory have elements in common."""
    if not (one.numel() and other.numel() and is_dense(one) and is_dense(other)):
        return False
    (begin, end), (start, stop) = extent(one), extent(other)
    return begin < stop and start < end


def extent(part: Tensor) -> tuple[int, int]:
    """The bytes that a dense part takes, from the begin of its memory."""
    begin = int(part.storage_offset()) * part.element_size()
    return begin, begin + part.numel() * part.element_size()


def is_dense(part: Tensor) -> bool:
    """Whether its elements lie side by side, in some order."""
    step = 1
    sizes = [size for size in part.shape if size != 1]
    strides = [stride for stride, size in zip(part.stride(), part.shape, strict=True) if size != 1]
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if stride != step:
            return False
        step *= size
    return True


CLASH = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
    "single memory location. Please clone() the tensor before performing the operation."
)
"""What torch says of it."""


def own_overlap(
    target: Cell, operands: Iterable[Cell], index: Cell | None, k: int, copies: bool = False
) -> Tensor | None:
    """In which threads torch refuses a write, bools ``[k]``; None where it refuses in none.

    For parts that lie elsewhere by thread, of a length that all have; ``Unknown`` for others.
    ``copies``: the operand is copied, where torch looks at what it is broadcast to.
    """
    root = root_of(target)
    parts = [part for cell in operands for part in walks.parts(cell)]
    others = [part for part in parts if is_part(part) and root_of(part) is root]
    known: dict[int, Tensor | None] = {}
    varies = index is not None and varied(index)
    others = [
        part
        for part in others
        if (varies or outline(target, known) is None or outline(part, known) is None)
        and not are_apart(target, index, part)
    ]
    if not others or not k:
        return None
    own = places(target, k)
    if index is not None:
        own = vmapped.apply(operator.getitem, (Batched(own), tree_of(index, None)), {}, k).data
    refused = [clash(own.reshape(k, -1), places(part, k).reshape(k, -1), copies) for part in others]
    found = [each for each in refused if each is not None]
    return torch.stack(found).any(0) if found else None


def varied(index: Cell) -> bool:
    if gathers(index):
        return True
    try:
        plain(index)
    except Varies:
        return True
    return False


def are_apart(target: Cell, index: Cell | None, part: Cell) -> bool:
    """Whether two parts are one and the same or have no element in common, wherever they lie."""
    view = part.value
    assert type(view) is View
    if view.recipe.key == getattr(target.value, "recipe", view.recipe).key and part is target:
        return True
    if index is not None and view.base is target and view.args == (index,):
        return True  # ``y[k] += x``: what has just been written in place is written again
    first = index is not None and is_first(index) and view.base is target
    return first and len(view.args) <= 1 and all(map(is_first, view.args))


def is_first(index: Cell) -> bool:
    """Whether an index is one place of the first dimension."""
    value = index.value
    if type(value) is Column:
        return value.table.dim() == 1 and not value.table.dtype.is_floating_point
    return type(value) is Uniform and type(value.obj) is int


class Unknown(Exception):
    """Where parts lie is not told in one tensor for all threads."""


def places(cell: Cell, k: int) -> Tensor:
    """Where in its root's memory each element of a thread's tensor lies, ``[k, *E]``."""
    match cell.value:
        case View(base=base, recipe=recipe, args=args):
            part = recipe.read(Column(places(base, k)), [read(arg) for arg in args])
            if type(part) is Column:
                return part.data
            if type(part) is Uniform and isinstance(part.obj, Tensor):
                return part.obj.expand(k, *part.obj.shape)
            raise Unknown
        case Column(event_shape=shape, data=data) | Uniform(obj=Tensor(shape=shape) as data):
            line = torch.arange(math.prod(shape), device=data.device).reshape(1, *shape)
            return line.expand(k, *shape).contiguous()
    raise Unknown


def clash(one: Tensor, other: Tensor, copies: bool) -> Tensor | None:
    """Whether two lines of places are of dense parts that overlap and are not the same."""
    if not one.shape[1] or not other.shape[1] or (copies and one.shape != other.shape):
        return None
    (begin, end), (start, stop) = one.aminmax(dim=1), other.aminmax(dim=1)
    dense = (end - begin == one.shape[1] - 1) & (stop - start == other.shape[1] - 1)
    same = (begin == start) & (end == stop)
    return dense & (begin <= stop) & (start <= end) & ~same
