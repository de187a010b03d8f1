"""When two objects are the same to a program: the same object, or equal and immutable."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from types import MethodType

import torch

IMMUTABLE = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis), torch.dtype)


def identity(obj: object) -> Hashable:
    """Equal for the same object, and for the same bits of the same immutable type.

    A bound method is a new object each time that it is looked up; it goes by what it binds.
    """
    if type(obj) is float:
        return (float, struct.pack("d", obj))
    if type(obj) in IMMUTABLE:
        return (type(obj), repr(obj) if type(obj) is complex else obj)
    if type(obj) is tuple:
        return (tuple, tuple(identity(part) for part in obj))
    if type(obj) is MethodType:
        return (MethodType, id(obj.__self__), id(obj.__func__))
    return id(obj)
