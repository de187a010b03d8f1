"""Between cells and the trees of operands that ``vmapped`` takes.

A tree's leaves are ``Batched`` tensors, tensors that are the same for all threads, and other
Python objects. Number columns join as the Python numbers that they hold would: weakly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from autobatch.batching.effects import is_library
from autobatch.batching.levels import Batched
from autobatch.values.cells import (
    SEQUENCE_ITERATOR,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    read,
    uniform,
)
from autobatch.values.heap import walks

ASKED = ("index", "int", "float", "complex", "bool", "array", "dlpack", "len", "getitem")
"""Special methods by which torch takes what is no tensor or number, once for each thread."""
SAMPLES: dict[str, Any] = {"bool": True, "int": 1, "float": 1.0}


class NotATree(Exception):
    """The cells hold objects or things that are no torch operand; the operation runs by thread."""


def contents(cells: Iterable[Cell], visit: Callable[[Any], None]) -> None:
    """Call ``visit`` with each leaf value that the cells reach through containers, in order.

    What a container holds is visited once, however many names it has.
    """
    waiting, seen = list(cells)[::-1], set[int]()
    while waiting:
        cell = waiting.pop()
        value = read(cell)
        if type(value) is not Container:
            visit(value)
        elif id(cell) not in seen:
            seen.add(id(cell))
            waiting += list(value.children())[::-1]


def tensor_dtype(cells: Iterable[Cell]) -> torch.dtype | None:
    """The dtype to which the operands that are tensors promote, None if there are none."""
    dtypes: list[torch.dtype] = []

    def visit(value: Any) -> None:
        if type(value) is Column and value.tag == "tensor":
            dtypes.append(value.table.dtype)
        elif type(value) is Uniform and isinstance(value.obj, Tensor):
            dtypes.append(value.obj.dtype)

    contents(cells, visit)
    if not dtypes:
        return None
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = torch.promote_types(result, dtype)
    return result


def weak(column: Column, like: torch.dtype | None) -> Tensor:
    """A number column as an operand: in the dtype that its Python numbers would take."""
    if like is None:
        return column.data
    dtype = torch.result_type(torch.empty((1,), dtype=like, device="meta"), SAMPLES[column.tag])
    return column.data if dtype == column.data.dtype else column.data.to(dtype)


def tree_of(cell: Cell, like: torch.dtype | None) -> Any:
    """The operand tree that a cell stands for; ``like`` is where number columns are to join."""
    if walks.holds_itself(cell):
        raise NotATree
    return _tree_of(cell, like)


def _tree_of(cell: Cell, like: torch.dtype | None) -> Any:
    value = read(cell)
    match value:
        case Uniform(obj=obj):
            own: Any = type(obj)
            if is_asked(own):
                raise NotATree
            return obj
        case Column(data=data, tag=tag):
            return Batched(data if tag == "tensor" else weak(value, like))
        case Container(type=kind):
            parts = [_tree_of(child, like) for child in value.children()]
            if kind is dict:
                return dict(zip(value.cells, parts, strict=True))
            if kind in (list, tuple):
                return kind(parts)
            if kind is torch.Size:
                return tuple(parts)
            if kind is slice or (isinstance(kind, type) and hasattr(kind, "_fields")):
                return kind(*parts)
            if isinstance(kind, type) and issubclass(kind, tuple):
                return kind(parts)
        case Objects():
            pass
    raise NotATree


@cache
def is_asked(kind: Any) -> bool:
    """Whether torch asks an instance for what it is, by Python code of the user's."""
    methods = (getattr(kind, f"__{name}__", None) for name in ASKED)
    is_torchs = issubclass(kind, Tensor | nn.Module)
    return not is_torchs and any(type(m) is FunctionType and not is_library(m) for m in methods)


def cell_of(tree: Any) -> Cell:
    """The cell for a result tree: its tensors private to the threads, its structure shared."""
    if type(tree) is Batched:
        return Cell(Column(tree.data))
    if isinstance(tree, Tensor):
        return uniform(tree)
    return container_of(tree, cell_of)


def container_of(obj: Any, make: Callable[[Any], Cell]) -> Cell:
    """A fresh Python structure as containers of cells; ``make`` makes the cells of its parts."""
    kind = type(obj)
    if isinstance(obj, Iterator):
        parts = Cell(Container(tuple, [make(item) for item in obj]))
        return Cell(Container(SEQUENCE_ITERATOR, [uniform(0), parts]))
    if kind in (list, set):
        return Cell(Container(kind, [make(item) for item in obj]))
    if kind is dict:
        return Cell(Container(dict, {key: make(item) for key, item in obj.items()}))
    if isinstance(obj, tuple) and not isinstance(obj, torch.Size):
        if all(is_plain(item) for item in obj):
            return uniform(obj)
        return Cell(Container(kind, [make(item) for item in obj]))
    return uniform(obj)


def is_plain(obj: Any) -> bool:
    """Immutable through and through, so one object may stand for all threads."""
    if isinstance(obj, tuple):
        return all(map(is_plain, obj))
    return obj is None or isinstance(
        obj, bool | int | float | complex | str | bytes | torch.dtype | torch.device | range
    )
