"""Moves of rows, noted on the nodes of autograd's graph that they make.

A node that has no note keeps threads in their rows. The notes are in the dict that torch keeps for
each node (``Node.metadata``), so they live as long as the graph does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.presence.wide_rows import rows_at

KEY = "autobatch.move"


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """Row ``i`` of the result is row ``index[i]`` of the operand."""

    index: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """The rows of the operands one after the other; so many of each."""

    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The results are the rows of the operand one after the other; so many in each."""

    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Stacked:
    """Each operand is a row."""


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """Operand ``j`` is element ``j`` of each row, in a table of so many for each."""

    capacity: int


@dataclass(frozen=True, slots=True, eq=False)
class Unbound:
    """Each result is a row."""


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """Row ``i`` of the result is row ``i`` of the operand ``where[i]``."""

    where: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """Each row of the result is the next so many rows of the operand."""

    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Each row of the operand becomes so many of the result."""

    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Arranged:
    """Row ``i`` of the result is row ``index[i]`` of the operands, which have ``sizes`` rows."""

    index: Tensor
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Mixed:
    """A row of the result comes from any rows of the operands."""


STACKED, UNBOUND, MIXED = Stacked(), Unbound(), Mixed()
Move = (
    Taken | Joined | Cut | Stacked | Listed | Unbound | Picked | Grouped | Spread | Arranged | Mixed
)


def noted(result: Tensor, move: Move) -> Tensor:
    """The result of a move, which is noted if it is differentiated."""
    if result.requires_grad and (node := result.grad_fn) is not None:
        notes_of(node)[KEY] = move
    return result


def taken(data: Tensor, index: Tensor) -> Tensor:
    """``data[index]``."""
    return noted(rows_at(data, index), Taken(index))


def joined(parts: Sequence[Tensor]) -> Tensor:
    """``torch.cat(parts)``."""
    result = torch.cat(list(parts))
    if result.requires_grad:
        noted(result, Joined(tuple(part.shape[0] for part in parts)))
    return result


def cut(data: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """``data.split(sizes)``."""
    parts = torch.split(data, list(sizes))
    if parts and data.requires_grad:
        noted(parts[0], Cut(tuple(sizes)))
    return parts


def mixed(result: Tensor) -> Tensor:
    """What is made of the rows of several threads, or of several of a thread's."""
    return noted(result, MIXED)


def stacked(rows: Sequence[Tensor]) -> Tensor:
    """``torch.stack(rows)``."""
    return noted(torch.stack(list(rows)), STACKED)


def unbound(data: Tensor) -> tuple[Tensor, ...]:
    """``data.unbind(0)``."""
    rows = data.unbind(0)
    if rows and data.requires_grad:
        noted(rows[0], UNBOUND)
    return rows


def notes_of(node: Any) -> dict[Any, Any]:
    notes: dict[Any, Any] = node.metadata
    return notes


def move_of(node: Any) -> Move | None:
    return notes_of(node).get(KEY)
