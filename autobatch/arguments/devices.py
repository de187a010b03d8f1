"""Where the tensors lie that a function brings: its module's, its closure's, its globals'.

In: the function of a call without a tensor among its arguments, trees say. Out: the device on which
the threads' numbers are to live. They may live anywhere, but beside what they meet they are quick.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from autobatch.structure import own_attribute


def home_of(function: Any) -> torch.device:
    """The accelerator that something of the function's lies on, else the default device."""
    default = torch.get_default_device()
    if default.type == "cpu" and has_accelerator():
        devices = (tensor.device for tensor in tensors_of(function))
        return next((device for device in devices if device.type not in ("cpu", "meta")), default)
    return default


@functools.cache
def has_accelerator() -> bool:
    return torch.accelerator.is_available()


def tensors_of(function: Any) -> Iterator[Tensor]:
    """A tensor of each thing that the function names."""
    for obj in named_by(function):
        if isinstance(obj, Tensor):
            yield obj
        elif isinstance(obj, nn.Module):
            yield from [*chain(obj.parameters(), obj.buffers())][:1]


def named_by(function: Any) -> Iterator[Any]:
    while isinstance(function, functools.partial):
        yield from (*function.args, *function.keywords.values())
        function = function.func
    yield function
    yield own_attribute(function, "__self__")
    function = own_attribute(function, "__func__", function)
    code = own_attribute(function, "__code__")
    for cell in own_attribute(function, "__closure__") or ():
        with suppress(ValueError):  # not assigned yet
            yield cell.cell_contents
    names = own_attribute(function, "__globals__", {})
    yield from (names[name] for name in getattr(code, "co_names", ()) if name in names)
