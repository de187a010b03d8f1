"""What the lines of a driver may name: the functions of its checks, the values it builds.

``NAMES`` is the namespace that each driver begins with; see ``printer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CellType
from typing import Any

from torch import Tensor

from autobatch.batching import operations
from autobatch.batching.ambient import ambient_key
from autobatch.batching.context import Context
from autobatch.batching.kinds import found_in_class
from autobatch.batching.objects.attributes import stored_attribute
from autobatch.batching.semantics import load_global
from autobatch.batching.stretches.callables import is_bare, opened
from autobatch.batching.stretches.contents import content_key, module_key, module_tensors
from autobatch.batching.stretches.holders import is_sole
from autobatch.batching.stretches.outline import is_pure_call, is_uniform
from autobatch.batching.stretches.signature import tensor_key, tier_of
from autobatch.batching.stretches.stretch import refuse
from autobatch.compat import any_autocast
from autobatch.ir.program import Op
from autobatch.values.cells import Cell, Column, Container, Uniform, View, read
from autobatch.values.heap.likeness import identity
from autobatch.values.heap.walks import reached
from autobatch.values.layouts import are_seen, gaps_of
from autobatch.values.strides import row_order


def dense_rows(column: Column) -> Tensor | None:
    """A column's rows without gaps between them; None where theirs is another order, or where the
    program sees that they have gaps within.

    A column whose rows have gaps between them only, none within, keeps what they come to.
    """
    table = column.table
    if row_order(table) or (gaps_of(table) is not None and are_seen()):
        return None
    dense = table.contiguous()
    if table[:1].is_contiguous() and not table.requires_grad:
        column.table = dense
    return dense


def pure_call(context: Context, op: Op, cells: list[Cell]) -> Cell | None:
    """A host call's result; None where it may have effects, or threads have values of their own:
    what that gives may fail or not fit in some rows, which is known only after what comes before.
    """
    if not is_pure_call(read(cells[0])) or not all(map(is_uniform, cells[1:])):
        return None
    invoke, context.invoke, context.span = context.invoke, refuse, op.span
    try:
        made: Cell = operations.TABLE["call"](context, op.attr, *cells)
    finally:
        context.invoke = invoke
    return made


def are_apart(cells: Sequence[Cell]) -> bool:
    """Whether no two are one cell: what is written to one, no other has."""
    return len(set(map(id, cells))) == len(cells)


def shows(cell: Cell, views: Sequence[Cell]) -> bool:
    """Whether a cell is among what views go by."""
    return any(base is cell for base in reached(views))


def guards(tensor: Any) -> Any:
    """What the key holds of a uniform tensor."""
    return tensor_key(tensor) if isinstance(tensor, Tensor) else None


NAMES: dict[str, Any] = {
    "Cell": Cell,
    "CellType": CellType,
    "Column": Column,
    "Container": Container,
    "Uniform": Uniform,
    "View": View,
    "ambient_key": ambient_key,
    "any_autocast": any_autocast,
    "are_apart": are_apart,
    "content_key": content_key,
    "dense_rows": dense_rows,
    "found_in_class": found_in_class,
    "guards": guards,
    "identity": identity,
    "is_bare": is_bare,
    "is_sole": is_sole,
    "load_global": load_global,
    "module_key": module_key,
    "module_tensors": module_tensors,
    "opened": opened,
    "pure_call": pure_call,
    "read": read,
    "shows": shows,
    "stored_attribute": stored_attribute,
    "tier_of": tier_of,
}
"""What the lines of every driver refer to."""
