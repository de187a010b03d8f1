"""In which dtype Python numbers meet tensors, where those are narrower than what torch computes in.

``x / n`` of int8 is computed in the default dtype: so is ``n``, which int8 may not hold. ``x * n``
of float16 is rounded once, at the end: ``0.5 * 70000`` is 35000, though float16 has no 70000.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.tensors.unheld import fits, is_whole
from autobatch.batching.trees import tensor_dtype
from autobatch.values.cells import Cell, Column, read

DIVISIONS: frozenset[Any] = frozenset(
    {
        *(operator.truediv, operator.itruediv, torch.div, torch.divide, torch.true_divide),
        *(Tensor.div, Tensor.divide, Tensor.true_divide, Tensor.__truediv__, Tensor.__rtruediv__),
        *(Tensor.div_, Tensor.divide_, Tensor.true_divide_, Tensor.__itruediv__),
    }
)
DOUBLE: frozenset[Any] = frozenset({torch.float_power, Tensor.float_power})
FLOATING: frozenset[Any] = DIVISIONS | {
    *(torch.xlogy, Tensor.xlogy, torch.special.xlogy),
    *(torch.copysign, Tensor.copysign),
}
"""Functions that make floats of ints."""
ROUNDED_ONCE: frozenset[Any] = DIVISIONS | {
    *(operator.mul, operator.imul, torch.mul, torch.multiply, torch.lerp, Tensor.lerp),
    *(Tensor.mul, Tensor.multiply, Tensor.__mul__, Tensor.__rmul__, Tensor.lerp_),
    *(Tensor.mul_, Tensor.multiply_, Tensor.__imul__),
}
"""Functions that take a number beside float16 as it is, and round what they give."""


def joined(
    function: Callable[..., Any], cells: list[Cell], kwargs: dict[str, Cell]
) -> torch.dtype | None:
    """The dtype that columns of numbers join for a function; None if there are no tensors."""
    like = tensor_dtype(cells)
    if function in DOUBLE and like is not None and not like.is_complex:
        return torch.float64
    if like is None or not is_whole(like) or "rounding_mode" in kwargs:
        return like
    return torch.get_default_dtype() if function in FLOATING else like


def is_rounded_once(
    function: Callable[..., Any], cells: list[Cell], kwargs: dict[str, Cell]
) -> bool:
    """Whether a number may not fit the float16 of the tensors, and the result may all the same."""
    return (
        function in ROUNDED_ONCE
        and not kwargs
        and tensor_dtype(cells) is torch.float16
        and any(map(may_be_greater, cells))
    )


def may_be_greater(cell: Cell) -> bool:
    """Whether it has numbers that may not fit float16."""
    value = read(cell)
    return type(value) is Column and value.tag != "tensor" and not fits(value, torch.float16)
