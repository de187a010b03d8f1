"""Which operands of a recorded stretch are guarded (see ``presence``).

In: a graph through whose replays gradients may flow. Out: by place among the nodes and place among
its arguments, the guard of an operand that has a row for each thread, or is broadcast to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.trace.graph import Count, Graph, Meta, Node, Ref
from autobatch.presence.guards import guarded, guarded_if_wild
from autobatch.presence.risks import PRODUCTS, is_risky, name_of

_THREADS = Count(1)


@dataclass(frozen=True, slots=True)
class Guard:
    """``function(operand, dim, shape)``; threads are in dimension ``dim``."""

    function: Callable[..., Tensor]
    dim: int
    shape: tuple[Any, ...] | None = None


def guards(graph: Graph) -> Mapping[int, Mapping[int, Guard]]:
    """``wild`` are the values that may be infinite for finite inputs."""
    wild: set[int] = set()
    found: dict[int, Mapping[int, Guard]] = {}
    for place, node in enumerate(graph.nodes):
        name, reads_wild = name_of(node.op), not wild.isdisjoint(node.reads())
        risky = may_be_infinite(graph, node)
        if risky or reads_wild:
            wild.update(out for out in node.outs if out is not None)
        if node.mutates or node.is_view or not node.grad:
            continue
        if risky or name in PRODUCTS:
            function = guarded if risky or reads_wild else guarded_if_wild
            if here := dict(of_operands(graph, node, function)):
                found[place] = here
    return found


def gives_infinities(graph: Graph) -> bool:
    """Whether some value may be infinite for finite inputs, be it differentiated or not."""
    return any(may_be_infinite(graph, node) for node in graph.nodes)


def may_be_infinite(graph: Graph, node: Node) -> bool:
    made = (graph.metas[out].dtype for out in node.outs if out is not None)
    return is_risky(name_of(node.op), node.args) and any(map(is_smooth, made))


def of_operands(
    graph: Graph, node: Node, function: Callable[..., Tensor]
) -> Iterator[tuple[int, Guard]]:
    metas = graph.metas
    shared = broadcast_shape(graph, node)
    for place, argument in enumerate(node.args):
        if type(argument) is not Ref or argument.value in graph.literals:
            continue
        meta = metas[argument.value]
        if not is_smooth(meta.dtype):
            continue
        if _THREADS in meta.shape:
            yield place, Guard(function, meta.shape.index(_THREADS))
        elif shared is not None and is_uniform(meta):
            yield place, Guard(function, shared.index(_THREADS), shared)


def broadcast_shape(graph: Graph, node: Node) -> tuple[Any, ...] | None:
    """The shape of what a pointwise operation gives for threads, if it can be that of its operands.

    One of another dtype might then count as another kind of number.
    """
    if torch.Tag.pointwise not in node.op.tags or len(node.outs) != 1 or node.outs[0] is None:
        return None
    shape = graph.metas[node.outs[0]].shape
    dtypes = {graph.metas[value].dtype for value in node.reads()}
    known = all(type(size) is int or size == _THREADS for size in shape)
    return shape if _THREADS in shape and known and len(dtypes) == 1 else None


def is_uniform(meta: Meta) -> bool:
    return all(type(size) is int for size in meta.shape)


def is_smooth(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex
