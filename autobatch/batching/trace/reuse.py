"""Which operations of a graph may write their result into an operand that nobody needs any more.

In: a graph. Out: for some of its nodes, the same operation in place, ``mul(a, b)`` as
``mul_(a, b)``, ``sub(a, b)`` as ``sub(a, b, out=b)``. Fresh memory costs a step more than its
arithmetic once it is no longer in the cache. The graph itself stays free of writes: this is how it
is printed.

An operand is taken if a kernel of the graph made it, in memory of its own, the result has its very
layout and dtype, and nothing that shares that memory is read later, or goes out; or it is an input
that is ``spent``, which nobody else holds: what a loop's last round has made. Where gradients
may flow, autograd keeps operands and results for their derivatives: then only sums are written in
place, over what no derivative needs. A training step of a TreeLSTM on 256 trees takes 0.94 of the
time that it takes without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Set
from dataclasses import replace
from functools import cache

import torch
from torch._ops import OpOverload

from autobatch.batching.trace.failing import may_fail
from autobatch.batching.trace.graph import Graph, Node, Ref

_ATEN = torch.ops.aten
NOTHING: frozenset[int] = frozenset()
_ADDMM = _ATEN.addmm.default
_EITHER = (_ATEN.add.Tensor, _ATEN.mul.Tensor)
"""Operations whose second operand may be written as well as the first."""
_OVER = {
    each: getattr(_ATEN, each._schema.name.split("::")[1]).out
    for each in (
        *(_ATEN.sub.Tensor, _ATEN.div.Tensor, _ATEN.maximum.default, _ATEN.minimum.default),
        *(_ATEN.atan2.default, _ATEN.fmax.default, _ATEN.fmin.default),
    )
}
"""Those that write over any tensor by ``out=``, element by element; what that reads stays right."""
_SUMS = (_ATEN.add.Tensor, _ATEN.sub.Tensor, _ADDMM)
"""Their derivatives need neither their result nor what they may write it over."""
_FORGOTTEN = (
    *("add", "addmm", "cat", "embedding", "gather", "index", "index_select", "mm", "mul", "neg"),
    *("sub", "where"),
)
"""Operations whose derivatives do not need their result."""


def in_place(
    graph: Graph, grad: bool = False, barred: Container[int] = (), spent: Set[int] = NOTHING
) -> Mapping[int, Node]:
    """By place among the nodes, the node that runs instead: it writes one of its arguments.

    ``grad``: gradients may flow through a replay; ``barred`` are places that stay as they are;
    ``spent`` are inputs that nobody else holds.
    """
    owned = set(_unsaved(graph)) if grad else {*_owned(graph), *_spent(graph, spent)}
    last: dict[int, int] = {}
    for place, node in enumerate(graph.nodes):
        for value in node.reads():
            last[graph.metas[value].storage] = place
    found: dict[int, Node] = {}
    for place, node in enumerate(graph.nodes):
        if place in barred or (grad and not (node.grad and node.op in _SUMS)):
            continue
        for candidate in _over_first(node) if grad else _candidates(node):  # no out= has a gradient
            (target,) = candidate.writes()
            storage = graph.metas[target].storage
            if target in owned and last[storage] == place and _fits(candidate, target, graph):
                found[place] = candidate
                break
    return found


def spends(graph: Graph, spent: Set[int]) -> bool:
    """Whether an operation writes over one of these inputs, and none fails from there on.

    What fails is to run once more from what was there before.
    """
    found = in_place(graph, spent=spent).items()
    places = [place for place, node in found if not spent.isdisjoint(node.writes())]
    return bool(places) and not any(
        may_fail(node, graph.metas) for node in graph.nodes[min(places) :]
    )


def _given(graph: Graph) -> Counter[int]:
    """How many inputs lie in each memory."""
    return Counter(
        graph.metas[value].storage for value in range(graph.inputs) if value in graph.metas
    )


def _spent(graph: Graph, spent: Set[int]) -> Iterator[int]:
    """Those of the inputs whose memory stays within the graph, and is no other's."""
    kept, uses = graph.leaving() | graph.written(), _given(graph)
    for value in spent:
        storage = graph.metas[value].storage
        if storage not in kept and uses[storage] == 1:
            yield value


def _owned(graph: Graph) -> Iterator[int]:
    """The values that a kernel makes in memory of its own, which stays within the graph."""
    leaving, written, uses = graph.leaving(), graph.written(), _given(graph)
    for node in graph.nodes:
        out = node.outs[0] if node.single else None
        if out is None or node.is_view or node.mutates:
            continue
        storage = graph.metas[out].storage
        if storage not in leaving and storage not in written and storage not in uses:
            yield out


def _unsaved(graph: Graph) -> Iterator[int]:
    """Those of them that autograd keeps for no derivative, if a sum is what reads them."""
    reads = Counter(graph.metas[value].storage for node in graph.nodes for value in node.reads())
    makers = {out: node for node in graph.nodes for out in node.outs if out is not None}
    for value in _owned(graph):
        node = makers[value]
        known = node.op.namespace == "aten" and node.grad
        if known and _name(node.op) in _FORGOTTEN and reads[graph.metas[value].storage] == 1:
            yield value


def _name(op: OpOverload) -> str:
    return op._schema.name.split("::")[1]


def _candidates(node: Node) -> Iterator[Node]:
    """The node in place, over each operand that it may write."""
    yield from _over_first(node)
    if (op := _OVER.get(node.op)) is not None:
        for operand in node.args:
            if isinstance(operand, Ref):
                yield replace(node, op=op, kwargs={**node.kwargs, "out": operand})


def _over_first(node: Node) -> Iterator[Node]:
    """The same by an operator that writes its first operand, in less time."""
    op = _in_place(node.op)
    if op is None or not node.single or not node.args or not isinstance(node.args[0], Ref):
        return
    yield replace(node, op=op)
    if node.op in _EITHER and not node.kwargs and isinstance(node.args[1], Ref):
        yield replace(node, op=op, args=(node.args[1], node.args[0], *node.args[2:]))


def _fits(node: Node, target: int, graph: Graph) -> bool:
    """Whether a node's result is laid out as what it writes, and it reads that only as it is."""
    metas = graph.metas
    (out,) = node.outs
    assert out is not None
    made, there = metas[out], metas[target]
    alike = (made.shape, made.stride, made.dtype) == (there.shape, there.stride, there.dtype)
    if not alike or None in made.shape or None in made.stride:
        return False
    others = list(node.reads())
    if node.op is _ATEN.addmm_.default and others.count(target) > 1:
        return False
    return all(value == target or metas[value].storage != there.storage for value in others)


@cache
def _in_place(op: OpOverload) -> OpOverload | None:
    """The operator that does the same element by element in place, if there is one."""
    if op is _ADDMM:
        return _ATEN.addmm_.default
    if op.namespace != "aten" or torch.Tag.pointwise not in op.tags:
        return None
    if torch.Tag.nondeterministic_seeded in op.tags:
        return None
    found = getattr(getattr(_ATEN, f"{_name(op)}_", None), op._overloadname, None)
    if not isinstance(found, OpOverload):
        return None
    names = [[argument.name for argument in each._schema.arguments] for each in (op, found)]
    writes = [argument.alias_info is not None for argument in found._schema.arguments]
    return found if names[0] == names[1] and writes[0] and not any(writes[1:]) else None
