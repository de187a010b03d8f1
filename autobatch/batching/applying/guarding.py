"""Operands of one operation for a group, guarded where their gradient may come out infinite.

In: the operands as ``vmapped`` has them. Out: the same, by way of ``presence.guards``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from types import BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch
from torch import Tensor, nn

from autobatch.batching.applying.direct import POINTWISE
from autobatch.batching.applying.judging import names_of, shared_by
from autobatch.batching.levels import Batched, leaves_of, map_tree
from autobatch.presence.calm import heed
from autobatch.presence.guards import WHOLE, bounded, guarded
from autobatch.presence.moves import is_differentiated
from autobatch.presence.products import FACTORS
from autobatch.presence.record import Record
from autobatch.presence.risks import (
    DRAWING,
    HOLDING,
    INWARD,
    NO_KEYWORDS,
    PRODUCTS,
    TAME,
    gives_infinities,
    is_steep,
)

LOOKED_AT = PRODUCTS | FACTORS | HOLDING
"""What may give a gradient that is not finite where an operand is not."""


def watched(
    record: Record,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    keywords: Mapping[str, Any] = NO_KEYWORDS,
) -> tuple[Any, ...]:
    """The operands of ``fn``; what all threads share is broadcast to rows like it."""
    if not is_to_watch(record, fn, args, keywords):
        return args
    if (wide := broadcast(fn, args)) is not None:
        return wide
    return tuple(map_tree(own_guarded, arg) for arg in args)


def watched_rows(
    record: Record, fn: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The same where ``fn`` runs on the rows as on one tensor: only then is there none to add."""
    if fn in POINTWISE:
        return watched(record, fn, args, keywords)
    if not is_to_watch(record, fn, args, keywords):
        return args
    return tuple(map_tree(own_guarded, arg) for arg in args)


def watched_once(
    record: Record, fn: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The operands of ``fn``, which runs once for all threads that share them."""
    if not is_operation(fn) or not any(map(is_leaf_smooth, leaves_of(args))):
        return args
    if not is_to_watch(record, fn, args, keywords):
        return args
    return tuple(map_tree(whole_guarded, arg) for arg in args)


def is_to_watch(
    record: Record, fn: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> bool:
    """Whether what ``fn`` makes of a zero cotangent may not be finite."""
    names = names_of(fn)
    record.meet(shared_by(fn, names, args))
    if any(gives_infinities(name, args, keywords) for name in names):
        record.is_wild = True
    elif any(is_steep(name, keywords) for name in names):
        pass
    elif LOOKED_AT.isdisjoint(names) or not may_be_wild(record, args):
        return False
    return torch.is_grad_enabled()


def is_operation(fn: Callable[..., Any]) -> bool:
    """Whether it is an operation of torch's, to which it is all one by which node an operand comes.

    ``torch.autograd.grad`` asks for an operand by that, ``x.is_leaf`` tells of it.
    """
    if isinstance(fn, nn.Module | MethodDescriptorType | WrapperDescriptorType):
        return True
    if isinstance(fn, BuiltinFunctionType):
        return fn is not torch.as_tensor and fn is not torch.asarray
    return getattr(fn, "__module__", None) in ("torch._tensor", "torch.nn.functional")


def may_be_wild(record: Record, args: tuple[Any, ...]) -> bool:
    """Whether an operand of what is differentiated may be infinite."""
    if not torch.is_grad_enabled():
        return False
    return any(map(is_leaf_smooth, leaves_of(args))) and record.has_wild()


def is_leaf_smooth(leaf: Any) -> bool:
    tensor = leaf.data if type(leaf) is Batched else leaf
    return isinstance(tensor, Tensor) and is_smooth(tensor)


def heeded(record: Record, calm: bool, fn: Callable[..., Any], given: Any, out: Any) -> bool:
    """Have the run know if ``out``, which ``fn`` has made of ``given``, is not finite.

    Whether ``fn`` is to run once more then, watched: what has overflowed on the way may spoil its
    own derivative, too. ``calm``: nothing was infinite before.
    """
    if not torch.is_grad_enabled() or not calm:
        return False
    names = names_of(fn)
    tells = not TAME.issuperset(names) or any(map(is_infinite_number, leaves_of(given)))
    if tells and not record.is_wild:  # none of its parts has told
        leaves = (leaf.data if type(leaf) is Batched else leaf for leaf in leaves_of(out))
        heed(record, (leaf for leaf in leaves if isinstance(leaf, Tensor)))
    return record.is_wild and not INWARD.isdisjoint(names) and DRAWING.isdisjoint(names)


def is_infinite_number(leaf: Any) -> bool:
    return type(leaf) is float and not math.isfinite(leaf)


def own_guarded(leaf: Any) -> Any:
    if type(leaf) is Batched and is_smooth(leaf.data):
        return replace(leaf, data=guarded(leaf.data, 0))
    return leaf


def whole_guarded(leaf: Any) -> Any:
    return guarded(leaf, WHOLE) if is_leaf_smooth(leaf) else leaf


def ended(out: Any) -> Any:
    """The results of an operation that has guarded operands."""
    return map_tree(own_bounded, out)


def ended_once(out: Any) -> Any:
    """The same of one that has run once for all threads."""
    return map_tree(whole_bounded, out)


def whole_bounded(leaf: Any) -> Any:
    return bounded(leaf, WHOLE) if is_leaf_smooth(leaf) else leaf


def own_bounded(leaf: Any) -> Any:
    if type(leaf) is Batched and is_smooth(leaf.data):
        bounded(leaf.data, 0)
    return leaf


def broadcast(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Columns and differentiated tensors that all threads share, all of one dtype.

    They are of one event shape, or ``fn`` is pointwise and they broadcast to one.
    """
    columns = [arg.data for arg in args if type(arg) is Batched]
    shared = [arg for arg in args if isinstance(arg, Tensor)]
    if not columns or not any(map(is_differentiated, shared)):
        return None
    if len({tensor.dtype for tensor in (*columns, *shared)}) != 1:
        return None
    parts = [data.shape[1:] for data in columns] + [tensor.shape for tensor in shared]
    event = parts[0]
    if len(args) != 2 or any(part != event for part in parts):
        if fn not in POINTWISE or not are_met(parts):
            return None
        event = torch.broadcast_shapes(*parts)  # type: ignore[no-untyped-call]
    whole = (len(columns[0]), *event)

    def own(arg: Any) -> Any:
        if isinstance(arg, Tensor) and is_differentiated(arg):
            return Batched(guarded(arg, 0, whole).expand(whole))
        return own_guarded(arg)

    return tuple(map(own, args))


def are_met(shapes: Sequence[Sequence[int]]) -> bool:
    """Whether they broadcast to one."""
    aligned = zip_longest(*map(reversed, shapes), fillvalue=1)
    return all(len({1, *sizes}) <= 2 for sizes in aligned)


def is_smooth(tensor: Tensor) -> bool:
    """Whether it may be in some graph."""
    return is_differentiated(tensor) and (tensor.is_floating_point() or tensor.is_complex())
