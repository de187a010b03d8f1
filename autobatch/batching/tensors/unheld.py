"""Numbers that a dtype does not hold: ``y[0] = n`` with n = 300 and bytes is torch's error.

A column of numbers is converted for all threads at once, which wraps. So where torch's function
converts a Python number, the rows whose number the dtype does not hold are noted, and each of them
says for itself what torch's function says of it: some take it all the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from autobatch.batching.context import Context
from autobatch.batching.host.rower import Rower
from autobatch.values.cells import INT_MAX, INT_MIN, Cell, Column, Uniform, read
from autobatch.values.heap import selecting

Function = Callable[..., Any]

WRITES: frozenset[Function] = frozenset(
    {
        *(operator.setitem, Tensor.__setitem__, Tensor.fill_, torch.fill_, nn.init.constant_),
        *(Tensor.masked_fill_, Tensor.index_fill_, Tensor.scatter_, Tensor.fill_diagonal_),
    }
)
"""What converts a number to the dtype of its first operand, and writes it there."""

PROMOTING: frozenset[Function] = frozenset(
    {
        *(torch.where, Tensor.where, torch.clamp, Tensor.clamp, torch.clip, Tensor.clip),
        *(torch.clamp_min, Tensor.clamp_min, torch.clamp_max, Tensor.clamp_max),
        *(Tensor.clamp_, Tensor.clip_, Tensor.clamp_min_, Tensor.clamp_max_),
    }
)
"""What converts a number to the dtype that it and the tensors promote to."""

POWERS: frozenset[Function] = frozenset(
    {
        *(operator.pow, operator.ipow, torch.pow, Tensor.pow, Tensor.__pow__, Tensor.pow_),
        Tensor.__ipow__,
    }
)
"""What converts an exponent, and takes none below 0 for ints."""

CONVERTING = frozenset(
    {
        *WRITES,
        *PROMOTING,
        *POWERS,
        *(torch.masked_fill, Tensor.masked_fill, torch.index_fill, Tensor.index_fill),
        *(torch.scatter, Tensor.scatter, torch.linspace, torch.logspace),
    }
)


def is_whole(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)


def met_by(function: Function, cell: Cell, like: torch.dtype | None) -> torch.dtype | None:
    """The dtype that a column of numbers meets where it is written to a tensor of dtype ``like``.

    Ints take a float as it is, not as the default dtype has it: 16777217.0 is 16777217.
    """
    value = read(cell)
    is_float = type(value) is Column and value.tag == "float"
    exact = is_float and like is not None and is_whole(like) and function in WRITES
    return torch.float64 if exact else like


def suits(function: Function, column: Column, dtype: torch.dtype) -> bool:
    """Whether a function takes all of a column's numbers, wherever in their bounds they are."""
    if function in POWERS and is_whole(dtype) and column.tag == "int":
        low = column.bounds[0] if column.bounds else INT_MIN
        return low >= 0 and fits(column, dtype)
    return fits(column, dtype)


def fits(column: Column, dtype: torch.dtype) -> bool:
    """Whether the dtype holds all of a column's numbers, wherever in their bounds they are."""
    if column.tag == "bool" or dtype is torch.bool or dtype.is_complex:
        return True
    if column.tag == "float":
        return dtype is torch.float64
    low, high = column.bounds or (INT_MIN, INT_MAX)
    least, most = ends(dtype)
    return least <= low and high <= most


def ends(dtype: torch.dtype, wraps: bool = True) -> tuple[float, float]:
    """The least and the greatest number of a dtype; ``wraps``: ints below 0 become unsigned."""
    if not is_whole(dtype):
        return torch.finfo(dtype).min, torch.finfo(dtype).max
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    if wraps and not least:
        least = -most
    return max(least, INT_MIN), min(most, INT_MAX)


def held(data: Tensor, dtype: torch.dtype) -> Tensor:
    """Which numbers a dtype holds as torch converts them; complex ones have no order."""
    if data.is_complex():
        return torch.zeros(data.shape, dtype=torch.bool, device=data.device)
    least, most = ends(dtype, not data.is_floating_point())
    found = (data >= least) & (data <= most)
    if is_whole(dtype) or not data.is_floating_point():
        return found
    return found | ~data.isfinite()


def taken(function: Function, data: Tensor, dtype: torch.dtype) -> Tensor:
    found = held(data, dtype)
    whole = is_whole(dtype) and not data.is_floating_point()
    return found & (data >= 0) if whole and function in POWERS else found


def note(context: Context, function: Function, args: list[Cell], kwargs: dict[str, Cell]) -> None:
    """Note the rows that ``function`` may refuse for a number; ``args`` are as they were before."""
    cells = [*args, *kwargs.values()]
    masks = [
        taken(function, value.data, dtype)
        for value in map(read, cells[1:] if function in POWERS else cells)
        if type(value) is Column and value.tag != "tensor"
        for dtype in targets(function, cells, value.tag)
        if not suits(function, value, dtype)
    ]
    if not masks:
        return
    given = [Cell(read(cell)) for cell in cells]
    names, count = list(kwargs), len(args)

    def evaluate(row: int) -> None:
        rower = Rower(context.restricted([row]))
        values = [rower.rows(cell)[0] for cell in selecting.select(given, np.array([row]))]
        if isinstance(values[0], Tensor):
            values[0] = values[0].clone()  # it may be written
        function(*values[:count], **dict(zip(names, values[count:], strict=True)))

    context.check(~torch.stack(masks).all(0), evaluate)


def targets(function: Function, cells: list[Cell], tag: str) -> set[torch.dtype]:
    """The dtypes to which a function may convert a number."""
    given = map(dtype_of, cells[:1] if function in WRITES | POWERS else cells)
    dtypes = {dtype for dtype in given if dtype is not None} or {torch.get_default_dtype()}
    if tag == "float" and function in PROMOTING | POWERS:
        return {torch.get_default_dtype() if is_whole(dtype) else dtype for dtype in dtypes}
    if function in POWERS:
        return {torch.int64 if dtype is torch.bool else dtype for dtype in dtypes}
    return dtypes


def dtype_of(cell: Cell) -> torch.dtype | None:
    """That of a tensor, or the one that is given."""
    value = read(cell)
    if type(value) is Column and value.tag == "tensor":
        return value.table.dtype
    obj = value.obj if type(value) is Uniform else None
    return obj.dtype if isinstance(obj, Tensor) else obj if isinstance(obj, torch.dtype) else None
