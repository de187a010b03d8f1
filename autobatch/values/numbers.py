"""Which Python objects stack as numbers do, and the dtypes that they stack in.

Python's own numbers, complex ones among them, and numpy's scalars. A Python number of every example
has the dtype that holds it (bool, int64, float64, complex128), beside tensors one that is promoted
from that of ``torch.as_tensor``; a scalar of numpy's has its own in either case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch import firsthand
from autobatch.compat import on_device
from autobatch.values.cells import (
    INT_MAX,
    INT_MIN,
    NUMBER_DTYPES,
    NUMBER_TAGS,
    fits_column,
)

INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
OTHERS = ("bool", "float16", "float32", "float64", "complex64", "complex128")
DTYPES: dict[Any, torch.dtype] = {
    np.dtype(name): getattr(torch, name) for name in (*INTEGERS, *OTHERS)
}
"""Those of numpy's dtypes that torch has; a long double, a date or a text is an object."""
_PYTHONS = {*NUMBER_TAGS, complex}


def is_stacking_number(obj: Any) -> bool:
    """A number; whether tensors hold it is another question (``fits_tensor``)."""
    kind = type(obj)
    return kind in NUMBER_TAGS or kind is complex or is_numpy_number(obj)


def is_numpy_number(obj: Any) -> bool:
    return isinstance(obj, np.generic) and obj.dtype in DTYPES


def fits_tensor(obj: Any) -> bool:
    """Whether it is a number that a tensor holds: an int may be too large."""
    return fits_column(obj) or type(obj) is complex or is_numpy_number(obj)


def are_stacking_numbers(items: Sequence[Any]) -> bool:
    """Whether all are numbers: those of Python's own types are asked together."""
    return set(map(type, items)) <= _PYTHONS or all(map(is_stacking_number, items))


def are_fitting(items: Sequence[Any]) -> bool:
    """Whether a tensor holds each of some numbers: ints of Python's are asked together."""
    if set(map(type, items)) == {int}:
        return bool(INT_MIN <= min(items) <= max(items) <= INT_MAX)
    return all(map(fits_tensor, items))


def number_dtype(obj: Any) -> torch.dtype:
    """The dtype in which numbers stack with numbers."""
    if isinstance(obj, np.generic):
        return DTYPES[obj.dtype]
    return torch.complex128 if type(obj) is complex else NUMBER_DTYPES[NUMBER_TAGS[type(obj)]]


def number_tensor(obj: Any, device: torch.device | None) -> Tensor:
    """One number in its own dtype."""
    if isinstance(obj, np.generic):
        return on_device(np.array(obj), device)
    return firsthand.tensor(obj, dtype=number_dtype(obj), device=device)


def beside_tensors(obj: Any, device: torch.device | None) -> Tensor:
    """What ``torch.as_tensor`` makes of a number, or a tensor as it is."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, np.generic):
        return number_tensor(obj, device)
    return firsthand.as_tensor(obj, device=device)


def numbers_tensor(items: list[Any], device: torch.device | None) -> Tensor:
    """Numbers of one type, one for each example."""
    if isinstance(items[0], np.generic):
        return on_device(np.array(items, dtype=items[0].dtype), device)
    return firsthand.tensor(items, dtype=number_dtype(items[0]), device=device)
