"""``x[index] = value`` where ``x``, parts of the index or the value differ by thread.

The index is taken apart as ``indexing`` does. A thread's own mask is assigned to by a ``where``, as
long as the value is the same for all true places.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autobatch.batching.applying.index_parts import ALL, MASKS, parts_of
from autobatch.batching.applying.indexing import Plan, full_index, moved, plan_of
from autobatch.batching.levels import Batched, NoRule, event_dim
from autobatch.presence import moves
from autobatch.values.cells import fits_column


def setitem(x: Batched, index: Any, value: Any, k: int) -> Batched:
    """``x`` after ``x[index] = value``; ``x`` itself must be private: it may be written."""
    mask = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    if type(mask) is Batched and mask.data.dtype in MASKS:
        return _set_masked(x, mask, value)
    return _write(x, plan_of(event_dim(x), parts_of(x, index)), value, k)


def _write(x: Batched, plan: Plan, value: Any, k: int) -> Batched:
    view = x.data if plan.is_whole else x.data[(ALL, *plan.basic)]
    if not plan.tensors:
        view.copy_(_tensor(_aligned(value, view.dim() - 1, x.data), x.data))
        return x
    if plan.gathered and isinstance(value, Batched | Tensor) and value.data.dtype != x.data.dtype:
        raise NoRule("an assignment through an index tensor, of another dtype")
    event = view.dim() - 1 - len(plan.tensors) + plan.gathered
    new = _tensor(_aligned(value, event, x.data), x.data)
    if plan.gathered and plan.place and new.dim() > 0:
        new = new.reshape((*(1,) * (event + 1 - new.dim()), *new.shape))
        new = moved(new, 1 + plan.place, 1, plan.gathered)
    view[full_index(view, plan, k)] = new
    moves.kept(x.data)
    return x


def _aligned(value: Any, event_dim: int, like: Tensor) -> Any:
    """A value to be assigned, its event dimensions lined up on the right as torch broadcasts."""
    if not isinstance(value, Batched | Tensor):
        return value
    own = 0 if isinstance(value, Tensor) else 1
    # Not `.data` of a tensor: that is no part of its graph.
    data = (value if isinstance(value, Tensor) else value.data).to(like.dtype)
    extra = data.dim() - own - event_dim
    while extra > 0 and data.shape[own] == 1:  # torch drops leading ones of an assigned value
        data, extra = data.squeeze(own), extra - 1
    if extra > 0:
        raise NoRule("the assigned value has more dimensions than the place it goes to")
    return data.reshape((*data.shape[:own], *(1,) * (-extra * own), *data.shape[own:]))


def _tensor(value: Any, like: Tensor) -> Tensor:
    """A value to be assigned, if a number then in the target's dtype."""
    if isinstance(value, Tensor):
        return value
    if type(value) is int and not fits_column(value):
        torch.empty(1, dtype=like.dtype, device=like.device)[0] = value  # raises what torch does
    return torch.full((), value, dtype=like.dtype, device=like.device)


def _set_masked(x: Batched, mask: Batched, value: Any) -> Batched:
    """``x[mask] = value`` is a ``where`` as long as the value does not run over the true places."""
    if mask.data.dtype is not torch.bool and isinstance(value, Batched | Tensor):
        raise NoRule("a tensor assigned through a mask of bytes")
    target, bits = x.data, mask.data.bool()
    depth = bits.dim() - 1
    if bits.shape[1:] != target.shape[1 : 1 + depth]:
        raise NoRule("the mask's shape is not that of the tensor it indexes")
    trailing = target.dim() - 1 - depth
    if isinstance(value, Batched | Tensor):
        if event_dim(value) > trailing:
            raise NoRule("a mask that differs by thread takes a different number of values")
        one = event_dim(value) == 0 and depth > 0  # written as a number, which must fit
        if value.data.dtype != target.dtype and not (one and holds(target.dtype, value.data.dtype)):
            raise NoRule("an assignment through a mask, of another dtype")
    new = _tensor(_aligned(value, target.dim() - 1, target), target)
    return Batched(torch.where(bits.reshape((*bits.shape, *(1,) * trailing)), new, target))


def holds(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Whether a dtype holds all numbers of another, rounded at most."""
    if other is torch.bool or dtype.is_complex:
        return True
    if dtype.is_floating_point and not other.is_complex:
        largest = torch.finfo(other).max if other.is_floating_point else torch.iinfo(other).max
        return largest <= torch.finfo(dtype).max
    return torch.promote_types(dtype, other) == dtype
