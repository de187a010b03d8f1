"""``x[mask]`` with a mask of the thread's own: the rows that it picks, batched though ragged.

The picked rows of all threads are gathered at once. Where each thread picks as many they are a
column, else packed (``vm.packs``). How many is read on the host, one read for each lookup.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.lookup import shape_of
from autobatch.vm import packs
from autobatch.vm.values import Cell, Column, Value, read


def picked(context: Context, value: Any, index: Cell) -> Cell | None:
    """``x[mask]`` for a tensor; None where the index is no mask of the thread's own that fits."""
    mask = own_mask(read(index))
    if mask is None or not context.k or not is_strided(value):
        return None
    shape, depth = shape_of(value), mask.dim() - 1
    if shape[:depth] != mask.shape[1:]:
        return None
    data = value.data if type(value) is Column else value.obj.expand(context.k, *shape)
    lengths = mask.flatten(1).sum(1)
    sizes = context.host(lengths, "mask")
    places = torch.nonzero_static(mask, size=sum(sizes))
    table = data[tuple(places.unbind(1))]
    context.counter.launch()
    if min(sizes) == max(sizes):
        return Cell(Column(table.reshape(context.k, sizes[0], *shape[depth:])))
    return Cell(packs.pack(table, lengths.cumsum(0) - lengths, lengths, max(sizes)))


def own_mask(value: Value) -> Tensor | None:
    """A mask that differs by thread, ``[k, ...]``; None for anything else."""
    if type(value) is not Column or value.tag != "tensor" or value.table.dim() < 2:
        return None
    return value.data if value.table.dtype is torch.bool else None


def is_strided(value: Any) -> bool:
    return type(value) is Column or value.obj.layout is torch.strided
