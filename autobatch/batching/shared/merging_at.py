"""Writes to single elements of tensors that existed before the call, as contributions.

In: a method that adds to places of a tensor (``index_add_``), or ``x[i] += v``, with the cells of
its operands. Out: contributions with the positions that each thread's index picks, found by the
same lookup on the tensor's element numbers.

``PLACE`` is a cell's value that stands for ``x[i]`` within ``x[i] += v``: nothing is read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.contributions import Contribution, Rule, Target
from autobatch.batching.shared import refusals
from autobatch.batching.shared.merging import (
    NEGATIVE,
    REDUCE,
    RULES,
    add,
    bare,
    begin,
    check,
    refuse_leaf,
    row_by_row,
    rows_of,
    scaled,
)
from autobatch.batching.tensors import lookup, torch_ops
from autobatch.values.cells import Cell, Column, Container, Uniform, read, uniform

Function = Callable[..., Any]


def places_of(context: Context, tensor: Tensor, find: Callable[[Cell], Cell]) -> Cell:
    """The positions in a flattened tensor that ``find`` finds for each thread."""
    ids = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape)
    found = find(uniform(ids))
    context.flush()
    return found


def picked(context: Context, tensor: Tensor, function: Function, dim: Cell, index: Cell) -> Cell:
    """The positions of what ``function(tensor, dim, index)`` picks."""
    return places_of(
        context,
        tensor,
        lambda ids: torch_ops.apply(context, function, [ids, dim, index], {}, False),
    )


def merge_at(
    context: Context,
    tensor: Tensor,
    function: Function,
    rule: Rule,
    cells: tuple[Cell, Cell],
    distinct: bool,
) -> None:
    """Note ``function`` of elements at some places and of what each thread has for them."""

    refuse_leaf(tensor)

    def note(context: Context, places: Cell, operand: Cell) -> None:
        positions = rows_of(context, places, NUMBERS)
        check(tensor, positions.shape[1:], function, operand)
        rows = rows_of(context, operand, tensor)
        event = rows.shape[1:]
        rows = rows.reshape(context.k, *(1,) * (positions.dim() - 1 - len(event)), *event)
        rows = rows.expand(positions.shape).reshape(context.k, -1)
        if bare(function) in NEGATIVE:
            rows = -rows
        flat = positions.reshape(context.k, -1)
        add(context, Contribution(Target(tensor), rule, rows, context.threads, flat, distinct))

    row_by_row(context, note, list(cells))


NUMBERS = torch.empty((), dtype=torch.int64, device="meta")


def merge_item(context: Context, function: Function, left: Cell, right: Cell) -> Cell:
    """``x[i] += v`` up to the assignment, which is then none."""
    place: Any = left.value
    tensor, index = place.static, place.cells[0]
    rule = RULES[bare(function)]
    begin(context, Target(tensor), rule)
    places = places_of(context, tensor, lambda ids: lookup.getitem(context, ids, index))
    merge_at(context, tensor, function, rule, (places, right), distinct=True)
    return left


def index_add(
    context: Context,
    tensor: Tensor,
    function: Function,
    args: list[Cell],
    kwargs: dict[str, Cell],
) -> None:
    """``x.index_add_(dim, index, source, alpha=1)``."""
    named = dict(kwargs)
    dim, index = taken(context, args, named, "dim", "index")
    source = scaled(context, args[2:], named, "source")
    begin(context, Target(tensor), "sum")
    places = picked(context, tensor, torch.index_select, dim, index)
    merge_at(context, tensor, Tensor.add_, "sum", (places, source), distinct=False)


def index_put(
    context: Context,
    tensor: Tensor,
    function: Function,
    args: list[Cell],
    kwargs: dict[str, Cell],
) -> None:
    """``x.index_put_(indices, values, accumulate=True)``."""
    named = dict(kwargs)
    index, values = taken(context, args, named, "indices", "values")
    accumulate = [*args[2:], *named.values()]
    if [getattr(read(cell), "obj", None) for cell in accumulate] != [True]:
        raise refusals.written(context.span, "a tensor", refusals.OF_TENSORS)
    begin(context, Target(tensor), "sum")
    parts = read(index)
    if type(parts) is Container:
        index = Cell(Container(tuple, list(parts.children())))
    places = places_of(context, tensor, lambda ids: lookup.getitem(context, ids, index))
    merge_at(context, tensor, Tensor.add_, "sum", (places, values), distinct=False)


def scatter(
    context: Context,
    tensor: Tensor,
    function: Function,
    args: list[Cell],
    kwargs: dict[str, Cell],
) -> None:
    """``x.scatter_add_(dim, index, src)`` and ``x.scatter_reduce_(dim, index, src, reduce)``."""
    named = dict(kwargs)
    dim, index, src = taken(context, args, named, "dim", "index", "src")
    rest = [*args[3:], *(named.pop(name) for name in ("reduce",) if name in named)]
    given = [getattr(read(cell), "obj", None) for cell in rest]
    rule = REDUCE.get(str(given[0])) if given else "sum"
    own = named.pop("include_self", None)
    if rule is None or named or len(given) > 1 or (own is not None and own.value.obj is not True):  # type: ignore[union-attr]
        raise refusals.written(context.span, "a tensor", refusals.OF_TENSORS)
    begin(context, Target(tensor), rule)
    places = picked(context, tensor, torch.gather, dim, index)
    shape = read(places)
    if type(shape) in (Column, Uniform) and type(read(src)) in (Column, Uniform):
        wanted = shape.event_shape if type(shape) is Column else shape.obj.shape  # type: ignore[union-attr]
        cut = Cell(Container(tuple, [uniform(slice(0, size)) for size in wanted]))
        src = torch_ops.apply(context, operator.getitem, [src, cut], {}, False)
    merge_at(context, tensor, Tensor.add_, rule, (places, src), distinct=False)


def taken(
    context: Context, args: list[Cell], kwargs: dict[str, Cell], *names: str
) -> tuple[Cell, ...]:
    """Arguments by position or by name."""
    found = [*args[: len(names)], *(kwargs.pop(n) for n in names[len(args) :] if n in kwargs)]
    if len(found) < len(names):
        raise refusals.written(context.span, "a tensor", refusals.OF_TENSORS)
    return tuple(found)


AT: dict[str, Callable[..., None]] = {
    "index_add_": index_add,
    "index_put_": index_put,
    "scatter_add_": scatter,
    "scatter_reduce_": scatter,
}
"""Methods that write single elements."""
