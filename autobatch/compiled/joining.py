"""One result for all threads, of what they have returned in machine code and elsewhere.

Results of several types become one as the results of a batch are stacked; what threads that had
given up have returned is written among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from autobatch.values.cells import (
    NUMBER_DTYPES,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    fits_column,
)

Part = tuple[np.ndarray, Cell]
"""Threads, and what they have returned."""


def joined(parts: Sequence[Part], others: Sequence[Part], size: int) -> Cell | None:
    """The results of all threads; None where they do not stack here.

    ``parts`` come from machine code and have a row for each thread of the batch, the results of
    ``others`` only for their own.
    """
    value = parts[0][1] if len(parts) == 1 else stacked(parts, size)
    if value is None or not all(filled(value, other, rows) for rows, other in others):
        return None
    return value


def stacked(parts: Sequence[Part], size: int) -> Cell | None:
    """Results of several types as one; None where they do not stack.

    Columns of several kinds meet in torch's common dtype, a number that meets tensors as the tensor
    that it makes (as ``results.stacked_leaves`` has it, value by value).
    """
    rows_of = [rows for rows, _ in parts]
    values = [cell.value for _, cell in parts]
    columns = [value for value in values if type(value) is Column]
    if len(columns) == len(values):
        whole = stacked_columns(list(zip(rows_of, columns, strict=True)), size)
        return None if whole is None else Cell(Column(whole))
    objects = [value.obj for value in values if type(value) is Uniform]
    if len(objects) == len(values):
        items = np.empty(size, dtype=object)
        for rows, obj in zip(rows_of, objects, strict=True):
            items[rows] = [obj] * len(rows)
        return Cell(Objects(items.tolist()))
    containers = [value for value in values if isinstance(value, Container)]
    first = containers[0] if len(containers) == len(values) else None
    if first is None or not all(like(first, other) for other in containers):
        return None
    inner: list[Cell] = []
    for each in zip(*(container.children() for container in containers), strict=True):
        part = stacked(list(zip(rows_of, each, strict=True)), size)
        if part is None:
            return None
        inner.append(part)
    if isinstance(first.cells, dict):
        return Cell(Container(first.type, dict(zip(first.cells, inner, strict=True))))
    return Cell(Container(first.type, inner))


def stacked_columns(columns: Sequence[tuple[np.ndarray, Column]], size: int) -> Tensor | None:
    """Columns as one; None where their tensors have other shapes."""
    events = {column.data.shape[1:] for _, column in columns}
    if len(events) > 1:
        return None
    mixed = any(column.tag == "tensor" for _, column in columns)
    dtypes = [met(column, mixed) for _, column in columns]
    dtype = dtypes[0]
    for other in dtypes[1:]:
        dtype = torch.promote_types(dtype, other)
    made = torch.empty((size, *events.pop()), dtype=dtype, device="cpu")
    for rows, column in columns:
        index = torch.from_numpy(rows)
        made[index] = column.data[index].to(dtype)
    return made


def met(column: Column, mixed: bool) -> torch.dtype:
    """The dtype of a column's rows where results stack; ``mixed``: some of them are tensors."""
    if column.tag == "float" and mixed:
        return torch.get_default_dtype()
    return column.data.dtype if column.tag == "tensor" else NUMBER_DTYPES[column.tag]


def like(mine: Container, theirs: object) -> bool:
    """Whether two containers are of one kind, with as many parts of the same names."""
    return (
        isinstance(theirs, Container)
        and theirs.type is mine.type
        and len(theirs.cells) == len(mine.cells)
        and (not isinstance(mine.cells, dict) or list(mine.cells) == list(theirs.cells))
    )


def filled(own: Cell, other: Cell, rows: np.ndarray) -> bool:
    """Whether what threads have returned elsewhere is like the results, and now among them."""
    pairs = list(matched(own, other))
    if not all(fits for fits, _, _ in pairs):
        return False
    index = torch.from_numpy(rows)
    for _, column, data in pairs:
        if column is not None and data is not None:
            column.data[index] = data
    return True


def matched(own: Cell, other: Cell) -> Iterator[tuple[bool, Column | None, Tensor | None]]:
    """The columns of a result, each with what belongs there; whether that is the like of it."""
    mine, theirs = own.value, other.value
    if isinstance(mine, Container):
        fits = like(mine, theirs)
        yield fits, None, None
        if fits and isinstance(theirs, Container):
            for one, another in zip(mine.children(), theirs.children(), strict=True):
                yield from matched(one, another)
    elif isinstance(mine, Column):
        data = likeness(mine, theirs)
        yield data is not None, mine, data
    else:
        yield getattr(theirs, "obj", None) is getattr(mine, "obj", mine), None, None


def likeness(mine: Column, theirs: object) -> Tensor | None:
    """The rows of a column of the same kind; None if it is of another."""
    if isinstance(theirs, Column) and theirs.tag == mine.tag:
        same = theirs.data.dtype is mine.data.dtype
        same = same and theirs.data.shape[1:] == mine.data.shape[1:]
        return theirs.data if same else None
    obj = getattr(theirs, "obj", None)
    if mine.tag != "tensor" and type(obj).__name__ == mine.tag and fits_column(obj):
        return torch.tensor(obj, dtype=mine.data.dtype, device="cpu")
    if isinstance(obj, Tensor) and mine.tag == "tensor" and obj.shape == mine.data.shape[1:]:
        return obj if obj.dtype is mine.data.dtype else None
    return None
