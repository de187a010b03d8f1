"""The parts of an index ``x[...]``: numbers, slices, and what picks elements as tensors.

In: an index as a program has it, of which parts may differ by thread. Out: basic parts, and
integers in tensors for the lists, ranges, arrays and masks that torch takes for such. What would be
ragged, and what torch alone knows, is a ``NoRule``.
"""

from __future__ import annotations

from array import array
from types import EllipsisType, NoneType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.levels import Batched, NoRule, event_dim, has_batched
from autobatch.compat import LISTS_ARE_TUPLES

INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8})
_SMALL = frozenset({torch.int16, torch.int8})
MASKS = frozenset({torch.bool, torch.uint8})
ALL = slice(None)
LISTED = (list, tuple, range, np.ndarray, bytearray, array)
"""What torch takes for a list of numbers, where it stands in an index."""
BASIC = (int, slice, EllipsisType, np.integer)
LONG_LIST = 32
"""Items from which torch takes a list for an index tensor, whatever is in it."""


def parts_of(x: Batched | Tensor, index: Any) -> list[Any]:
    """The index of ``x`` as basic parts and integer tensors.

    torch takes indices from the host for a tensor on a device; the kernels here do not.
    """
    place = x.data.device
    given = list(map(as_index, taken_apart(index)))
    if any(is_mask(part) for part in given):
        check_masks(x, given)
    parts: list[Any] = []
    for part in given:
        if isinstance(part, slice) and has_batched(part):
            raise NoRule("a slice whose bounds differ by thread gives rows of unequal length")
        if not isinstance(part, Batched | Tensor):
            parts.append(part)
        elif part.data.dtype in INTEGERS:
            small = part.data.dtype in _SMALL and event_dim(part) == 0
            parts.append(_long(part) if small else part)
        elif part.data.dtype not in MASKS:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        elif isinstance(part, Tensor) and part.dim() > 0:
            parts += torch.nonzero(part, as_tuple=True)
        else:
            raise NoRule("a mask that differs by thread gives rows of unequal length")
    if place.type != "cpu":
        parts = [at(place, part) if isinstance(part, Batched | Tensor) else part for part in parts]
    return parts


def taken_apart(index: Any) -> tuple[Any, ...]:
    """The parts of an index; a list of more than numbers may be one of several, too."""
    if isinstance(index, list) and LISTS_ARE_TUPLES and len(index) < LONG_LIST:
        several = (*LISTED, str, bytes, slice, EllipsisType, NoneType, Tensor)
        if any(isinstance(part, several) for part in index):
            return tuple(index)
    return index if isinstance(index, tuple) else (index,)


def is_listed(part: Any) -> bool:
    """Whether torch takes a part of an index for a list of numbers."""
    return isinstance(part, LISTED) and not (isinstance(part, np.ndarray) and part.ndim == 0)


def as_index(part: Any) -> Any:
    """A part of an index, one that is a list of numbers as a tensor."""
    if isinstance(part, Batched | Tensor) or part is None:
        return part
    if is_listed(part):
        if has_batched(part):
            raise NoRule("a list of the thread's own numbers or tensors as an index")
        return torch.tensor(part, dtype=None if len(part) else torch.int64, device="cpu")
    if isinstance(part, np.ndarray):
        part = part[()]
    if not isinstance(part, BASIC):
        raise NoRule("an index that is no number, slice, tensor or list of numbers")
    return part


def is_mask(part: Any) -> bool:
    """Whether it is a mask that is the same for all threads."""
    return isinstance(part, Tensor) and part.dtype in MASKS and part.dim() > 0


def check_masks(x: Batched | Tensor, parts: list[Any]) -> None:
    """Masks are of the shape of what they pick from, or torch says that they are not."""
    sizes = x.data.shape[1:] if type(x) is Batched else x.data.shape
    taken = [part.dim() if is_mask(part) else int(takes(part)) for part in parts]
    free, dim = len(sizes) - sum(taken), 0
    for part, count in zip(parts, taken, strict=True):
        if is_mask(part) and part.shape != sizes[dim : dim + count]:
            raise NoRule("the mask's shape is not that of the tensor it indexes")
        dim += free if part is Ellipsis else count


def at(place: torch.device, part: Batched | Tensor) -> Batched | Tensor:
    """An index from the host at the place of what it picks from."""
    if not part.data.is_cpu:
        return part
    data = part.data.to(place, non_blocking=True)
    return Batched(data) if type(part) is Batched else data


def _long(part: Batched | Tensor) -> Batched | Tensor:
    """A 0-d integer of any width selects; index kernels want 32 bits or more."""
    return Batched(part.data.long()) if type(part) is Batched else part.data.long()


def takes(part: Any) -> bool:
    """Whether a part consumes a dimension."""
    return not (part is None or part is Ellipsis or isinstance(part, bool))


def free_of(dims: int, parts: list[Any]) -> int:
    """How many dimensions an ellipsis stands for."""
    free = dims - sum(map(takes, parts))
    if free < 0:
        raise IndexError(f"too many indices for tensor of dimension {dims}")
    return free
