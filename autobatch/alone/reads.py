"""How a program reads a tensor to the host, and what else it may do with one when it runs plainly.

A program that computes with tensors is better kept together: to be run as plain Python it may ask
a tensor for its numbers, its shape and its parts, and for nothing else.
"""

from __future__ import annotations

import math

from torch import Tensor

from autobatch.alone.scale import Scale
from autobatch.alone.taint import NONE, TENSOR, Share
from autobatch.ir.ops import BINARY, COMPARE, INPLACE, UNARY

COMPUTES = frozenset({*UNARY, *BINARY, *COMPARE, *INPLACE, "format", "join"}) - {"is", "is_not"}
"""Operations that compute with a tensor, or that show what only a tensor of the loop's has."""
_MULTIPLIES = ("prod", "sumprod")
READERS = frozenset(
    {float, int, bool, complex, len, range, isinstance, callable}
    | {
        found
        for name, found in vars(math).items()
        if name[0] != "_" and name not in _MULTIPLIES and callable(found)
    }
)
"""Functions that make numbers of tensors; a product of tensors is a tensor."""
GOING_THROUGH = frozenset({iter, next, enumerate, zip, list, tuple})
"""Functions that give tensors, or their parts, as they are."""
SHAPES = frozenset({"shape", "ndim"})
NUMBERS = frozenset({"item", "size", "dim", "ndimension", "numel", "nelement"}) | {
    "is_floating_point",
    "is_complex",
}
PARTS = frozenset({"detach", "cpu", "contiguous", "double", "float", "int", "long", "unbind"})
"""Methods that give numbers, and those that give tensors to read."""

NOTHING = frozenset({"name", "itemsize", "nbytes"})
"""Attributes that are numbers, or None, of any tensor."""


def is_of_tensors(name: str) -> bool:
    """Whether tensors have an attribute of a name."""
    return hasattr(Tensor, name)


def read_by_method(name: str, scale: Scale) -> Share | None:
    """What a method of a tensor gives; None if it is none that reads."""
    if name == "tolist":
        scale.lists = True
        return NONE
    if name in NUMBERS:
        return NONE
    return TENSOR if name in PARTS else None
