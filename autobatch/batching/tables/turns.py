"""Transposes of packed matrices: views, which a product reads as what they are views of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.tables.alike import named
from autobatch.batching.tables.arguments import shared
from autobatch.batching.tensors.views import TorchRecipe, viewed
from autobatch.structure import own_attribute
from autobatch.values.cells import Cell, Objects, View, read
from autobatch.values.matrices import Matrices
from autobatch.values.packs import is_packed

TURNS = named("t", torch, Tensor)
SWAPS = named("transpose swapaxes swapdims", torch, Tensor)
TURNED = ("Tensor.T", "Tensor.mT")
"""The names of what reads an attribute that is the transpose of a matrix."""
BOTH = ((0, 1), (1, 0), (-1, -2), (-2, -1), (0, -1), (-1, 0), (1, -2), (-2, 1))


def apply(
    context: Context, function: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    """``x.t()``; None for any other function."""
    if not (function in TURNS or function in SWAPS):
        return None
    pack = read(args[0]) if args and not kwargs else None
    if not is_packed(pack) or pack.static.dim() != 2:
        return None
    dims = tuple(shared(read(arg)) for arg in args[1:])
    if (function in TURNS and not dims) or (function in SWAPS and dims in BOTH):
        return Cell(viewed(function, args, {}, args[0], ()))
    return None


def turned(cell: Cell) -> Cell | None:
    """The cell of the matrices, of lengths of their own, whose transposes a cell is."""
    view = cell.value
    if type(view) is not View or type(view.recipe) is not TorchRecipe:
        return None
    recipe = view.recipe
    if recipe.path or recipe.kwargs or not is_of_matrices(view.base):
        return None
    function, dims = recipe.function, recipe.args[1:]
    turns = function in TURNS or own_attribute(function, "__name__", "") in TURNED
    is_turned = (turns and not dims) or (function in SWAPS and dims in BOTH)
    return view.base if is_turned else None


def is_of_matrices(base: Cell) -> bool:
    value = read(base)
    if is_packed(value):
        return bool(value.static.dim() == 2)
    return type(value) is Objects and type(value.stacks) is Matrices
