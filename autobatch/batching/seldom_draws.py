"""What of torch's draws only where an argument or a setting says so: a rate of dropout, mostly.

Run once for all threads, it would give them one draw. In: a function or module, and the cells that
it is called with. Out: whether it draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import data

from autobatch.random.drawing import is_named
from autobatch.values.cells import Cell, Uniform, read

Args = list[Cell]
Kwargs = dict[str, Cell]


def is_known(cell: Cell | None, *values: Any) -> bool:
    """Whether an argument is left out, or one of these values for all threads."""
    value = None if cell is None else read(cell)
    return value is None or (
        type(value) is Uniform and isinstance(value.obj, int | float | None) and value.obj in values
    )


def by_rate(place: int, name: str) -> Callable[[Args, Kwargs], bool]:
    def draws(args: Args, kwargs: Kwargs) -> bool:
        return not is_known(argument(args, kwargs, place, name), 0)

    return draws


def unless_given(place: int, name: str) -> Callable[[Args, Kwargs], bool]:
    def draws(args: Args, kwargs: Kwargs) -> bool:
        return is_known(argument(args, kwargs, place, name), None)

    return draws


def from_torchs_own(args: Args, kwargs: Kwargs) -> bool:
    """Whether the generator that a random split names is none of the program's."""
    cell = argument(args, kwargs, 2, "generator")
    value = None if cell is None else read(cell)
    return value is None or (type(value) is Uniform and not is_named(value.obj))


def argument(args: Args, kwargs: Kwargs, place: int, name: str) -> Cell | None:
    return args[place] if place < len(args) else kwargs.get(name)


def attends(args: Args, kwargs: Kwargs) -> bool:
    trains = argument(args, kwargs, 13, "training")
    return (trains is None or not is_known(trains, False)) and by_rate(10, "dropout_p")(
        args, kwargs
    )


NOWHERE = 1 << 30
SAMPLES = unless_given(NOWHERE, "_random_samples")
RULES: dict[Any, Callable[[Args, Kwargs], bool]] = {
    F.scaled_dot_product_attention: by_rate(4, "dropout_p"),
    F.multi_head_attention_forward: attends,
    F.fractional_max_pool2d: SAMPLES,
    F.fractional_max_pool2d_with_indices: SAMPLES,
    F.fractional_max_pool3d: SAMPLES,
    F.fractional_max_pool3d_with_indices: SAMPLES,
    torch.pca_lowrank: lambda args, kwargs: True,
    torch.svd_lowrank: lambda args, kwargs: True,
    torch.lobpcg: unless_given(3, "X"),
    data.random_split: from_torchs_own,
}


def is_drawing(function: Any, args: Args, kwargs: Kwargs) -> bool:
    """Whether a call of a function draws."""
    return may_draw(function) and RULES[function](args, kwargs)


def may_draw(function: Any) -> bool:
    """Whether there are calls of a function that draw."""
    try:
        return function in RULES
    except TypeError:  # unhashable
        return False


def is_drawing_module(module: nn.Module) -> bool:
    """Whether a module of torch's without a module for its draws has some."""
    if isinstance(module, nn.FractionalMaxPool2d | nn.FractionalMaxPool3d):
        return True
    if not getattr(module, "training", False):  # which none has that torch.jit has frozen
        return False
    if isinstance(module, nn.MultiheadAttention):
        return bool(module.dropout)
    return isinstance(module, nn.RNNBase) and bool(module.dropout) and module.num_layers > 1
