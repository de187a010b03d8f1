"""``torch.cat`` and ``torch.stack`` with packed values among their parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.levels import Batched
from autobatch.batching.tables.alike import inner_dims
from autobatch.batching.tables.arguments import bound, packs_in, shared
from autobatch.batching.tables.order import brought_together, together
from autobatch.batching.tables.rowwise import run
from autobatch.presence import moves
from autobatch.values.cells import Cell, Column, Container, Uniform, read
from autobatch.values.packs import Order, is_packed

CATS = (torch.cat, torch.concat, torch.concatenate)
JOINS: frozenset[Any] = frozenset((*CATS, torch.stack))


def packed_cells(callee: Any, given: Sequence[Cell]) -> list[Cell]:
    """The packed values that a call is given, one by one or to be joined."""
    found = [cell for cell in given if is_packed(read(cell))]
    first = read(given[0]) if given and callee in JOINS else None
    if type(first) is Container and first.type in (list, tuple):
        found += [cell for cell in first.children() if is_packed(read(cell))]
    return found


def apply(
    context: Context, function: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    given = bound(["tensors", "dim"], args, kwargs) if function in JOINS else None
    if given is None or "tensors" not in given or not context.k:
        return None
    whole = given["tensors"]
    dim = shared(given["dim"]) if "dim" in given else 0
    if type(whole) is not Container or whole.type not in (list, tuple) or type(dim) is not int:
        return None
    values = [read(cell) for cell in whole.children()]
    if not values or not packs_in(values):
        return None
    dims = packs_in(values)[0].static.dim()
    if len(packs_in(values)) == len(values):
        same = {value.static.dim() for value in packs_in(values)} == {dims}
        if same and inner_dims(dim, [dims + (function is torch.stack)]):
            return side_by_side(context, function, packs_in(values), dim)
    if function in CATS and dim in (0, -dims):
        return one_after_another(context, values)
    return None


def side_by_side(
    context: Context, function: Callable[..., Any], values: list[Container], dim: int
) -> Cell | None:
    """Each row joined with the same row of the others."""
    found = brought_together(context, values)
    return (
        None
        if found is None
        else run(context, function, [[*map(Batched, found[0])]], {"dim": dim}, found[1])
    )


def one_after_another(context: Context, values: list[Any]) -> Cell | None:
    """Each thread's rows of one part, then those of the next."""
    opened = [as_rows(context, value) for value in values]
    tables = [part[0] for part in opened if part is not None]
    if len(tables) < len(values) or len({(t.dtype, t.device, t.shape[1:]) for t in tables}) > 1:
        return None
    orders = [part[1] for part in opened if part is not None]
    sizes = [sum(own) for own in zip(*[order.sizes for order in orders], strict=True)]
    lengths = torch.stack([order.lengths for order in orders]).sum(0)
    joint = Order(sizes, lengths)
    before, places = joint.begins, []
    for order in orders:
        places.append(before[order.owners] + order.places)
        before = before + order.lengths
    where = torch.cat(places)
    source = torch.empty_like(where).scatter_(
        0, where, torch.arange(joint.total, device=where.device)
    )
    context.counter.launch()
    return Cell(joint.pack(moves.taken(moves.joined(tables), source)))


def as_rows(context: Context, value: Any) -> tuple[Tensor, Order] | None:
    """The rows of a part, one thread's after another's."""
    if type(value) is Uniform and isinstance(value.obj, Tensor):
        if value.obj.layout is not torch.strided:
            return None
        value = Column(value.obj.expand(context.k, *value.obj.shape))
    if is_packed(value):
        return together(context, value)
    if type(value) is not Column or value.tag != "tensor" or value.table.dim() < 2:
        return None
    data = value.data
    size = data.shape[1]
    lengths = torch.full((context.k,), size, dtype=torch.int64, device=data.device)
    return moves.flattened(data), Order([size] * context.k, lengths)
