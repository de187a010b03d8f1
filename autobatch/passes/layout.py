"""Block order: the blocks of a loop stand together, and before all that follows the loop.

The smallest waiting block runs next, so what threads do once they have left a loop should stand
behind it: then it runs once for all of them, instead of once for each time at which some leave.

Before (source order):               After:

    b0: branch c ? b1 : b4               b0: branch c ? b1 : b4
    b1: …  branch d ? b2 : b3            b1: …  branch d ? b3 : b2
    b2: found = …  jump b4               b2: …  jump b0
    b3: …  jump b0                       b3: found = …  jump b4
    b4: return found                     b4: return found

The order is that of Bourdoncle (1993), "Efficient chaotic iteration strategies with widenings":
strongly connected parts in topological order, each as its head followed by the rest, ordered in
the same way without the head. Parts that do not depend on each other keep the source's order.
A way that only raises stays in its loop: a thread must not wait to raise until others, which may
never end, have left the loop.

In: blocks of which the first is the entry and the last the exit; they stay so.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace

from autobatch.ir.dataflow import connected
from autobatch.ir.program import Function, Label

_Edges = Sequence[tuple[Label, ...]]


def order_blocks(function: Function) -> Function:
    """The function with its blocks in loop order."""
    edges = [block.successors() for block in function.blocks]
    doomed = _doomed(edges)
    order = list(_ordered(set(range(len(edges))), edges, doomed))
    place = {label: index for index, label in enumerate(order)}
    blocks = tuple(function.blocks[label].retargeted(place) for label in order)
    return replace(function, blocks=blocks)


def _doomed(edges: _Edges) -> set[Label]:
    """Blocks outside of loops from which every way ends in a raise."""
    found: set[Label] = set()
    grown = True
    while grown:
        more = {label for label in range(len(edges) - 1) if found.issuperset(edges[label])} - found
        found |= more
        grown = bool(more)
    return found


def _ordered(region: set[Label], edges: _Edges, doomed: set[Label]) -> Iterator[Label]:
    parts = [_with_raises(part, edges, doomed & region) for part in connected(region, edges)]
    taken = {label for part in parts if len(part) > 1 for label in part}
    parts = [part for part in parts if len(part) > 1 or not part & taken]
    for part in _topological(parts, edges):
        head = min(part)
        yield head
        yield from _ordered(part - {head}, edges, doomed)


def _with_raises(part: set[Label], edges: _Edges, doomed: set[Label]) -> set[Label]:
    """A loop with the ways out of it that only raise."""
    if len(part) == 1:
        return part
    part = set(part)
    grown = True
    while grown:
        more = {label for label in doomed - part if _only_from(part, label, edges)}
        part |= more
        grown = bool(more)
    return part


def _only_from(part: set[Label], label: Label, edges: _Edges) -> bool:
    sources = {source for source, targets in enumerate(edges) if label in targets}
    return bool(sources) and sources <= part


def _topological(parts: Sequence[set[Label]], edges: _Edges) -> Iterator[set[Label]]:
    """The parts, each after all that lead to it; of several that could come next, the earliest."""
    home = {label: index for index, part in enumerate(parts) for label in part}
    leads_to = [
        {home[target] for label in part for target in edges[label] if target in home} - {index}
        for index, part in enumerate(parts)
    ]
    waits = [sum(index in targets for targets in leads_to) for index in range(len(parts))]
    ready = [(min(part), index) for index, part in enumerate(parts) if not waits[index]]
    heapq.heapify(ready)
    while ready:
        _, index = heapq.heappop(ready)
        yield parts[index]
        for target in leads_to[index]:
            waits[target] -= 1
            if not waits[target]:
                heapq.heappush(ready, (min(parts[target]), target))
