"""Whether a recording may be replayed for rows of threads that are not there, and what that costs.

In: a graph. Out: what one row more takes, in elements that a cheap kernel computes (see
``ir.costs``), if a replay fails on no row whatever that holds, draws nothing, writes to nothing
that it is given, and looks nothing up by an index; None otherwise. What is not named here may do
any of that.
"""

from __future__ import annotations

import math

import torch

from autobatch.batching.trace.graph import Count, Graph, Meta, Node, Ref
from autobatch.ir.costs import ELEMENT, MULTIPLICATION
from autobatch.presence.risks import name_of, named

PRODUCTS = named("addbmm addmm addmv baddbmm bmm dot linear matmul mm mv")
MAKING = named(
    """alias argmax argmin all amax amin any cat clone constant_pad_nd contiguous copy cumsum detach
 diagonal empty empty_like expand flip full full_like lift_fresh linalg_vector_norm log_softmax
 logsumexp max mean min narrow native_layer_norm new_empty new_full new_ones new_zeros ones
 ones_like permute prod repeat reshape roll select slice softmax split split_with_sizes squeeze
 stack std sum t to_copy transpose tril triu unbind unsafe_split unsafe_view unsqueeze var view
 zeros zeros_like"""
)
"""They move elements, make new ones, or put those of a row together."""
WHOLE = named(
    """abs add bitwise_and bitwise_not bitwise_or bitwise_xor clamp clamp_max clamp_min eq ge gt le
 logical_and logical_not logical_or logical_xor lt maximum minimum mul ne neg rsub sign sub where"""
)
"""Element by element, and no ints fail in them: none is divided by, for one."""
PER_MULTIPLICATION = MULTIPLICATION / ELEMENT


def row_cost(graph: Graph) -> float | None:
    """See above."""
    given = {graph.metas[i].storage for i in range(graph.inputs) if i in graph.metas}
    if not given.isdisjoint(graph.written()):
        return None
    total = 0.0
    for node in graph.nodes:
        cost = node_cost(graph, node)
        if cost is None:
            return None
        total += cost
    return total


def node_cost(graph: Graph, node: Node) -> float | None:
    """The same for one operation."""
    name, metas = name_of(node.op), graph.metas
    made = [metas[out] for out in node.outs if out is not None]
    read = [metas[value] for value in node.reads()]
    if node.op.namespace != "aten" or not all(map(is_sized, (*made, *read))):
        return None
    if name in PRODUCTS:
        return product_cost(graph, node, made)
    if name not in MAKING and name not in WHOLE and not is_of_floats(node, made):
        return None
    return 0.0 if node.is_view else float(max(map(per_row, (*made, *read)), default=0))


def is_of_floats(node: Node, made: list[Meta]) -> bool:
    """Whether it gives floats or bools element by element, without a draw."""
    tags = node.op.tags
    if torch.Tag.pointwise not in tags or torch.Tag.nondeterministic_seeded in tags:
        return False
    return all(meta.dtype.is_floating_point or meta.dtype is torch.bool for meta in made)


def product_cost(graph: Graph, node: Node, made: list[Meta]) -> float | None:
    """What multiplications and additions for a row of a matrix product take."""
    factors = [arg for arg in node.args if isinstance(arg, Ref)]
    first = graph.metas[factors[name_of(node.op).startswith("add") or len(factors) == 3].value]
    if not first.shape or type(first.shape[-1]) is not int:
        return None
    return sum(map(per_row, made)) * first.shape[-1] * PER_MULTIPLICATION


def is_sized(meta: Meta) -> bool:
    return all(type(size) in (int, Count) for size in meta.shape)


def per_row(meta: Meta) -> int:
    """Elements of a row; none of what all threads share."""
    if not any(type(size) is Count for size in meta.shape):
        return 0
    return math.prod(size.multiple if type(size) is Count else size for size in meta.shape)
