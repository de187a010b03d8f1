"""Writes without a copy: a graph that writes to a copy of an input writes to the input itself.

    v = clone(a)                        select(a, 1, t).copy_(x)
    select(v, 1, t).copy_(x)     →      return a
    return v

A column is never changed in place, since others may hold its memory; so a write copies all of it,
whatever little it writes. Where nobody else does (``stretches.holders``), that is for nothing.

In: a graph through which no gradient flows, one of its inputs, and the place of the result that
takes the input's place. Out: the graph that writes over the input; None where that is not so plain:
another result shares its memory, what was there is read later, or the write may fail. A failing
stretch runs again, from what was there before: so a write at places that may be out of range is
taken only where nothing of the input is read, or these places have been read before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from autobatch.batching.trace.failing import may_fail
from autobatch.batching.trace.graph import Count, Graph, Node, Ref, rename

_ATEN = torch.ops.aten
_CLONE, _INDEX, _PUT = _ATEN.clone.default, _ATEN.index.Tensor, _ATEN.index_put_.default


def over(graph: Graph, given: int, result: int) -> Graph | None:
    """The graph that writes its result into the input ``given``, without the copy of that."""
    made = graph.outputs[result]
    copies = [node for node in graph.nodes if node.op is _CLONE and node.outs == (made,)]
    if not copies or copies[0].args != (Ref(given),) or not _are_alike(graph, given, made):
        return None
    copy = copies[0]
    if not _is_apart(graph, given, made) or not _may_write(graph, copy, given, made):
        return None
    now = {made: given}
    nodes = tuple(rename(node, now) for node in graph.nodes if node is not copy)
    there, here = graph.metas[made].storage, graph.metas[given].storage
    metas = {
        value: replace(meta, storage=here) if meta.storage == there else meta
        for value, meta in graph.metas.items()
    }
    outputs = tuple(now.get(out, out) for out in graph.outputs)
    return replace(graph, nodes=nodes, outputs=outputs, metas=metas)


def _are_alike(graph: Graph, given: int, made: int) -> bool:
    """Whether a copy lies in memory as what it is a copy of."""
    one, other = graph.metas[given], graph.metas[made]
    known = None not in (*one.shape, *one.stride)
    return known and replace(one, storage=0) == replace(other, storage=0)


def _is_apart(graph: Graph, given: int, made: int) -> bool:
    """Whether no other input or result has the memory of either."""
    metas = graph.metas
    there, here = metas[made].storage, metas[given].storage
    results = [metas[out].storage for out in graph.outputs]
    inputs = [metas[value].storage for value in range(graph.inputs) if value in metas]
    return results.count(there) == 1 and here not in results and inputs.count(here) == 1


def _may_write(graph: Graph, copy: Node, given: int, made: int) -> bool:
    """Whether the input is read no more once it is written, and no write fails halfway."""
    metas = graph.metas
    there, here = metas[made].storage, metas[given].storage
    reads = [
        place
        for place, node in enumerate(graph.nodes)
        if node is not copy and any(metas[value].storage == here for value in node.reads())
    ]
    writes = [
        place
        for place, node in enumerate(graph.nodes)
        if any(metas[value].storage == there for value in node.writes())
    ]
    if not writes or (reads and reads[-1] >= writes[0]):
        return False
    before = graph.nodes[: writes[0]]
    looked_at = bool(reads) or any(
        metas[value].storage == there and not node.is_view
        for node in before
        for value in node.reads()
        if node is not copy
    )
    return all(
        not may_fail(node, metas) or _is_sound(node, graph, before, looked_at)
        for node in graph.nodes[writes[0] :]
    )


def _is_sound(node: Node, graph: Graph, before: tuple[Node, ...], looked_at: bool) -> bool:
    """Whether a write at one place of each thread does not fail, or may be done once more."""
    if node.op is not _PUT or any(node.args[3:]):
        return False
    places = list(_places(node))
    if any(graph.metas[value].shape != (Count(1),) for value in places):
        return False
    return not looked_at or any(
        earlier.op is _INDEX
        and list(_places(earlier)) == places
        and _shape(earlier.args[0], graph) == _shape(node.args[0], graph)
        for earlier in before
    )


def _places(node: Node) -> Iterator[int]:
    return (part.value for part in node.args[1] if isinstance(part, Ref))


def _shape(argument: Any, graph: Graph) -> Any:
    return graph.metas[argument.value].shape
