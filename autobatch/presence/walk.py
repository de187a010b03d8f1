"""Which rows of which nodes of autograd's graph the results of a run needed.

In: the nodes that some results left the run by, and which of their rows are needed. Out: for each
place before them a mask of its rows; ``None`` where all are needed, or it cannot be told. The walk
ends at gradients that an earlier backward has made: which rows of these are needed is told instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from autobatch.compat import on_host
from autobatch.presence.moves import (
    Arranged,
    Cut,
    Derived,
    Grouped,
    Joined,
    Kept,
    Listed,
    Mixed,
    Picked,
    Spread,
    Stacked,
    Taken,
    Unbound,
    move_of,
    place_of,
)

Mask = np.ndarray | None
NOTHING = np.zeros(0, np.bool_)
"""No rows, of however many; what all threads share has such a mask, too, where none needs it."""
Edge = tuple[Any, int]
PERMUTES = (
    "IndexSelectBackward0",
    "IndexBackward0",
    "IndexAddBackward0",
    "IndexPutBackward0",
    "IndexPutBackward1",
    "FlipBackward0",
    "RollBackward0",
)
"""May put threads into other rows, where it is no noted move."""


@dataclass(slots=True, eq=False, repr=False)
class Reached:
    """The rows needed at each place, and of the gradients of each earlier backward."""

    masks: dict[Any, Mask] = field(default_factory=dict)
    gradients: dict[Any, Mask] = field(default_factory=dict)

    def add(self, node: Any, mask: Mask) -> None:
        if (place := place_of(node)) is not None:
            self.masks[place] = either(self.masks[place], mask) if place in self.masks else mask
        move = move_of(node)
        for known in move.backwards if type(move) is Derived else ():
            before = self.gradients
            before[known] = either(before[known], mask) if known in before else mask


def needed(roots: Iterable[Any], rows: Mask = None) -> Reached:
    """What ``rows`` of the roots need; None: all of them."""
    waiting = users(roots)
    found: dict[Any, dict[int, Mask]] = {root: {0: given(root, rows)} for root in roots}
    reached = Reached()
    ready = [root for root in found if not waiting[root]]
    while ready:
        node = ready.pop()
        parts = found.pop(node)
        for (before, nr), mask in zip(edges(node), before_move(node, parts), strict=True):
            known = found.setdefault(before, {})
            known[nr] = either(known[nr], mask) if nr in known else mask
            waiting[before] -= 1
            if not waiting[before]:
                ready.append(before)
        reached.add(node, all_of(parts.values()))
    return reached


def given(root: Any, rows: Mask) -> Mask:
    """The rows of a root, if that is how many it has."""
    return rows if rows is not None and rows.shape == (rows_of_result(root),) else None


def edges(node: Any) -> list[Edge]:
    """What the walk goes on to."""
    if type(move_of(node)) is Derived:
        return []
    return [(before, nr) for before, nr in node.next_functions if before is not None]


def users(roots: Iterable[Any]) -> dict[Any, int]:
    """How many edges lead to each node that the roots reach."""
    waiting = dict.fromkeys(roots, 0)
    stack = list(waiting)
    while stack:
        for before, _ in edges(stack.pop()):
            if before not in waiting:
                waiting[before] = 0
                stack.append(before)
            waiting[before] += 1
    return waiting


def before_move(node: Any, parts: dict[int, Mask]) -> Sequence[Mask]:
    """The rows that a node needs of each of its operands, for those of its results."""
    mask, operands = all_of(parts.values()), edges(node)
    if is_nothing(mask):
        return [NOTHING] * len(operands)
    match move_of(node):
        case Derived():
            return []
        case None:
            return [None if node.name() in PERMUTES else mask] * len(operands)
        case Taken(index, count):
            return [scattered(index, mask, count)] * len(operands)
        case Kept():
            return [mask] * len(operands)
        case Joined(sizes):
            return list(present(node, split(mask, sizes)))
        case Cut(sizes):
            return [whole(parts, sizes)] * len(operands)
        case Stacked():
            return list(present(node, rows_of(mask, len(node.next_functions))))
        case Listed(capacity, k):
            return [in_column(mask, capacity, k, nr) for nr in listed(node)]
        case Unbound():
            rows = [nr in parts and needs_any(parts[nr]) for nr in range(results_of(node))]
            return [np.array(rows)] * len(operands)
        case Picked(where, count):
            return [picked(where, mask, count)] * len(operands)
        case Grouped(size):
            return [None if mask is None else np.repeat(mask, size)] * len(operands)
        case Spread(size):
            return [gathered(mask, size)] * len(operands)
        case Arranged(index, sizes):
            return list(present(node, split(scattered(index, mask, sum(sizes)), sizes)))
        case Mixed():
            return [None] * len(operands)
    raise AssertionError(node)


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


def rows_of_result(node: Any) -> int:
    """How many rows the first result of a node has."""
    shape = node._input_metadata[0].shape
    return int(shape[0]) if len(shape) else 1


def results_of(node: Any) -> int:
    return len(node._input_metadata)


def present(node: Any, masks: Iterable[Mask]) -> Iterator[Mask]:
    """Of the masks of all operands, those of operands that are differentiated."""
    for (before, _), mask in zip(node.next_functions, masks, strict=True):
        if before is not None:
            yield mask


def needs_any(mask: Mask) -> bool:
    return mask is None or bool(mask.any())


def scattered(index: Tensor, mask: Mask, size: int) -> Mask:
    """The rows that have been taken and are needed."""
    rows = on_host(index).reshape(-1)
    if mask is not None and mask.shape != rows.shape:
        return None
    found = np.zeros(size, np.bool_)
    found[rows if mask is None else rows[mask]] = True
    return None if found.all() else found


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


def listed(node: Any) -> list[int]:
    """Which operands of a node are differentiated."""
    return [nr for nr, (before, _) in enumerate(node.next_functions) if before is not None]


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
