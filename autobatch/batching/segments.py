"""Sums and means over the rows of packed values: all threads' rows at once.

``x.sum(0)`` of a tensor ``[n, *E]`` adds up the rows of each thread; ``x.sum()`` all they hold.
Floats are added up in float64, so that a long sequence loses nothing against torch's own order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.rowwise import brought_together
from autobatch.vm import packs
from autobatch.vm.packs import is_packed
from autobatch.vm.values import Cell, Column, Uniform, read

SUMS = (torch.sum, Tensor.sum)
MEANS = (torch.mean, Tensor.mean)
WHOLE = object()


def apply(
    context: Context, function: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    """``x.sum()``, ``x.sum(0)``, ``x.mean()`` or ``x.mean(0)``; None for anything else."""
    if not context.k or not any(function is known for known in (*SUMS, *MEANS)):
        return None
    pack = read(args[0]) if args else None
    dim = over(args[1:], kwargs)
    if not is_packed(pack) or dim not in (WHOLE, 0, -pack.static.dim()):
        return None
    is_mean = function in MEANS
    dtype = pack.static.dtype
    if dtype.is_complex or (is_mean and not dtype.is_floating_point):
        return None
    together = brought_together(context, [pack])
    if together is None:
        return None
    (table,), _, lengths = together
    total = summed(table, lengths)
    count = lengths
    if dim is WHOLE:
        size = pack.static.shape[1:].numel()
        total = total.reshape(context.k, size).sum(1)
        count = lengths * size
    if is_mean:
        total = total / count.reshape(-1, *[1] * (total.dim() - 1))
    context.counter.launch()
    return Cell(Column(total.to(dtype) if dtype.is_floating_point else total))


def over(rest: list[Cell], kwargs: dict[str, Cell]) -> Any:
    """The dimension, ``WHOLE`` if there is none; None for other arguments."""
    if not rest and not kwargs:
        return WHOLE
    given = rest if rest else [kwargs["dim"]] if set(kwargs) == {"dim"} else []
    value = read(given[0]) if len(given) == 1 and len(rest) + len(kwargs) == 1 else None
    return value.obj if type(value) is Uniform and type(value.obj) is int else None


def summed(table: Tensor, lengths: Tensor) -> Tensor:
    """The sum of each thread's rows, which lie one after the other: ``[k, *E]``."""
    wide = table.to(torch.float64 if table.dtype.is_floating_point else torch.int64)
    owner = packs.owners(lengths, table.shape[0])
    return wide.new_zeros(lengths.shape[0], *table.shape[1:]).index_add(0, owner, wide)
