"""Sums at places of the thread's own, which vmap's rule makes one thread after the other.

Recorded for a thousand threads, that is a thousand operators; as a ``scatter_add`` it is one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autobatch.batching.converters.pointwise import both
from autobatch.batching.converters.registry import Info, event_dim, register, rows
from autobatch.batching.levels import Batched, NoRule

WHY = "a sum at places of the thread's own"


@register(*both("index_add"))
def index_add(info: Info, input: Any, dim: Any, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    if not isinstance(index, Batched):
        return NotImplemented
    if type(dim) is not int or not all(isinstance(t, Batched | Tensor) for t in (input, source)):
        raise NoRule(WHY)
    own, places, added = (rows(each, info.k) for each in (input, index, source))
    dims = event_dim(input)
    if not dims and not event_dim(source):  # a number, as a tensor of one element
        whole = Batched(own.reshape(-1, 1))
        one = index_add(info, whole, dim, index, Batched(added.reshape(info.k, -1)), alpha=alpha)
        return Batched(one.data.reshape(own.shape))
    if not dims or not -dims <= dim < dims or places.dim() != 2:
        raise NoRule(WHY)
    at = dim % dims + 1
    shape = (*own.shape[:at], places.shape[1], *own.shape[at + 1 :])
    if added.shape != shape or added.dtype != own.dtype or own.dtype is torch.bool:
        raise NoRule(WHY)  # torch refuses most of these
    if type(alpha) not in (int, float):
        raise NoRule(WHY)
    wide = (info.k, *(1,) * (at - 1), -1, *(1,) * (dims - at))
    where = places.long().reshape(wide).expand(shape)
    return Batched(own.scatter_add(at, where, added if alpha == 1 else added * alpha))
