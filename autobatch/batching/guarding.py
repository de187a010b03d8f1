"""Operands of one operation for a group, guarded where their gradient may come out infinite.

In: the operands as ``vmapped`` has them. Out: the same, by way of ``presence.guards``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.levels import Batched, map_tree
from autobatch.presence.guards import Record, guarded
from autobatch.presence.risks import PRODUCTS, is_risky, name_of


def watched(record: Record, fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of ``fn``; what all threads share is broadcast to rows like it."""
    name = name_of(fn)
    if is_risky(name, args):
        record.is_wild = True
    elif not record.is_wild or name not in PRODUCTS:
        return args
    if not torch.is_grad_enabled():
        return args
    if (wide := broadcast(args)) is not None:
        return wide
    return tuple(map_tree(own_guarded, arg) for arg in args)


def own_guarded(leaf: Any) -> Any:
    if type(leaf) is Batched and is_smooth(leaf.data):
        return replace(leaf, data=guarded(leaf.data, 0))
    return leaf


def broadcast(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """A column and a differentiated tensor that all threads share, of one dtype and event shape."""
    if len(args) != 2 or {type(arg) for arg in args} != {Batched, Tensor}:
        return None
    column, shared = args if type(args[0]) is Batched else args[::-1]
    data = column.data
    if not shared.requires_grad or shared.dtype != data.dtype or shared.shape != data.shape[1:]:
        return None
    wide = Batched(guarded(shared, 0, tuple(data.shape)).expand_as(data))
    own = own_guarded(column)
    return (own, wide) if column is args[0] else (wide, own)


def is_smooth(tensor: Tensor) -> bool:
    return tensor.requires_grad and (tensor.is_floating_point() or tensor.is_complex())
