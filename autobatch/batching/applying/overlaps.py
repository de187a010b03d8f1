"""Whether a write reads parts of the tensor that it writes, as ``x[1:] = x[:-1]`` does.

torch refuses most of that; batched, the operands are read before anything is written. In: the cell
to write and the operands. Out: whether for one example two of them are parts of one tensor that
overlap without being the same part. ``own_overlaps`` tells it of parts that a thread's own numbers
pick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.applying.index_parts import is_listed
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


def reads(operands: list[Cell], out: Cell) -> bool:
    """Whether what is written is of the memory of an operand.

    What torch then gives goes by the order in which it writes: it reads an element before that for
    pointwise operations alone, refuses many others, and writes over what a matrix product reads.
    """
    written = [id(root_of(part)) for part in walks.reached([out])]
    return any(id(root_of(part)) in written for part in walks.reached(operands))


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
            return any(isinstance(part, Tensor) or is_listed(part) for part in obj)
        case Uniform(obj=obj):
            return is_listed(obj)
        case Container(type=kind) as value if kind is tuple:
            return any(is_tuple(part) or gathers(part) for part in value.children())
        case Container(type=kind):
            return kind is list
    return False


def is_tuple(part: Cell) -> bool:
    """Whether a part of an index is a tuple, which is a list of numbers there."""
    value = read(part)
    kind = value.type if type(value) is Container else type(getattr(value, "obj", None))
    return kind is tuple


def picked(index: Cell, basic: Callable[[Cell], Any]) -> Any:
    """An index that gathers with all that it picks of; ``basic`` reads one that does not."""
    if is_tuple(index) or gathers(index):
        return [slice(None)] * mask_dim(index)
    return [basic(index)]


def mask_dim(index: Cell) -> int:
    """How many dimensions an index that gathers takes: a mask all that it has."""
    match read(index):
        case Column(tag="tensor", table=table, event_shape=shape) if table.dtype in MASKS:
            return len(shape)
        case Uniform(obj=Tensor() as obj) if obj.dtype in MASKS:
            return obj.dim()
    return 1


def parts_of(index: Cell) -> list[Cell]:
    whole = index.value
    return list(whole.children()) if type(whole) is Container and whole.type is tuple else [index]


def ungathered(index: Cell, basic: Callable[[Cell], Any]) -> tuple[Any, ...]:
    """An index with slices for what gathers: torch takes that part, and writes into it."""
    return tuple(place for part in parts_of(index) for place in picked(part, basic))


def masks(index: Cell) -> bool:
    """Whether a mask is in an index: torch may then fill, and looks at no overlap."""
    return any(is_mask(part) for part in walks.parts(index))


def is_mask(part: Cell) -> bool:
    match read(part):
        case Column(tag="tensor", table=table):
            return table.dtype in MASKS
        case Uniform(obj=Tensor() as obj):
            return obj.dtype in MASKS
    return False


def plain(index: Cell) -> Any:
    if gathers(index):
        return ungathered(index, plain)
    match index.value:
        case Uniform(obj=int() | None | slice() | EllipsisType() | tuple() as obj):
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
