"""What lets groups meet that are not alike: values that one has and the other could.

In: two groups that wait at one block. Out: one of them with other values for the same; None where
there are none such. A number that meets a 0-d tensor joins it. Where it does not matter which names
mean one tensor, a tensor ``[n, *E]`` that meets packed rows is packed, too: what ``x[mask]`` gives
where every thread picks as many, a single one at the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from autobatch.values import packs
from autobatch.values.cells import (
    NUMBER_TAGS,
    Bounds,
    Cell,
    Column,
    Uniform,
    View,
    as_column,
    is_number,
    read,
)
from autobatch.values.heap import likeness
from autobatch.vm.groups import Group

Rule = Callable[[Group, Cell, Cell], Cell | None]
"""What a cell becomes that is to be like another: itself if it need not; None if it cannot."""


def changed(group: Group, other: Group, names: Sequence[str], rule: Rule) -> Group | None:
    """``group`` with its values as a rule makes them; None if that changes nothing."""
    changes: dict[str, Cell] = {}
    for name in names:
        mine, theirs = group.env.get(name), other.env.get(name)
        if mine is None or theirs is None:
            if mine is not theirs:
                return None
            continue
        made = rule(group, mine, theirs)
        if made is None:
            return None
        if made is not mine:
            changes[name] = made
    return Group(group.rows, {**group.env, **changes}) if changes else None


def packed(group: Group, other: Group, names: Sequence[str]) -> Group | None:
    """``group`` with tensors as packed rows where ``other`` has such; no name may matter."""
    return changed(group, other, names, as_packed)


def as_packed(group: Group, mine: Cell, theirs: Cell) -> Cell | None:
    if View in (type(mine.value), type(theirs.value)) and not are_alike(mine, theirs):
        mine, theirs = Cell(read(mine)), Cell(read(theirs))
    value, like = mine.value, theirs.value
    if not packs.is_packed(like) or type(value) not in (Column, Uniform):
        return mine
    if type(value) is Uniform and likeness.is_worth_keeping(value.obj, group.k):
        return None
    column = as_column(value, group.k, like.static.device)
    if column is None or not are_rows(column, like.static):
        return None
    return Cell(packs.rows_of(column))


def are_alike(one: Cell, other: Cell) -> bool:
    return likeness.alike([one], blind=True) == likeness.alike([other], blind=True)


def are_rows(column: Column, table: Tensor) -> bool:
    """Whether each thread has a tensor of rows such as there are in a table."""
    own = column.table
    is_tensor = column.tag == "tensor" and own.dim() == table.dim() + 1
    return is_tensor and (own.dtype, own.shape[2:], own.device) == (
        table.dtype,
        table.shape[1:],
        table.device,
    )


def promoted(group: Group, other: Group, names: Sequence[str]) -> Group | None:
    """``group`` with the dtype of the 0-d tensors that ``other`` has where it has numbers.

    None unless every number in question fits exactly.
    """
    return changed(group, other, names, as_promoted)


def as_promoted(group: Group, mine: Cell, theirs: Cell) -> Cell | None:
    tensor = zero_dim(read(theirs))
    if tensor is None or zero_dim(read(mine)) is not None:
        return mine
    joined = joined_value(read(mine), tensor)
    return None if joined is None else Cell(joined)


def zero_dim(value: object) -> Tensor | None:
    """A tensor of the dtype and device of a value that is a 0-d tensor in each thread."""
    if type(value) is Column and value.tag == "tensor" and value.table.dim() == 1:
        return value.data
    if type(value) is Uniform and isinstance(value.obj, Tensor) and value.obj.dim() == 0:
        return value.obj
    return None


def joined_value(value: object, like: Tensor) -> Uniform | Column | None:
    """A number as the 0-d tensor of the dtype and device of ``like`` that behaves as it does.

    None where it is no number, where its kind of number is no kind that the dtype has (a float
    is no integer, a bool only a bool, an int none of the integers that wrap before int64 does),
    where the dtype may not hold its value, or where a float by itself is a tensor of a wider
    dtype (than float16, say): what the examples return would stack to that.
    """
    dtype = like.dtype
    if type(value) is Uniform and is_number(value.obj):
        obj = value.obj
        if not same_kind(NUMBER_TAGS[type(obj)], dtype) or is_wider(obj, dtype):
            return None
        try:
            tensor = torch.tensor(obj, dtype=dtype, device="cpu")  # to be looked at
        except (RuntimeError, OverflowError, ValueError):  # it does not fit
            return None
        is_held = tensor.item() == obj or obj != obj
        return Uniform(tensor.to(like.device)) if is_held else None
    if type(value) is Column and value.tag != "tensor" and same_kind(value.tag, dtype):
        exact = dtype is value.data.dtype or (value.tag == "int" and holds(dtype, value.bounds))
        return Column(value.data.to(dtype)) if exact else None
    return None


def is_wider(obj: object, dtype: torch.dtype) -> bool:
    """Whether a float by itself is a tensor of a dtype that is not to be had from ``dtype``."""
    return type(obj) is float and torch.promote_types(dtype, torch.get_default_dtype()) != dtype


def same_kind(tag: str, dtype: torch.dtype) -> bool:
    if tag == "bool" or dtype is torch.bool:
        return tag == "bool" and dtype is torch.bool
    if dtype.is_floating_point or dtype.is_complex:
        return True
    return tag == "int" and dtype is torch.int64


def holds(dtype: torch.dtype, bounds: Bounds | None) -> bool:
    """Whether a dtype has every int within the bounds."""
    if bounds is None:
        return False
    if dtype.is_floating_point or dtype.is_complex:
        return max(abs(bounds[0]), abs(bounds[1])) * torch.finfo(dtype).eps <= 2
    info = torch.iinfo(dtype)
    return info.min <= bounds[0] and bounds[1] <= info.max
