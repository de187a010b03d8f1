"""From the threads' results to what the caller gets.

Numbers and tensors stack along a new dimension 0, structures (see ``structure``) are those of one
example with stacked leaves, anything else is a list of B, and so is a list that holds neither (see
``own_lists``). Structures that differ between threads are an error. Where ``ragged_out`` is set,
lists are no structures: each example has its own, or a tensor of it (see ``number_lists``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

from autobatch import firsthand
from autobatch.ragged import FORMS, collected
from autobatch.results.mismatch import (
    Part,
    differ_in_length,
    dtypes_differ,
    lists_misfit,
    shapes_differ,
    structures_differ,
)
from autobatch.results.nesting import roomy, structures
from autobatch.results.number_lists import (
    Misfit,
    are_of_numbers,
    of_numbers,
    table_of,
    tensors_of,
)
from autobatch.results.own_lists import are_own, is_made, may_be_listed, may_be_own
from autobatch.structure import (
    Form,
    form_of,
    is_collection,
    is_structure,
    mapped,
)
from autobatch.values.cells import (
    PACKED,
    Cell,
    Column,
    Container,
    Uniform,
    read,
)
from autobatch.values.numbers import (
    are_fitting,
    are_stacking_numbers,
    beside_tensors,
    fits_tensor,
    is_stacking_number,
    number_tensor,
    numbers_tensor,
)


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
    part: Part,
) -> Any:
    """The result for the threads of one group; ``rows`` gives a cell's real values."""
    value = read(cell)
    if type(value) is Container and value.type is list and part.has_own_lists:
        own = own_lists(cell, k, device, rows, part)
        if own is not None:
            return own
    match value:
        case Column(data=data):
            if part.ragged == "list" and data.dim() > 1:
                return as_ragged(rows(cell), data[:0], part)
            return whole(data, part)
        case Uniform(obj=obj):
            if isinstance(obj, Tensor):
                return whole(obj.clone().expand(k, *obj.shape), part)  # it may be the caller's
            if fits_tensor(obj):
                return number_tensor(obj, device).expand(k).clone()
            if not is_structure(obj):
                return Batchless([obj] * k)
        case Container(type=kind) if is_made(kind) and not is_own(value, part):
            form = form_of_container(value)
            inner = zip(value.children(), part.inside(form), strict=True)
            return form.made([stacked_cell(c, k, device, rows, own) for c, own in inner])
        case Container(type=kind, static=table) if kind is PACKED and part.ragged is not None:
            return as_ragged(rows(cell), table[None, :0][:0], part)
    return stacked_rows(rows(cell), device, part)


def own_lists(
    cell: Cell,
    k: int,
    device: torch.device,
    rows: Callable[[Cell], list[Any]],
    part: Part,
) -> Any:
    """A program's list as ``ragged_out`` wants each example's own; None where it is a structure."""
    numbers = None if part.ragged == "list" else of_numbers(cell)
    if numbers is None:
        return stacked_rows(rows(cell), device, part)
    if not numbers:
        return None
    try:
        return whole(table_of(cell, k, device), part)
    except Misfit as misfit:
        raise lists_misfit(rows(cell), part, misfit) from None


def whole(data: Tensor, part: Part) -> Any:
    """``[k, *E]``, or as ``ragged_out`` wants it where a row has a length."""
    if part.ragged is None or (part.ragged in FORMS and data.dim() < 2):
        return data
    return as_ragged(list(data.unbind()), data[:0], part)


def as_ragged(rows: Sequence[Tensor], none: Tensor, part: Part) -> Any:
    """One tensor for each thread in the form of ``ragged_out``; ``none`` has no row."""
    if part.ragged not in FORMS:
        raise part.misfit()
    made = collected(rows, none, part.ragged, part.offsets)
    return Batchless(made) if type(made) is list else made


def is_own(value: Container, part: Part) -> bool:
    """Whether it may be a list that is each example's own."""
    return value.type is list and may_be_own(value, part.holding)


def form_of_container(value: Container) -> Form:
    keys = value.cells if isinstance(value.cells, dict) else range(len(value.cells))
    return Form(value.type, tuple(keys))


