"""How a column of numbers joins a tensor: weakly, as the Python number would.

A Python number takes the dtype of the tensor that it meets, unless its kind is higher: an int
makes a bool tensor int64, a float makes a bool or int tensor the default dtype.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autobatch.batching.numbers.records import Number, NumberResult


def joined_dtype(tag: str, like: torch.dtype) -> torch.dtype:
    """The dtype in which a number with this tag meets a tensor of dtype ``like``."""
    if tag == "float" and not (like.is_floating_point or like.is_complex):
        return torch.get_default_dtype()
    if tag == "int" and like is torch.bool:
        return torch.int64
    return like


def as_operand(number: Number | NumberResult, like: torch.dtype) -> Tensor:
    """The column ``[k]`` as an operand beside a tensor of dtype ``like``.

    An int that does not fit a narrower int dtype wraps, and a float that does not fit becomes
    inf, as torch does with a Python number there.
    """
    return number.data.to(joined_dtype(number.tag, like))
