"""From the threads' results to what the caller gets.

Numbers and tensors stack along a new dimension 0, structures are those of one example with
stacked leaves, anything else is a list of B. Structures that differ between threads are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from autobatch.mismatch import Part, differ_in_length, shapes_differ, structures_differ
from autobatch.ragged import FORMS, collected
from autobatch.vm.values import (
    NUMBER_DTYPES,
    NUMBER_TAGS,
    PACKED,
    Cell,
    Column,
    Container,
    Uniform,
    fits_column,
    is_number,
    read,
)

WHOLE = Part()


@dataclass(frozen=True, slots=True)
class Result:
    """What one thread has returned, or raised: ``exception`` is None if it has returned.

    ``value`` is what the plain function returns for the thread's example, not stacked. The
    exception has no traceback; its note says where it arose and in which thread.
    """

    value: Any = None
    exception: BaseException | None = None


def stacked_cell(
    cell: Cell,
    k: int,
    device: torch.device,
    rows: Callable[[Cell], list[Any]],
    part: Part = WHOLE,
) -> Any:
    """The result for the threads of one group; ``rows`` gives a cell's real values."""
    value = read(cell)
    match value:
        case Column(data=data):
            return whole(data, part)
        case Uniform(obj=obj):
            if isinstance(obj, Tensor):
                return whole(obj.expand(k, *obj.shape), part)
            if fits_column(obj):
                dtype = NUMBER_DTYPES[NUMBER_TAGS[type(obj)]]
                return torch.full((k,), obj, dtype=dtype, device=device)
            if not is_structure(obj):
                return Batchless([obj] * k)
        case Container(type=kind) if kind is list or is_tuple_type(kind):
            inner = zip(value.children(), part.inside(range(len(value.cells))), strict=True)
            return rebuilt(kind, (stacked_cell(c, k, device, rows, own) for c, own in inner))
        case Container(type=kind, cells=cells) if kind is dict and isinstance(cells, dict):
            inner = zip(cells.values(), part.inside(cells), strict=True)
            made = [stacked_cell(c, k, device, rows, own) for c, own in inner]
            return dict(zip(cells, made, strict=True))
        case Container(type=kind, static=table) if kind is PACKED and part.ragged is not None:
            return as_ragged(rows(cell), table[None, :0][:0], part)
    return stacked_rows(rows(cell), device, part)


def whole(data: Tensor, part: Part) -> Any:
    """``[k, *E]``, or as ``ragged_out`` wants it where a row has a length."""
    if part.ragged is None or (part.ragged in FORMS and data.dim() < 2):
        return data
    return as_ragged(list(data.unbind()), data[:0], part)


def as_ragged(rows: Sequence[Tensor], none: Tensor, part: Part) -> Any:
    """One tensor for each thread in the form of ``ragged_out``; ``none`` has no row."""
    if part.ragged not in FORMS:
        raise part.misfit()
    made = collected(rows, none, part.ragged)
    return Batchless(made) if type(made) is list else made


def is_tuple_type(kind: Any) -> bool:
    """Tuples, named tuples and ``torch.return_types``; a shape is one object."""
    return isinstance(kind, type) and issubclass(kind, tuple) and kind is not torch.Size


def is_structure(obj: Any) -> bool:
    return type(obj) in (list, dict) or is_tuple_type(type(obj))


def rebuilt(kind: Any, parts: Iterable[Any]) -> Any:
    """A list, tuple or named tuple of other parts."""
    return kind(*parts) if hasattr(kind, "_fields") else kind(list(parts))


def stacked_rows(items: Sequence[Any], device: torch.device, part: Part = WHOLE) -> Any:
    """The result for one real value per thread; ``part`` says which part of the whole it is."""
    first: Any = items[0] if items else None
    if any(isinstance(item, Tensor) or is_number(item) for item in items):
        return stacked_leaves(items, device, part)
    if not is_structure(first):
        if any(is_structure(item) for item in items):
            raise structures_differ(items, part)
        return Batchless(items)
    spec = outline(first)
    for item in items:
        if outline(item) != spec:
            raise structures_differ(items, part)
    if isinstance(first, dict):
        named = zip(first, part.inside(first), strict=True)
        return {key: stacked_rows([item[key] for item in items], device, own) for key, own in named}
    inner = zip(zip(*items, strict=True), part.inside(range(len(first))), strict=True)
    return rebuilt(type(first), (stacked_rows(row, device, own) for row, own in inner))


def outline(item: Any) -> Any:
    """The top of a structure: what must agree for results to stack."""
    if isinstance(item, dict):
        return (dict, tuple(item))
    if is_structure(item):
        return (type(item), len(item))
    return None


def stacked_leaves(items: Sequence[Any], device: torch.device, part: Part) -> Any:
    if all(is_number(item) for item in items):
        if not all(map(fits_column, items)):
            return Batchless(items)
        tensors = [torch.tensor(item, dtype=number_dtype(item), device=device) for item in items]
    elif all(isinstance(item, Tensor) or fits_column(item) for item in items):
        tensors = [
            item if isinstance(item, Tensor) else torch.as_tensor(item, device=device)
            for item in items
        ]
    else:
        raise structures_differ(items, part)
    ragged = part.ragged is not None and differ_in_length(tensors)
    if not ragged and len({tensor.shape for tensor in tensors}) > 1:
        raise shapes_differ(tensors, part)
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    tensors = [tensor.to(dtype) for tensor in tensors]
    if ragged:
        return as_ragged(tensors, tensors[0][None, :0], part)
    return torch.stack(tensors)


def number_dtype(item: Any) -> torch.dtype:
    return NUMBER_DTYPES[NUMBER_TAGS[type(item)]]


def plain(result: Any) -> Any:
    """The result with its lists of B as ordinary lists."""
    if isinstance(result, Tensor):
        return result
    return pytree.tree_map(lambda leaf: list(leaf) if isinstance(leaf, Batchless) else leaf, result)


class Batchless(list[Any]):
    """A list of B results that do not stack."""
