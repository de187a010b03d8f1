"""Places out of range that one example refuses and vmap's rules do not look at.

What looks at them here are operators that fail for such a place, so recordings keep them (see
``trace.failing``); the failing thread's own error is found as for any operation.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from autobatch.batching.converters.registry import Info, event_dim, register
from autobatch.batching.levels import Batched


@register(F.one_hot)
def one_hot(info: Info, tensor: Any, num_classes: Any = -1) -> Any:
    """vmap compares with each class, so a number that is none gives zeros."""
    if type(num_classes) is not int or num_classes < 1 or tensor.data.dtype is not torch.int64:
        return NotImplemented
    index = tensor.data
    zeros = index.new_zeros((*index.shape, num_classes))
    return Batched(zeros.scatter(-1, index.unsqueeze(-1), 1))


@register(F.embedding)
def embedding(info: Info, input: Any, weight: Any, *args: Any, **kwargs: Any) -> Any:
    """vmap lays the threads' tables end to end, so a place beyond one is in the next."""
    if isinstance(weight, Batched) and event_dim(weight) == 2:
        looked_up(input, weight.data.shape[1])
    return NotImplemented


def looked_up(index: Any, size: int) -> None:
    """Fail where an index, of the thread's own or not, is not one of ``size`` places."""
    places: Tensor = index.data if type(index) is Batched else index
    places.new_zeros(1).expand(size).index_select(0, places.flatten())
