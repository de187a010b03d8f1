"""From the cells of a call's arguments to the types that a program is compiled for, and its inputs.

An input is a tensor with a row for each thread, or one row for all. Numbers that all threads share
are inputs too, so that another one is no reason to compile anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from autobatch.compiled.arrays.memory import MOST_BYTES, noted
from autobatch.compiled.types import (
    MACHINE,
    NUMBER_OF,
    Array,
    Number,
    Rows,
    Scalar,
    Static,
    Structure,
    Type,
    bytes_of,
    refuse,
)
from autobatch.values.cells import NUMBER_DTYPES, Cell, Column, Container, Uniform, fits_column

Inputs = list[Tensor]


def arguments(env: Mapping[str, Cell], written: Collection[str]) -> tuple[dict[str, Type], Inputs]:
    """The type of each parameter, and the inputs in the order of the parameters' names.

    A thread's row is a private copy, which the program may write: those of ``written`` it does.
    """
    types: dict[str, Type] = {}
    inputs: Inputs = []
    for name in sorted(env):
        found = argument(env[name], inputs)
        if isinstance(found, Scalar) and type(env[name].value) is Column:
            found = Scalar(found.dtype, own=True)
        if isinstance(found, Rows) and type(env[name].value) is Column and name in written:
            found = own_copy(found)
        types[name] = found
    return types, inputs


def own_copy(row: Rows) -> Type:
    """A row that is copied before its thread begins, if that is small."""
    made = Array(row.dtype, row.shape, own=True)
    return made if row.steps is None and 0 < bytes_of(made) <= MOST_BYTES else row


def argument(cell: Cell, inputs: Inputs) -> Type:
    value = cell.value
    if type(value) is Column:
        data = usable(value.data)
        inputs.append(data)
        return Number(value.tag) if value.tag != "tensor" else tensor_type(data)
    if type(value) is Uniform:
        return shared(value.obj, inputs)
    if type(value) is Container and value.type in (tuple, list, dict):
        keys = tuple(value.cells) if isinstance(value.cells, dict) else ()
        parts = tuple(argument(part, inputs) for part in value.children())
        return Structure(value.type, parts, keys)
    return refuse("an argument is one Python object for each example")


def tensor_type(data: Tensor) -> Type:
    """Of one thread's row."""
    if data.dim() == 1:
        return Scalar(data.dtype)
    shape = tuple(data.shape[1:])
    if not prod(shape):
        refuse("an argument has no elements")
    strides = noted(shape, data.stride()[1:])
    return Rows(data.dtype, shape, False, strides, strides)


def shared(obj: Any, inputs: Inputs) -> Type:
    """What all threads share."""
    if isinstance(obj, Tensor):
        data = usable(obj)[None]
        inputs.append(data)
        return tensor_type(data)
    if type(obj) not in NUMBER_OF:
        return Static(obj)
    if not fits_column(obj):
        refuse("an int is beyond 64 bits")
    inputs.append(torch.tensor([obj], dtype=NUMBER_DTYPES[NUMBER_OF[type(obj)]], device="cpu"))
    return Number(NUMBER_OF[type(obj)])


def usable(data: Tensor) -> Tensor:
    """A tensor whose memory machine code may read."""
    if type(data) not in (Tensor, nn.Parameter):
        refuse(f"an argument is a {type(data).__name__}")
    if data.device.type != "cpu":
        refuse(f"an argument is on the device {data.device}")
    if data.requires_grad and torch.is_grad_enabled():
        refuse("gradients are wanted")
    if data.layout is not torch.strided or data.is_neg() or data.dtype not in MACHINE:
        refuse(f"an argument is a tensor of {data.dtype}, {data.layout}")
    return data.detach()
