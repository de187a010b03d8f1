"""Masks of the rows that are needed, and what becomes of them where rows move.

``None`` is the mask of all rows, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from torch import Tensor

from autobatch.compat import on_host

Mask = np.ndarray | None
NOTHING = np.zeros(0, np.bool_)
"""No rows, of however many; what all threads share has such a mask, too, where none needs it."""


def is_nothing(mask: Mask) -> bool:
    return mask is not None and not mask.any()


def either(left: Mask, right: Mask) -> Mask:
    """What is needed by one of two ways; of what all threads share any mask tells whether it is."""
    if left is None or right is None:
        return None
    if left.shape == right.shape:
        return left | right
    if not left.any():
        return right
    return None if right.any() else left


def all_of(masks: Iterable[Mask]) -> Mask:
    first, *rest = masks
    for mask in rest:
        first = either(first, mask)
    return first


def scattered(index: Tensor, mask: Mask, size: int) -> Mask:
    """The rows that have been taken and are needed."""
    rows = np.atleast_1d(on_host(index))
    if mask is not None and mask.shape != rows.shape[:1]:
        return None
    found = np.zeros(size, np.bool_)
    found[rows if mask is None else rows[mask]] = True
    return None if found.all() else found


def of_owners(mask: Mask, sizes: Sequence[int]) -> Mask:
    """All rows of the threads of which any row is needed."""
    if mask is None or len(mask) != sum(sizes):
        return None
    owners = np.repeat(np.arange(len(sizes)), sizes)
    found = np.zeros(len(sizes), np.bool_)
    found[owners[mask]] = True
    return found[owners]


def gathered(mask: Mask, size: int) -> Mask:
    """The rows of which any part is needed."""
    if mask is None or not size or len(mask) % size:
        return None
    return np.logical_or.reduce(mask.reshape(-1, size), 1)  # type: ignore[no-any-return]


def split(mask: Mask, sizes: Sequence[int]) -> Iterator[Mask]:
    if mask is None or mask.shape != (sum(sizes),):
        yield from [None] * len(sizes)
        return
    yield from np.split(mask, np.cumsum(sizes)[:-1])


def whole(parts: dict[int, Mask], sizes: Sequence[int]) -> Mask:
    """The mask of what has been cut into parts of these sizes; what nothing needs is in none."""
    masks: list[np.ndarray] = []
    for nr, size in enumerate(sizes):
        mask = parts[nr] if nr in parts else np.zeros(size, np.bool_)
        masks.append(np.ones(size, np.bool_) if mask is None else mask)
        if masks[-1].shape != (size,):
            return None
    found = np.concatenate(masks)
    return None if found.all() else found


def rows_of(mask: Mask, count: int) -> Iterator[Mask]:
    """The mask of each operand that is one row; or that is a column of a stack of columns."""
    if mask is None or len(mask) != count:
        yield from [None] * count
        return
    for part in mask:
        yield np.atleast_1d(part)


def in_column(mask: Mask, capacity: int, k: int, nr: int) -> Mask:
    """The rows needed of a column of a table; the mask is of the table's elements, or its rows."""
    if mask is None or mask.shape != (k * capacity,):
        return mask
    column: np.ndarray = mask.reshape(k, capacity)[:, nr]
    return column


def picked(where: Tensor, mask: Mask, count: int) -> Mask:
    """Of each of so many columns the rows that were picked and are needed."""
    at = on_host(where)
    if mask is not None and mask.shape != at.shape:
        return None
    chosen: np.ndarray = np.arange(count)[:, None] == at
    return chosen if mask is None else chosen & mask
