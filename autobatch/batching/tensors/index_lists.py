"""``x[[i, j]]`` with a thread's own ints in the list: the index tensor that torch makes of it.

In: the index of a tensor. Out: the same index, each list of ints in it as a column ``[k, n]``. A
list that holds a tensor is left as it is: torch takes such a list for a tuple.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.values.cells import Cell, Column, Container, Uniform, fits_column, read


def as_tensors(context: Context, index: Cell) -> Cell:
    """The index with its lists of ints as index tensors, the same cell if there are none."""
    value = read(index)
    if type(value) is not Container:
        return index
    if value.type is list:
        return tensor_of(context, value) or index
    if value.type is not tuple:
        return index
    given = value.children()
    made = [as_tensors(context, part) if is_list(part) else part for part in given]
    same = all(new is old for new, old in zip(made, given, strict=True))
    return index if same else Cell(Container(tuple, made))


def is_list(part: Cell) -> bool:
    value = read(part)
    return type(value) is Container and value.type is list


def tensor_of(context: Context, numbers: Container) -> Cell | None:
    """The ints of a list, ``[k, n]``; None where they are not all ints, or no thread's own."""
    parts = [own_int(read(child)) for child in numbers.children()]
    if not any(isinstance(part, Tensor) for part in parts):
        return None
    columns = []
    for part in parts:
        if part is None:
            return None
        column = torch.as_tensor(part, dtype=torch.int64, device=context.device)
        columns.append(column.expand(context.k))
    return Cell(Column(torch.stack(columns, 1)))


def own_int(value: object) -> Tensor | int | None:
    """An int of the threads' own, ``[k]``, or of all; None for anything else."""
    if type(value) is Column and value.tag == "int":
        return value.data
    if type(value) is Uniform and type(value.obj) is int and fits_column(value.obj):
        return value.obj
    return None
