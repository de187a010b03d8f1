"""Moves of rows, by kind: of which rows of its operands an operation makes which of its result.

They are noted where they are made (``moves``), and read once a backward asks (``walk``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Taken:
    """Row ``i`` of the result is row ``index[i]`` of the operand, which has so many.

    An index ``[n, ...]`` is of parts of a row of the result, each from a row of its own.
    """

    index: Tensor
    count: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Kept:
    """Each row stays where it is, though the operation might move it."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Joined:
    """The rows of the operands one after the other; so many of each."""

    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cut:
    """The results are the rows of the operand one after the other; so many in each."""

    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stacked:
    """Each operand is a row."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Listed:
    """Operand ``j`` is element ``j`` of each of ``k`` rows, in a table of so many for each."""

    capacity: int
    k: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unbound:
    """Each result is a row."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Picked:
    """Row ``i`` of the result is row ``i`` of the operand ``where[i]``, one of so many."""

    where: Tensor
    count: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Grouped:
    """Each row of the result is the next so many rows of the operand."""

    size: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Spread:
    """Each row of the operand becomes so many of the result."""

    size: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Arranged:
    """Row ``i`` of the result is row ``index[i]`` of the operands, which have ``sizes`` rows."""

    index: Tensor
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Added:
    """Row ``i`` of the last operand is a part of row ``index[i]`` of the result, or of several.

    The result has so many rows; those of the first operand stay where they are.
    """

    index: Tensor
    count: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Parted:
    """Each result is a tensor of one thread's own, of the next so many rows of the operand."""

    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Derived:
    """A gradient, row for row; ``backwards``, what is known of those that have made it.

    ``first`` is the number of the first node of what they differentiate, in the order in which
    nodes are made; None where that is not known. Its rows are those of all that was there before.
    """

    backwards: tuple[Any, ...]
    first: int | None


STACKED, UNBOUND, KEPT = Stacked(), Unbound(), Kept()
Rows = Taken | Kept | Joined | Cut | Stacked | Listed | Unbound | Picked | Grouped | Spread
Move = Rows | Arranged | Added | Parted | Derived
