"""The arguments of a call with packed values: which are packed, and what the others are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from autobatch import compat
from autobatch.batching.trees import container_of
from autobatch.values.cells import Cell, Column, Container, Uniform, read, uniform
from autobatch.values.packs import Order, is_packed

MISSING = object()
"""An argument that is not given."""


def bound(
    names: Sequence[str], args: list[Cell], kwargs: Mapping[str, Cell]
) -> dict[str, Any] | None:
    """Arguments by their names, as values; None where one has no name here, or has it twice."""
    given = dict(zip(names, map(read, args), strict=False))
    if len(args) > len(names) or given.keys() & kwargs.keys() or not kwargs.keys() <= set(names):
        return None
    return {**given, **{name: read(cell) for name, cell in kwargs.items()}}


def shared(value: Any) -> Any:
    """An object that all threads share, a tuple or list of such as a tuple; else ``MISSING``."""
    if type(value) is Uniform:
        return tuple(value.obj) if type(value.obj) is list else value.obj
    if type(value) is Container and value.type in (tuple, list, torch.Size):
        parts = tuple(shared(read(cell)) for cell in value.children())
        return MISSING if any(part is MISSING for part in parts) else parts
    return MISSING


def packs_in(values: Iterable[Any]) -> list[Container]:
    return [value for value in values if is_packed(value)]


def is_own(value: Any) -> bool:
    """Whether it is a number or tensor of one shape for each thread."""
    return type(value) is Column


def packed_again(out: Any, order: Order) -> Cell:
    """What a function gives for a table, a tensor or a tuple of them, as packed values."""

    def made(part: Any) -> Cell:
        return Cell(order.pack(part)) if isinstance(part, Tensor) else uniform(part)

    return made(out) if isinstance(out, Tensor) else container_of(out, made)


def is_new(out: Any, operands: Iterable[Any]) -> bool:
    """Whether no part of a result is, or may be, a part of an operand."""
    tensors = [part for part in operands if isinstance(part, Tensor)]
    known = {compat.storage_id(part) for part in tensors}
    return all(
        part.layout is torch.strided and compat.storage_id(part) not in known
        for part in (out if isinstance(out, tuple) else (out,))
    )
