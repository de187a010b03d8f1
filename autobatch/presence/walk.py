"""Which rows of which nodes of autograd's graph the results of a run needed.

In: the nodes that some results left the run by, and which of their rows are needed. Out: for each
place before them a mask of its rows; ``None`` where all are needed, or it cannot be told. The walk
passes over what an earlier backward has made its gradients of: which rows of these are needed is
told, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from autobatch.compat import on_host
from autobatch.presence.kinds import (
    Added,
    Arranged,
    Cut,
    Derived,
    Grouped,
    Joined,
    Kept,
    Listed,
    Parted,
    Picked,
    Spread,
    Stacked,
    Taken,
    Unbound,
)
from autobatch.presence.masks import (
    NOTHING,
    Mask,
    all_of,
    either,
    gathered,
    in_column,
    is_nothing,
    of_owners,
    picked,
    rows_of,
    scattered,
    split,
    whole,
)
from autobatch.presence.moves import PERMUTES, move_of, owners_of, place_of

Edge = tuple[Any, int]


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


def needed(roots: Iterable[Edge], rows: Mask = None) -> Reached:
    """What ``rows`` of the roots need; None: all of them."""
    known: dict[Any, dict[int, Mask]] = {}
    for root, nr in roots:
        known.setdefault(root, {})[nr] = given(root, nr, rows)
    edges = edges_from(known)
    waiting = Counter(before for found in edges.values() for before, _ in found)
    reached = Reached()
    ready = [root for root in known if not waiting[root]]
    while ready:
        node = ready.pop()
        parts = known.pop(node)
        masks = before_move(node, parts, edges[node])
        for (before, nr), mask in zip(edges[node], masks, strict=True):
            here = known.setdefault(before, {})
            here[nr] = either(here[nr], mask) if nr in here else mask
            waiting[before] -= 1
            if not waiting[before]:
                ready.append(before)
        reached.add(node, all_of(parts.values()))
    return reached


def given(root: Any, nr: int, rows: Mask) -> Mask:
    """The rows of a root, if that is how many it has."""
    return rows if rows is not None and rows.shape == (rows_of_result(root, nr),) else None


def edges_from(roots: Iterable[Any]) -> dict[Any, list[Edge]]:
    """What the walk goes on to from each node that the roots reach."""
    found: dict[Any, list[Edge]] = {}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = edges_of(node)
            waiting += [before for before, _ in found[node]]
    return found


def edges_of(node: Any) -> list[Edge]:
    """The operands of a node; of a gradient, what was there before all that it is made of."""
    edges = [(before, nr) for before, nr in node.next_functions if before is not None]
    move = move_of(node)
    if type(move) is not Derived or move.first is None:
        return edges
    found: dict[Edge, None] = {}
    seen = set()
    while edges:
        edge = edges.pop()
        before, _ = edge
        further = before.next_functions
        if not further or before._sequence_nr() < move.first:
            found[edge] = None
        elif before not in seen:
            seen.add(before)
            edges += [(each, nr) for each, nr in further if each is not None]
    return list(found)


def before_move(node: Any, parts: dict[int, Mask], operands: Sequence[Edge]) -> Sequence[Mask]:
    """The rows that a node needs of each of its operands, for those of its results."""
    mask = all_of(parts.values())
    if is_nothing(mask):
        return [NOTHING] * len(operands)
    if (sizes := owners_of(node)) is not None:
        mask = of_owners(mask, sizes)
    match move_of(node):
        case Derived(_, first):
            return [None if first is None else mask] * len(operands)
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
            rows = [nr in parts and not is_nothing(parts[nr]) for nr in range(results_of(node))]
            return [np.array(rows)] * len(operands)
        case Picked(where, count):
            return [picked(where, mask, count)] * len(operands)
        case Grouped(size):
            return [None if mask is None else np.repeat(mask, size)] * len(operands)
        case Spread(size):
            return [gathered(mask, size)] * len(operands)
        case Arranged(index, sizes):
            return list(present(node, split(scattered(index, mask, sum(sizes)), sizes)))
        case Added(index, count):
            return of_added(node, mask, index, count)
        case Parted(sizes):
            return [
                np.repeat(
                    [not is_nothing(parts.get(nr, NOTHING)) for nr in range(len(sizes))], sizes
                )
            ]
    raise AssertionError(node)


def rows_of_result(node: Any, nr: int) -> int:
    """How many rows a result of a node has."""
    shape = node._input_metadata[nr].shape
    return int(shape[0]) if len(shape) else 1


def results_of(node: Any) -> int:
    return len(node._input_metadata)


def present(node: Any, masks: Iterable[Mask]) -> Iterator[Mask]:
    """Of the masks of all operands, those of operands that are differentiated."""
    for (before, _), mask in zip(node.next_functions, masks, strict=True):
        if before is not None:
            yield mask


def of_added(node: Any, mask: Mask, index: Tensor, count: int) -> Sequence[Mask]:
    """The rows needed of what rows are added to, and of these."""
    at, rows = on_host(index), None
    if mask is not None and len(mask) == count:
        rows = mask[at].any(tuple(range(1, at.ndim)))
    if len(node.next_functions) != 2:
        return [None] * len(listed(node))
    return list(present(node, [mask, rows]))


def listed(node: Any) -> list[int]:
    """Which operands of a node are differentiated."""
    return [nr for nr, (before, _) in enumerate(node.next_functions) if before is not None]
