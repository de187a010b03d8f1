"""Operands of one operation for a group, guarded where their gradient may come out infinite.

In: the operands as ``vmapped`` has them. Out: the same, by way of ``presence.guards``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.levels import Batched, leaves_of, map_tree
from autobatch.presence.guards import Record, bounded, guarded
from autobatch.presence.moves import is_differentiated
from autobatch.presence.products import FACTORS, product
from autobatch.presence.risks import PRODUCTS, is_risky, name_of


def watched(record: Record, fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of ``fn``; what all threads share is broadcast to rows like it."""
    name = name_of(fn)
    if is_risky(name, args):
        record.is_wild = True
    elif (
        name not in PRODUCTS | FACTORS
        or not torch.is_grad_enabled()
        or not may_be_wild(record, args)
    ):
        return args
    if not torch.is_grad_enabled():
        return args
    if (wide := broadcast(args)) is not None:
        return wide
    return tuple(map_tree(own_guarded, arg) for arg in args)


def may_be_wild(record: Record, args: tuple[Any, ...]) -> bool:
    """Whether an operand of what is differentiated may be infinite."""
    return any(map(is_leaf_smooth, leaves_of(args))) and record.has_wild()


def is_leaf_smooth(leaf: Any) -> bool:
    tensor = leaf.data if type(leaf) is Batched else leaf
    return isinstance(tensor, Tensor) and is_smooth(tensor)


def own_guarded(leaf: Any) -> Any:
    if type(leaf) is Batched and is_smooth(leaf.data):
        return replace(leaf, data=guarded(leaf.data, 0))
    return leaf


def of_rows_needed(
    fn: Callable[..., Any], args: tuple[Any, ...], run: Callable[[tuple[Any, ...], int], Any]
) -> Batched | None:
    """What ``run`` gives of ``args``, where that is a product with what all threads share.

    None where it is not. ``run`` takes operands, and the number of their rows.
    """
    if name_of(fn) not in FACTORS or not any(type(arg) is Batched for arg in args):
        return None
    dims = [0 if type(arg) is Batched else None for arg in args]

    def function(*operands: Any) -> Tensor:
        pairs = list(zip(operands, dims, strict=True))
        k = next(len(operand) for operand, dim in pairs if dim == 0)
        given = tuple(operand if dim is None else Batched(operand) for operand, dim in pairs)
        done: Tensor = run(given, k).data
        return done

    operands = [arg.data if type(arg) is Batched else arg for arg in args]
    return Batched(product(function, dims, 0, 1, *operands))


def ended(out: Any) -> Any:
    """The results of an operation that has guarded operands."""
    return map_tree(own_bounded, out)


def own_bounded(leaf: Any) -> Any:
    if type(leaf) is Batched and is_smooth(leaf.data):
        bounded(leaf.data, 0)
    return leaf


def broadcast(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """A column and a differentiated tensor that all threads share, of one dtype and event shape."""
    if len(args) != 2 or {type(arg) for arg in args} != {Batched, Tensor}:
        return None
    column, shared = args if type(args[0]) is Batched else args[::-1]
    data = column.data
    if (
        not is_differentiated(shared)
        or shared.dtype != data.dtype
        or shared.shape != data.shape[1:]
    ):
        return None
    wide = Batched(guarded(shared, 0, tuple(data.shape)).expand_as(data))
    own = own_guarded(column)
    return (own, wide) if column is args[0] else (wide, own)


def is_smooth(tensor: Tensor) -> bool:
    """Whether it may be in some graph."""
    return is_differentiated(tensor) and (tensor.is_floating_point() or tensor.is_complex())
