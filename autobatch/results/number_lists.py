"""Lists of numbers as tensors, one for each example: for ``ragged_out="nested"`` and ``"pad"``.

``[3, 1]`` is a tensor ``[2]``, ``[(0, 0), (0, 1), (1, 1)]`` one ``[3, 2]``: lists and tuples that
nest to a box of numbers. All examples' tensors have the dtype that holds their numbers (bool,
int64, float64, complex128, or one of numpy's), so that it is a matter of the numbers' types alone;
where no list has a number it is torch's default, as of ``torch.tensor([])``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from autobatch import firsthand
from autobatch.structure import is_tuple_type
from autobatch.values.cells import Cell, Column, Container, Objects, Uniform, read
from autobatch.values.numbers import fits_tensor, is_stacking_number, number_dtype, number_tensor

Shape = tuple[int, ...]


class Misfit(Exception):
    """Lists of numbers that make no tensors: its text says why."""


def is_sequence(kind: Any) -> bool:
    return kind is list or is_tuple_type(kind)


def numbers_in(item: Any) -> Iterator[Any]:
    """What lists and tuples lead to, in order."""
    pending = [item]
    while pending:
        node = pending.pop()
        if is_sequence(type(node)):
            pending += reversed(node)
        else:
            yield node


def are_of_numbers(items: Sequence[Any]) -> bool:
    """Whether values, one for each example, are lists with nothing but numbers in them."""
    if not items or not all(type(item) is list for item in items):
        return False
    return all(is_stacking_number(leaf) for item in items for leaf in numbers_in(item))


def tensors_of(items: Sequence[Any], device: torch.device | None) -> list[Tensor]:
    """The tensors ``[length, *E]`` of such lists; ``Misfit`` where they are none."""
    numbers = [list(numbers_in(item)) for item in items]
    if not all(fits_tensor(each) for own in numbers for each in own):
        raise Misfit("an int is too large for a tensor")
    dtypes = {number_dtype(each) for own in numbers for each in own}
    dtype = reduce(torch.promote_types, dtypes) if dtypes else torch.get_default_dtype()
    shapes = list(map(shape_of, items))
    inner = next((shape[1:] for shape in shapes if shape[0]), ())
    if any(shape[0] and shape[1:] != inner for shape in shapes):
        raise Misfit("what they hold is of several lengths")
    return [
        firsthand.reshape(firsthand.tensor(own, dtype=dtype, device=device), (shape[0], *inner))
        for own, shape in zip(numbers, shapes, strict=True)
    ]


def shape_of(item: Any) -> Shape:
    """The shape of a box of numbers."""
    if not is_sequence(type(item)):
        return ()
    inner = {shape_of(part) for part in item}
    if len(inner) > 1:
        raise Misfit("what they hold is of several lengths")
    return (len(item), *(inner.pop() if inner else ()))


def of_numbers(cell: Cell) -> bool | None:
    """Whether a program's list holds nothing but numbers; None where real values are to tell."""
    value = read(cell)
    match value:
        case Column(tag=tag):
            return tag != "tensor"
        case Uniform(obj=obj):
            return is_stacking_number(obj) or (None if is_sequence(type(obj)) else False)
        case Objects():
            return None
        case Container(type=kind) if is_sequence(kind):
            found = {of_numbers(child) for child in value.children()}
            return False if False in found else None if None in found else True
    return False


def table_of(cell: Cell, k: int, device: torch.device) -> Tensor:
    """The numbers of a program's list, ``[k, length, *E]``; ``Misfit`` where that is no box."""
    value = read(cell)
    if type(value) is Column:
        return value.data
    if type(value) is Uniform:
        if not fits_tensor(value.obj):
            raise Misfit("an int is too large for a tensor")
        return number_tensor(value.obj, device).expand(k)
    assert type(value) is Container
    parts = [table_of(child, k, device) for child in value.children()]
    if not parts:
        return torch.zeros(k, 0, device=device)
    if len({part.shape for part in parts}) > 1:
        raise Misfit("what they hold is of several lengths")
    dtype = reduce(torch.promote_types, {part.dtype for part in parts})
    return torch.stack([part.to(dtype) for part in parts], 1)
