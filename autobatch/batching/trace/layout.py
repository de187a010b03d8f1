"""Rewrites of views and matrix products: the layout that hand-written code would have.

    views       permute(permute(x, p), q) → permute(x, p∘q); what undoes itself goes;
                one of several equal views stays
    turned      mm(W, permute(h))           →  permute(mm(h, permute(W)))
    fused       add(mm(a, b), c)            →  addmm(c, a, b)

vmap computes ``W @ h`` as ``permute(mm(W, permute(h)))``: a column-major result, which slows
down everything after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from autobatch.batching.trace.graph import Count, Graph, Meta, Node, Ref, rename

_ATEN = torch.ops.aten
_MM, _ADDMM = _ATEN.mm.default, _ATEN.addmm.default
_PERMUTE = _ATEN.permute.default
_VIEWS = (_ATEN.view.default, _ATEN._unsafe_view.default, _ATEN.reshape.default)
_SAME_SHAPE_IS_SAME = (*_VIEWS, _ATEN.expand.default, _ATEN.slice.Tensor)
_TURN = [1, 0]


def simplify_views(graph: Graph) -> Graph:
    """Compose views of views, drop those that change nothing and those that occur twice."""
    pinned = graph.written()
    makers: dict[int, Node] = {}
    seen: dict[Any, int] = {}
    now: dict[int, int] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node = rename(node, now)
        out = node.outs[0] if len(node.outs) == 1 else None
        movable = node.is_view or node.op in _VIEWS
        if out is None or not movable or not node.grad or graph.metas[out].storage in pinned:
            nodes.append(node)
            continue
        node = _composed(_canonical(node, graph.metas), makers)
        key = (node.op, repr(node.args))
        same = _unchanged(node, graph.metas)
        if (same := seen.get(key) if same is None else same) is not None:
            now[out] = same
            continue
        seen[key] = out
        makers[out] = node
        nodes.append(node)
    outputs = tuple(now.get(out, out) for out in graph.outputs)
    return replace(graph, nodes=tuple(nodes), outputs=outputs)


def _canonical(node: Node, metas: Mapping[int, Meta]) -> Node:
    """Transposes as permutes; the sizes of a view spelled out (-1 has no meaning for no rows)."""
    out = metas[node.outs[0]] if node.outs[0] is not None else None
    if node.op in (_ATEN.t.default, _ATEN.transpose.int) and out is not None:
        order = list(range(len(out.shape)))
        if node.op is _ATEN.t.default:
            order.reverse()
        else:
            a, b = node.args[1], node.args[2]
            order[a], order[b] = order[b], order[a]
        return replace(node, op=_PERMUTE, args=(node.args[0], order))
    if node.op in _VIEWS and out is not None and None not in out.shape:
        return replace(node, args=(node.args[0], list(out.shape)))
    return node


def _composed(node: Node, makers: Mapping[int, Node]) -> Node:
    """A view of a view of the same kind as one view."""
    inner = makers.get(node.args[0].value) if isinstance(node.args[0], Ref) else None
    if inner is None:
        return node
    if node.op is _PERMUTE and inner.op is _PERMUTE:
        order = [inner.args[1][dim] for dim in node.args[1]]
        return replace(node, args=(inner.args[0], order))
    if node.op in _VIEWS and inner.op in _VIEWS:
        return replace(node, args=(inner.args[0], node.args[1]))
    return node


def _unchanged(node: Node, metas: Mapping[int, Meta]) -> int | None:
    """The value that a view does not change."""
    if not isinstance(node.args[0], Ref) or node.outs[0] is None:
        return None
    source = node.args[0].value
    shape = metas[node.outs[0]].shape
    if node.op is _PERMUTE:
        return source if [d % len(shape) for d in node.args[1]] == [*range(len(shape))] else None
    if node.op in _SAME_SHAPE_IS_SAME and None not in shape and shape == metas[source].shape:
        return source
    return None


def turn_products(graph: Graph) -> Graph:
    """An ``mm`` with threads last is done transposed; whoever reads it gets a view."""
    metas = dict(graph.metas)
    nodes: list[Node] = []
    for node in graph.nodes:
        if _is_threads_last(node, graph):
            nodes += _turned(node, metas)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), metas=metas)


def _is_threads_last(node: Node, graph: Graph) -> bool:
    product = node.outs[0] if node.op is _MM else None
    if product is None or not node.grad or _touches(graph, product):
        return False
    first, last = graph.metas[product].shape
    return isinstance(last, Count) and not isinstance(first, Count)


def _turned(node: Node, metas: dict[int, Meta]) -> list[Node]:
    """``mm(a, b)`` as ``permute(mm(permute(b), permute(a)))``; adds to ``metas``."""
    flipped: list[Node] = []
    for operand in (node.args[1], node.args[0]):
        value = max(metas) + 1
        metas[value] = _transposed(metas[operand.value])
        flipped.append(replace(node, op=_PERMUTE, args=(operand, _TURN), outs=(value,)))
    turned, product = max(metas) + 1, node.outs[0]
    assert product is not None
    rows, columns = _transposed(metas[product]).shape
    metas[turned] = replace(metas[product], shape=(rows, columns), stride=(columns, 1))
    metas[product] = _transposed(metas[turned])
    operands = tuple(Ref(turn.outs[0]) for turn in flipped if turn.outs[0] is not None)
    return [
        *flipped,
        replace(node, args=operands, outs=(turned,)),
        replace(node, op=_PERMUTE, args=(Ref(turned), _TURN)),
    ]


def _transposed(meta: Meta) -> Meta:
    return replace(meta, shape=meta.shape[::-1], stride=meta.stride[::-1])


def _touches(graph: Graph, *values: int) -> bool:
    """Whether any of the values shares a storage that is written to."""
    return not graph.written().isdisjoint(graph.metas[value].storage for value in values)


def fuse_products(graph: Graph) -> Graph:
    """Additions to a product become part of it: ``a@b + c@d + e`` is two ``addmm``."""
    return _Fusion(graph).run()


class _Fusion:
    """One pass of ``fuse_products``; a replaced product is dead, and goes as such."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.metas = dict(graph.metas)
        self.makers: dict[int, Node] = {}
        self.nodes: list[Node] = []
        self.reads = Counter(value for node in graph.nodes for value in node.reads())
        self.reads.update(graph.outputs)

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if node.op is _ATEN.add.Tensor and not node.kwargs and node.grad:
                node = self.fused(node)
            self.emit(node)
        return replace(self.graph, nodes=tuple(self.nodes), metas=self.metas)

    def emit(self, node: Node) -> None:
        self.nodes.append(node)
        if len(node.outs) == 1 and node.outs[0] is not None:
            self.makers[node.outs[0]] = node

    def fused(self, node: Node) -> Node:
        """The addition, or the product that takes its place."""
        for product, addend in (node.args, node.args[::-1]):
            if self.is_fusible(product, addend, node):
                maker = self.makers[product.value]
                rest = self.added(maker, addend)
                if rest is not None:
                    return replace(node, op=_ADDMM, args=(rest, *maker.args[-2:]))
        return node

    def is_fusible(self, product: Any, addend: Any, node: Node) -> bool:
        if not (isinstance(product, Ref) and isinstance(addend, Ref)) or node.outs[0] is None:
            return False
        maker = self.makers.get(product.value)
        if maker is None or maker.op not in (_MM, _ADDMM) or maker.kwargs or not maker.grad:
            return False
        a, b, out = (self.metas[v] for v in (product.value, addend.value, node.outs[0]))
        alike = a.dtype == b.dtype and a.dtype.is_floating_point and a.shape == out.shape
        once = self.reads[product.value] == 1 and len(b.shape) in (1, 2)
        alike = alike and None not in a.shape + b.shape
        return alike and once and not _touches(self.graph, product.value, *maker.reads())

    def added(self, maker: Node, addend: Ref) -> Ref | None:
        """What the product adds once ``addend`` is added, too; None where that saves nothing."""
        if maker.op is _MM:
            return addend
        inner = self.makers.get(maker.args[0].value)
        if inner is None or inner.op is not _MM or self.reads[maker.args[0].value] != 1:
            return None
        if inner.kwargs or not inner.grad or _touches(self.graph, *inner.reads()):
            return None
        out = max(self.metas) + 1
        self.metas[out] = replace(self.metas[maker.args[0].value], storage=out)
        self.reads[out] = 1
        self.emit(replace(inner, op=_ADDMM, args=(addend, *inner.args), outs=(out,)))
        return Ref(out)
