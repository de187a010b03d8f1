"""Torch functions that answer with a Python bool: one bool per thread, as a ``[k]`` tensor.

``while not torch.allclose(x, previous)`` is a common way to halt. For one example these return
Python's ``bool``; for a group the answer is a number column of tag "bool".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.converters.pointwise import both
from autobatch.batching.converters.registry import event_dim, rows
from autobatch.batching.levels import Batched

_EQUAL = frozenset(both("equal"))
_ALLCLOSE = frozenset(both("allclose"))
_NONZERO = frozenset(both("is_nonzero"))


def predicate(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], k: int
) -> Tensor | None:
    """The ``[k]`` bool tensor of ``fn``'s answers; None if there is no batched form."""
    if not any(fn in table for table in (_EQUAL, _ALLCLOSE, _NONZERO)):
        return None
    tensors = [arg for arg in args if isinstance(arg, Batched | Tensor)]
    if len({tensor.data.dtype for tensor in tensors}) > 1:
        return None
    physical = [rows(tensor, k) for tensor in tensors]
    if fn in _NONZERO:
        return physical[0].reshape(k) != 0 if event_dim(tensors[0]) == 0 else None
    if len(physical) != 2 or (fn in _EQUAL and (len(args) != 2 or kwargs)):
        return None
    first, second = physical
    if first.shape != second.shape:
        return torch.zeros(k, dtype=torch.bool, device=first.device) if fn in _EQUAL else None
    same = first == second if fn in _EQUAL else torch.isclose(first, second, *args[2:], **kwargs)
    return same.flatten(1).all(1) if same.dim() > 1 else same
