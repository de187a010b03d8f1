"""``x.T @ y`` of packed matrices with as many rows: ``[E, F]`` for each thread, all at once.

The rows are padded with zeros, in both: they add nothing, and no gradient flows into them. Where
padding would cost much more than the rows do, the threads of one length run together instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.tables.alike import MATRIX_PRODUCTS, PRODUCTS, named
from autobatch.batching.tables.arguments import shared
from autobatch.batching.tables.order import brought_together
from autobatch.batching.tables.padding import is_cheap, padded
from autobatch.batching.tensors.views import TorchRecipe, viewed
from autobatch.presence import moves
from autobatch.values.cells import Cell, Column, Container, View, read
from autobatch.values.packs import is_packed


def apply(
    context: Context, function: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    if function in TURNS or function in SWAPS:
        return transposed(function, args, kwargs)
    if function not in PRODUCTS | MATRIX_PRODUCTS or len(args) != 2 or kwargs or not context.k:
        return None
    left, right = turned(args[0]), read(args[1])
    if left is None or not is_packed(right) or right.static.dim() not in (1, 2):
        return None
    if right.static.dim() == 1 and function not in PRODUCTS:
        return None
    dtype = left.static.dtype
    found = brought_together(context, [left, right])
    if found is None or dtype is not right.static.dtype or not dtype.is_floating_point:
        return None
    (one, other), order = found
    if not is_cheap(order):
        return None
    vector = other.dim() == 1
    wide = padded(other[:, None] if vector else other, order)
    out = torch.bmm(padded(one, order).transpose(1, 2), wide)
    context.counter.launch()
    return Cell(Column(moves.mixed(out[:, :, 0] if vector else out)))


TURNS = named("t", torch, Tensor)
SWAPS = named("transpose swapaxes swapdims", torch, Tensor)
TURNED = ("Tensor.T", "Tensor.mT")
"""The names of what reads an attribute that is the transpose of a matrix."""


def transposed(function: Any, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``x.t()``: a view, which a product reads as what it is a view of."""
    pack = read(args[0]) if args and not kwargs else None
    if not is_packed(pack) or pack.static.dim() != 2:
        return None
    dims = tuple(shared(read(arg)) for arg in args[1:])
    if (function in TURNS and not dims) or (function in SWAPS and dims in BOTH):
        return Cell(viewed(function, args, {}, args[0], ()))
    return None


BOTH = ((0, 1), (1, 0), (-1, -2), (-2, -1), (0, -1), (-1, 0), (1, -2), (-2, 1))


def turned(cell: Cell) -> Container | None:
    """The packed matrix whose transpose a cell is, as a view of it."""
    view = cell.value
    if type(view) is not View or type(view.recipe) is not TorchRecipe:
        return None
    recipe = view.recipe
    base = read(view.base)
    if not is_packed(base) or base.static.dim() != 2 or recipe.path or recipe.kwargs:
        return None
    function, dims = recipe.function, recipe.args[1:]
    turns = function in TURNS or getattr(function, "__name__", "") in TURNED
    return base if (turns and not dims) or (function in SWAPS and dims in BOTH) else None
