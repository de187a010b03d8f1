"""Replays of which it is known that no row fails: they look at none.

    v = clamp(a, -n, n - 1)
    m = ne(v, a)                         w = remainder(a, n)
    w = remainder(v, n)          →       return index_select(t, 0, w)
    return index_select(t, 0, w), m

In: a graph whose last results are masks of rows that fail, all of which are known to be false, as
the bounds of indices may say. Out: the graph without these results. A mask that says where a value
is not what ``clamp`` made of it says, being false, that it is: then nothing is clamped. Of the 22
kernels of a level of a TreeLSTM these are two.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from autobatch.batching.trace.graph import Graph, Node, Ref, rename
from autobatch.batching.trace.rewrite import drop_dead

_ATEN = torch.ops.aten


def sure(graph: Graph, masks: int) -> Graph:
    """The graph without the last ``masks`` of its results, which are known to be false."""
    end = len(graph.outputs) - masks
    kept, known = graph.outputs[:end], set(graph.outputs[end:])
    makers = {out: node for node in graph.nodes for out in node.outs if out is not None}
    now: dict[int, int] = {}
    for value in known:
        pair = _unclamped(makers.get(value), makers)
        if pair is not None and _are_alike(graph, *pair):
            now[pair[0]] = pair[1]
    nodes = tuple(rename(node, now) for node in graph.nodes)
    return drop_dead(replace(graph, nodes=nodes, outputs=kept))


def _unclamped(mask: Node | None, makers: dict[int, Node]) -> tuple[int, int] | None:
    """A value that a mask compares with what it was clamped from, and that."""
    if mask is None or mask.op is not _ATEN.ne.Tensor:
        return None
    one, other = mask.args
    maker = makers.get(one.value) if isinstance(one, Ref) else None
    if maker is None or maker.op is not _ATEN.clamp.default or maker.args[0] != other:
        return None
    return one.value, other.value


def _are_alike(graph: Graph, made: int, given: int) -> bool:
    """Whether one may stand for the other: nothing is written to either, nor goes out."""
    metas, pinned = graph.metas, graph.written() | graph.leaving()
    if not pinned.isdisjoint((metas[made].storage, metas[given].storage)):
        return False
    return metas[made].dtype == metas[given].dtype and metas[made].shape == metas[given].shape
