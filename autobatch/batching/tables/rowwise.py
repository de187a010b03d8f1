"""Operations on packed values that treat each row of the tensors alike: once, on the table.

``embedding(x)``, ``linear(x)``, ``x * 2 + bias``, ``x.softmax(1)`` and the like give, for a tensor
``[n, *E]``, as many rows, each from one row. So all threads' rows are brought together (nothing is
copied where the table holds them and nothing else) and the function runs on them at once; what it
gives is packed again. A tensor or number of each thread's own, as in ``x - centre``, is repeated
for the rows that it meets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.applying import needed
from autobatch.batching.context import Context
from autobatch.batching.levels import Batched
from autobatch.batching.tables.alike import CASTS, treats_rows_alike
from autobatch.batching.tables.arguments import MISSING, is_new, packed_again, packs_in, shared
from autobatch.batching.tables.order import brought_together
from autobatch.batching.trees import weak
from autobatch.presence import moves
from autobatch.values.cells import Cell, Column, read
from autobatch.values.packs import Order, is_packed


def apply(
    context: Context, function: Callable[..., Any], args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    """``function`` on all threads' rows at once; None where it does not treat each row alike."""
    values = [read(arg) for arg in args]
    given = {name: shared(read(arg)) for name, arg in kwargs.items()}
    packed = packs_in(values)
    if not packed or not context.k or any(value is MISSING for value in given.values()):
        return None
    if not treats_rows_alike(function, values, {name: read(arg) for name, arg in kwargs.items()}):
        return None
    if len(values) == 1 and function in CASTS and packed[0].static.dtype is CASTS[function]:
        return args[0]
    together = brought_together(context, packed)
    if together is None:
        return None
    tables, order = together
    rest = iter(tables)
    operands = [
        Batched(next(rest)) if is_packed(v) else beside(v, tables[0], order) for v in values
    ]
    return run(context, function, operands, given, order)


def run(
    context: Context,
    function: Callable[..., Any],
    operands: list[Any],
    given: dict[str, Any],
    order: Order,
) -> Cell | None:
    """A function of tables (``Batched``), which gives new tables of as many rows."""
    if any(operand is MISSING for operand in operands):
        return None
    try:
        out = needed.on_rows(function, tuple(operands), given, order.total)
    except Exception:  # whose it is, single threads tell
        return None
    outs = out if isinstance(out, tuple) else (out,)
    if not all(isinstance(part, Tensor) and part.dim() for part in outs):
        return None
    if not is_new(out, needed.tensors_of(operands)) or any(
        part.shape[0] != order.total for part in outs
    ):
        return None
    context.counter.launch()
    return packed_again(out, order)


def beside(value: Any, table: Tensor, order: Order) -> Any:
    """An operand that is not packed, as it meets the rows of the table: a thread's own for each.

    In the dtype that it takes where it is one number, for one example.
    """
    if type(value) is not Column:
        return shared(value)
    data = value.data
    if value.tag != "tensor":
        data = weak(value, table.dtype)
    elif data.dim() == 1:
        data = data.to(torch.result_type(table, data[0]))
    rows = moves.taken(data, order.owners)
    return Batched(rows.reshape(-1, *[1] * (table.dim() - rows.dim()), *rows.shape[1:]))