def stacked_rows(items: Sequence[Any], device: torch.device, part: Part) -> Any:
    """The result for one real value per thread; ``part`` says which part of the whole it is."""
    first: Any = items[0] if items else None
    if part.has_own_lists and any(type(item) is list for item in items):
        if part.ragged == "list":
            return listed(items, part)
        if are_of_numbers(items):
            return tabled(items, device, part)
    if any(isinstance(item, Tensor) or is_stacking_number(item) for item in items):
        return stacked_leaves(items, device, part)
    if part.rings and any(id(item) in part.rings for item in items):
        return stacked_rings(items, part)
    if is_collection(first):
        return stacked_collections(items, part)
    if type(first) is list and are_own(items, part.holding):
        return Batchless(items)
    form = form_of(first)
    if form is None:
        if any(is_structure(item) or is_collection(item) for item in items):
            raise structures_differ(items, part)
        return Batchless(items)
    if not all(map(form.fits, items)):
        raise structures_differ(items, part)
    columns = zip(*map(form.parts, items), strict=True)
    inner = zip(columns, part.inside(form), strict=True)
    return form.made([stacked_rows(column, device, own) for column, own in inner])


def listed(items: Sequence[Any], part: Part) -> Any:
    """Each example's own list; some may have what comes back in a list anyway, as None does."""
    if not may_be_listed(items):
        raise structures_differ(items, part)
    return Batchless(items)


def tabled(items: Sequence[Any], device: torch.device, part: Part) -> Any:
    """Lists of numbers as one tensor for each example."""
    try:
        tensors = tensors_of(items, device)
    except Misfit as misfit:
        raise lists_misfit(items, part, misfit) from None
    return as_ragged(tensors, tensors[0][None, :0], part)


def stacked_rings(items: Sequence[Any], part: Part) -> Any:
    """Structures that hold themselves do not stack, nor with what is none."""
    if not all(id(item) in part.rings or not is_structure(item) for item in items):
        raise structures_differ(items, part)
    return Batchless(items)


def stacked_collections(items: Sequence[Any], part: Part) -> Any:
    """One ``TensorDict`` or the like of those of all threads, by its own ``torch.stack``."""
    if not all(type(item) is type(items[0]) for item in items):
        raise structures_differ(items, part)
    try:
        return firsthand.stack(list(items))
    except RuntimeError as error:
        raise structures_differ(items, part) from error


def stacked_leaves(items: Sequence[Any], device: torch.device | None, part: Part) -> Any:
    if are_stacking_numbers(items):
        if not are_fitting(items):
            return Batchless(items)
        if len(set(map(type, items))) == 1:
            return numbers_tensor(list(items), device)
        tensors = [number_tensor(item, device) for item in items]
    elif all(isinstance(item, Tensor) or fits_tensor(item) for item in items):
        tensors = [beside_tensors(item, device) for item in items]
    else:
        raise structures_differ(items, part)
    are_unlike = len({tensor.shape for tensor in tensors}) > 1
    ragged = part.ragged is not None and differ_in_length(tensors)
    ragged = ragged or (part.ragged == "list" and are_unlike)
    if not ragged and are_unlike:
        raise shapes_differ(tensors, part)
    try:
        dtype = reduce(firsthand.promote_types, (tensor.dtype for tensor in tensors))
    except RuntimeError as error:
        raise dtypes_differ(tensors, part) from error
    # A float goes to it at once: by way of a narrower default dtype it would lose what it holds.
    tensors = [
        firsthand.tensor(item, dtype=dtype, device=tensor.device)
        if type(item) in (float, complex)
        else firsthand.to(tensor, dtype)
        for item, tensor in zip(items, tensors, strict=True)
    ]
    if ragged:
        return as_ragged(tensors, firsthand.getitem(tensors[0], (None, slice(0))), part)
    return firsthand.stack(tensors)


def plain(result: Any) -> Any:
    """The result with its lists of B as ordinary lists."""
    if isinstance(result, Tensor):
        return result
    made = partial(
        mapped,
        lambda leaf: list(leaf) if isinstance(leaf, Batchless) else leaf,
        result,
        lambda part: isinstance(part, Batchless | Result),
    )
    return roomy(made, lambda: len(structures([result])))


class Batchless(list[Any]):
    """A list of B results that do not stack."""
