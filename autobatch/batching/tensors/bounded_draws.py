"""``torch.randint(low, high, size)`` with bounds of each thread's own.

vmap asks for the bounds on the host, so that it would run thread by thread. Under a seed the
numbers are those that a thread draws by itself: as many words, by the same law.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.levels import Batched, has_batched
from autobatch.random import transforms

NAMES = ("low", "high", "size")
INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


def randint(context: Context, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Integers ``[k, *size]``; None where no bound is a thread's own, or this is no plain call.

    Bounds that leave nothing between them, or more than 32 bits, are left to torch, too.
    """
    names = NAMES if len(args) + len(kwargs.keys() & set(NAMES)) == 3 else NAMES[1:]
    given = {"low": 0, **dict(zip(names, args, strict=False)), **kwargs}
    if not given.keys() <= {*NAMES, "dtype"} or not {"high", "size"} <= given.keys():
        return None
    low, high, size = (given[name] for name in NAMES)
    own = has_batched((low, high)) and all(map(is_bound, (low, high)))
    if not own or not is_size(size) or given.get("dtype") not in (None, torch.int64):
        return None
    if not context.k or context.randomness != "different":
        return None
    low, high = (
        bound.data.long()
        if isinstance(bound, Batched | Tensor)
        else torch.tensor(bound, device=context.device)
        for bound in (low, high)
    )
    width = torch.where(low < high, high - low, 0).expand(context.k)  # it may overflow
    least, most = context.host(torch.stack(torch.aminmax(width)), "draw")
    if least < 1 or most >= 2**32:
        return None
    count, each = math.prod(size), width[:, None]
    source = context.source()
    if source is None:
        drawn = torch.rand(context.k, count, dtype=torch.float64, device=each.device)
        found = (drawn * each).long().clamp(max=each - 1)
    else:
        found = transforms.integers(source, count, each, each.device)
    return (found + low.reshape(-1, 1)).reshape(context.k, *size)


def is_bound(bound: Any) -> bool:
    """Whether it is an int of some kind for each thread."""
    if isinstance(bound, Batched | Tensor):
        own = 1 if isinstance(bound, Batched) else 0
        return bound.data.dtype in INTEGERS and bound.data.dim() == own
    return type(bound) is int and abs(bound) < 2**62


def is_size(size: Any) -> bool:
    return isinstance(size, tuple | list) and all(type(n) is int and n >= 0 for n in size)
