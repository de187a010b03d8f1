"""Conversions whose result has the memory of their operand: ``t.numpy()``, ``torch.from_numpy(a)``.

From a tensor to an array, the tensor becomes each thread's own object, so that writes to either
are seen in both. From an array to a tensor, the rows stack; a write to either, by whatever array or
tensor of that memory, is refused while the other has a name (``Lent``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from autobatch.batching.context import Context, Handler
from autobatch.batching.conversions import HANDLERS as CONVERSIONS
from autobatch.batching.host.rows import run_rows
from autobatch.batching.kinds import is_tensor
from autobatch.batching.tensors import torch_ops
from autobatch.batching.tensors.aliases import base_of, tie
from autobatch.batching.tensors.views import mark_outside
from autobatch.values.cells import NO_TIES, Cell, Objects, Uniform, View, read, ties_of

TO_ARRAYS = (
    *(Tensor.numpy, Tensor.__array__, np.asarray, np.asanyarray, np.ascontiguousarray),
    np.from_dlpack,
)
TO_TENSORS = (torch.from_numpy, torch.as_tensor, torch.asarray, torch.frombuffer, from_dlpack)


def _to_array(function: Callable[..., Any]) -> Handler:
    def handler(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
        value = read(args[0]) if args else None
        own = type(value) is Objects and any(isinstance(item, Tensor) for item in value.items)
        if not (is_tensor(value) or own) or (type(value) is Uniform and value.shared):
            return None
        why, ties = "an array of its memory", getattr(base_of(args[0]), "ties", NO_TIES)
        result = run_rows(context, function, args, kwargs, why, keep=True, fresh=False)
        if ties and type(result.value) is Objects:
            context.services.lent.note(result.value.items, ties, copies=True)
        return result

    return handler


def _to_tensor(function: Callable[..., Any]) -> Handler:
    def handler(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
        known = CONVERSIONS.get(function)
        done = known(context, args, kwargs) if known is not None else None
        if done is not None or not args:
            return done
        result = torch_ops.apply(context, function, args, kwargs, False)
        given = read(args[0])
        if type(given) is Objects and any(map(context.foreign.holds, given.items)):
            mark_outside(result.value)
        if type(result.value) is not View and has_memory(given):
            before = context.services.lent.of(args[0])
            tie(context, result.value, args[:1])
            if type(given) is Objects:
                context.services.lent.note(given.items, ties_of(result))
            if before:
                base_of(result).ties |= before
        return result

    return handler


def _alias(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``torch.Tensor(t)``: another tensor of the memory of ``t``."""
    value = read(args[0]) if len(args) == 1 and not kwargs else None
    if is_tensor(value):
        return torch_ops.apply(context, Tensor.view_as, [args[0], args[0]], {}, False)
    if type(value) is Objects and any(isinstance(item, Tensor) for item in value.items):
        why = "a tensor of its memory"
        return run_rows(context, Tensor, args, {}, why, keep=True, fresh=False)
    return None


def has_memory(value: Any) -> bool:
    """Whether what a cell holds has memory that a tensor may be made of."""
    if type(value) is Objects:
        return any(isinstance(item, np.ndarray | bytearray | Tensor) for item in value.items)
    return is_tensor(value) and not (type(value) is Uniform and value.shared)


HANDLERS: dict[Any, Handler] = {
    **{function: _to_array(function) for function in TO_ARRAYS},
    **{function: _to_tensor(function) for function in TO_TENSORS},
    Tensor: _alias,
}
