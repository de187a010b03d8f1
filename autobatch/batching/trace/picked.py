"""Parts that each thread picks of its own tensor, ``x[i]``, by a kernel that copies them whole.

    index(x, [arange(k), i])   →   index_select(x of [k * n, …], 0, arange(k) * n + i)

torch's kernel for two indices asks for each element where it is: for large parts that takes two to
four times as long as to copy each at once. Small ones stay, since the indices are looked at first:
what is counted from the end, or out of range, is torch's own matter.

In: a graph through which no gradient flows. Out: for some of its nodes, what is to be called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.applying.indexing import LONG_ROW
from autobatch.batching.trace.graph import Count, Graph, Node, Ref
from autobatch.presence.risks import name_of

_INDEX = torch.ops.aten.index.Tensor
MANY = 2**15
"""Elements in all parts from which to copy each whole pays."""


def threads_places(graph: Graph) -> Set[int]:
    """Values that hold the threads' places, ``arange(k)``, in the first of their dimensions."""
    found: set[int] = set()
    if all(node.op is not _INDEX for node in graph.nodes):
        return found
    for node in graph.nodes:
        name = name_of(node.op)
        if name == "arange" and node.args == (Count(1),):
            found.update(out for out in node.outs if out is not None)
        elif name in SHAPES and node.single and set(node.reads()) <= found:
            (out,) = node.outs
            if out is not None and graph.metas[out].shape[:1] == (Count(1),):
                found.add(out)
    return found


SHAPES = ("detach", "reshape", "unsqueeze", "view")


def picks(graph: Graph, node: Node, threads: Set[int]) -> Callable[..., Any] | None:
    """What to call for a node that picks a large part of each thread's tensor; else None."""
    if node.op is not _INDEX or type(node.args[0]) is not Ref or len(node.args[1]) != 2:
        return None
    rows, places = node.args[1]
    if type(rows) is not Ref or type(places) is not Ref or rows.value not in threads:
        return None
    metas = graph.metas
    table, first, second = (metas[ref.value] for ref in (node.args[0], rows, places))
    known = table.shape[0] == Count(1) and all(type(size) is int for size in table.shape[1:])
    each = first.shape == second.shape == (Count(1),) and second.dtype is torch.int64
    on_host = table.device.type == "cpu"
    large = known and math.prod(table.shape[2:]) >= LONG_ROW
    return picked if each and on_host and large else None


def picked(table: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """``table[rows, places]``."""
    rows, places = indices
    size = table.shape[1]
    if table.numel() < MANY * size or not table.is_contiguous():
        return table[rows, places]
    low, high = torch.aminmax(places)
    if low < 0 or high >= size:
        return table[rows, places]
    return table.flatten(0, 1).index_select(0, torch.add(places, rows, alpha=size))
