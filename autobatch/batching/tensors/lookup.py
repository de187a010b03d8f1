"""``x[i]`` on a tensor, with the thread looked up together with the index.

A large column that has been split is ``table[rows]``. Where only a part of each row is wanted,
``x[t]`` reads ``table[rows, t]`` at once, and the rows are never copied. For one example such a
part shares memory with ``x``, so the result is a view of the base's cell.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.applying import lying
from autobatch.batching.context import Context
from autobatch.batching.levels import Batched, event_dim
from autobatch.batching.tensors import index_lists, torch_ops, windows
from autobatch.batching.tensors.folding import folded, is_integer
from autobatch.batching.tensors.views import view_of, viewed
from autobatch.batching.trees import NotATree, tree_of
from autobatch.values.cells import Cell, Column, Container, Uniform, Value, read, shown_memory
from autobatch.values.layouts import are_seen


def getitem(context: Context, base: Cell, index: Cell) -> Cell:
    """``x[i]`` where ``x`` is a tensor."""
    value = read(base)
    basic, given = is_basic(index), index
    if type(read(index)) is Container:  # no other index holds a slice of a thread's own bounds
        index = windows.spread(context, shape_of(value), index)
        has_rows = type(value) is Column and value.event_shape
        part = windows.slice_of_ints(index) if has_rows else None
        if part is not None and windows.is_own(part):
            return Cell(viewed(operator.getitem, [base, index], {}, base, ()))
        index = index_lists.as_tensors(context, index)
    result: Cell | None = None
    if type(value) is Column and value.rows is not None:
        result = looked_up(context, value, value.rows, index)
    if result is None:
        result = torch_ops.apply(context, operator.getitem, [base, index], {}, False)
    if type(result.value) is Column and basic:
        result, steps = laid_out(value, given, result, given is not index)
        if type(value) is not Uniform or not value.shared:
            return view_of(operator.getitem, [base, index], {}, result, steps)
        result.value.outside = shown_memory(value) or True  # type: ignore[union-attr]
    return result


def laid_out(
    value: Value, index: Cell, result: Cell, gathered: bool
) -> tuple[Cell, lying.Steps | None]:
    """A part as it lies for one example, and how that is; None where nobody sees it.

    ``gathered``: integers stand for slices, which a tensor that is a thread's own is to have.
    """
    if not are_seen() and not gathered:
        return result, None
    whole = Batched(value.table) if type(value) is Column else value.obj  # type: ignore[union-attr]
    steps = steps_of(index, event_dim(whole))
    data = read(result).data  # type: ignore[union-attr]
    laid = lying.as_part(Batched(data), whole, steps)
    return (result if laid.data is data else Cell(Column(laid.data))), steps


def steps_of(index: Cell, dims: int) -> lying.Steps:
    """How a part picked by ints and slices lies in a tensor that has so many dimensions."""
    found: Any = tree_of(index, None)
    parts = windows.spelled_out(list(found) if type(found) is tuple else [found], dims)
    steps: list[tuple[int, int] | None] = []
    dim = 0
    for part in parts:
        if type(part) is slice:
            steps.append((dim, part.step or 1))
        elif part is None:
            steps.append(None)
        dim += part is not None
    return (*steps, *((left, 1) for left in range(dim, dims)))


def looked_up(context: Context, value: Column, rows: Tensor, index: Cell) -> Cell | None:
    """``value[index]`` with the thread looked up too; ``rows`` says where each thread's row is."""
    try:
        where = tree_of(index, None)
    except NotATree:
        return None
    found = folded(value.table, rows, where)
    if found is None:
        return None
    data, failed = found
    data = lying.as_one_example(
        operator.getitem, (Batched(value.table), where), {}, Batched(data)
    ).data
    if failed is not None:
        snapshot = [Cell(value), Cell(read(index))]
        context.check(
            failed,
            lambda row: torch_ops.one_row(context, operator.getitem, snapshot, row),
            torch_ops.index_into(index, value.table.shape[1]),
        )
    context.counter.launch()
    return Cell(Column(data))


def shape_of(value: Any) -> torch.Size:
    """The shape of one thread's tensor."""
    shape: torch.Size = value.event_shape if type(value) is Column else value.obj.shape
    return shape


def is_basic_part(part: Cell) -> bool:
    """The same of a part of an index, where a tuple is a list of numbers."""
    value = read(part)
    return is_basic(part) and not (type(value) is Container and value.type is tuple)


def is_basic(index: Cell) -> bool:
    """Whether the index selects a part that shares memory, for one example."""
    value = read(index)
    if type(value) is Container:
        if value.type is slice:
            return True
        return value.type is tuple and all(map(is_basic_part, value.children()))
    if type(value) is Column:
        return value.table.dim() == 1 and is_integer(value.table)
    if type(value) is Uniform:
        obj = value.obj
        if isinstance(obj, Tensor):
            return obj.dim() == 0 and is_integer(obj)
        return obj is None or obj is Ellipsis or type(obj) in (int, slice)
    return False
