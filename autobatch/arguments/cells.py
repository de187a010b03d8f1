"""Cells for arguments: what is mapped becomes columns and objects, containers the program's own.

In: a tree with ``Mapped`` leaves. Out: a cell with a row for each thread, private to it; what all
threads share is uniform.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from autobatch import structure
from autobatch.arguments.mapped import (
    Mapped,
    Memo,
    has_mapped,
    is_copied,
    part_of,
    private,
    row_of,
    tree_leaves,
    tree_row,
)
from autobatch.batching.objects.classes import is_plain_class
from autobatch.ragged import Packed
from autobatch.values.cells import Cell, Column, Container, Objects, Uniform, fits_column


@dataclass(slots=True, eq=False, repr=False)
class Given:
    """What the arguments of a call have become so far, by ``id``: cells, and rows' own objects."""

    scalars: str
    cells: dict[int, Cell] = field(default_factory=dict)
    rows: defaultdict[int, Memo] = field(default_factory=lambda: defaultdict(dict))


def cell_of(arg: Any, given: Given) -> Cell:
    """A cell for an argument: its pytree containers become the program's own."""
    scalars, memo = given.scalars, given.cells
    if isinstance(arg, Mapped):
        if isinstance(arg.data, list):
            items = list(arg.data)
            for row, item in enumerate(items):
                if is_copied(item):
                    items[row] = private(item, memo=given.rows[row])
            return Cell(Objects(items))
        if isinstance(arg.data, Packed):
            return arg.data.cell()
        return column_of(arg.data, scalars)
    known = memo.get(id(arg))
    if known is not None:
        return known
    cell = memo[id(arg)] = Cell(Uniform(arg))
    kind = type(arg)
    if kind is list:
        cell.value = Container(kind, [cell_of(item, given) for item in arg])
    elif kind is dict:
        parts = {key: cell_of(item, given) for key, item in arg.items()}
        cell.value = Container(dict, parts)
    elif isinstance(arg, tuple) and not isinstance(arg, torch.Size):
        cell.value = Container(kind, [cell_of(item, given) for item in arg])
    elif structure.is_record(arg) and is_plain_class(kind) and has_mapped(arg):
        parts = {name: cell_of(getattr(arg, name), given) for name in structure.attributes(arg)}
        cell.value = Container(kind, parts)
    elif not isinstance(arg, Tensor):
        cell.value = rows_of(arg, scalars) or Uniform(arg, shared=True)
    return cell


def rows_of(arg: Any, scalars: str) -> Objects | None:
    """Other pytree containers (``OrderedDict``, ``deque``): one real object for each thread."""
    mapped = [leaf for leaf in tree_leaves(arg) if isinstance(leaf, Mapped)]
    if not mapped:
        return None
    return Objects([tree_row(arg, index, scalars) for index in range(len(mapped[0]))])


def column_of(data: Tensor, scalars: str) -> Cell:
    """A mapped tensor ``[B, *E]``; rows without dimensions may be numbers, as ``scalars`` says.

    A row is a contiguous copy, whatever the layout of the whole, and whether that is conjugated or
    negated only as it is read. Sparse tensors do not meet others in one column, so each thread has
    its own.
    """
    if data.layout is not torch.strided:
        return Cell(Objects([row_of(part_of(data, row), scalars) for row in range(len(data))]))
    if data.is_conj() or data.is_neg():
        data = data.resolve_conj().resolve_neg()
    if data.dim() > 1:
        data = data.contiguous()
    if scalars == "tensor" or data.dim() > 1:
        return Cell(Column(data))
    if data.is_complex():
        return Cell(Objects(data.tolist()))
    if data.dtype is torch.bool:
        return Cell(Column(data, "bool"))
    if data.dtype.is_floating_point:
        return Cell(Column(data.to(torch.float64), "float"))
    if data.dtype is torch.uint64:
        numbers = data.tolist()
        if not all(map(fits_column, numbers)):
            return Cell(Objects(numbers))
    return Cell(Column(data.to(torch.int64), "int"))
