"""Rewrites of views and matrix products: the layout that hand-written code would have.

    views       permute(permute(x, p), q) → permute(x, p∘q); what undoes itself goes;
                of equal operations one stays
    turned      mm(W, permute(h))           →  permute(mm(h, permute(W)))
    fused       add(mm(a, b), c)            →  addmm(c, a, b)
                add(addmm(row, a, b), c)    →  addmm(add(c, row), a, b)

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
_VIEW = _ATEN.view.default
_VIEWS = (_VIEW, _ATEN._unsafe_view.default, _ATEN.reshape.default)
_ONES = (_ATEN.unsqueeze.default, _ATEN.squeeze.default, _ATEN.squeeze.dim, _ATEN.squeeze.dims)
_SAME_SHAPE_IS_SAME = (*_VIEWS, _ATEN.expand.default, _ATEN.slice.Tensor)
_TURN = [1, 0]


def simplify_views(graph: Graph) -> Graph:
    """Compose views of views, drop those that change nothing and operations that occur twice."""
    pinned, leaving = graph.written(), graph.leaving()
    makers: dict[int, Node] = {}
    seen: dict[Any, int] = {}
    now: dict[int, int] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node = rename(node, now)
        out = node.outs[0] if len(node.outs) == 1 else None
        if out is None or not node.grad or not _is_pure(node, graph.metas, pinned):
            nodes.append(node)
            continue
        same = None
        if node.is_view or node.op in _VIEWS:
            node = _composed(_canonical(node, graph.metas), makers)
            same = _unchanged(node, graph.metas)
        if same is None and (node.is_view or graph.metas[out].storage not in leaving):
            same = seen.setdefault((node.op, repr(node.args), repr(node.kwargs)), out)
        if same is not None and same != out:
            now[out] = same
            continue
        makers[out] = node
        nodes.append(node)
    outputs = tuple(now.get(out, out) for out in graph.outputs)
    return replace(graph, nodes=tuple(nodes), outputs=outputs)


def _is_pure(node: Node, metas: Mapping[int, Meta], written: frozenset[int]) -> bool:
    """Whether the node depends on its arguments alone, and nothing ever writes to them."""
    values = [*node.reads(), *(out for out in node.outs if out is not None)]
    quiet = not node.mutates and written.isdisjoint(metas[value].storage for value in values)
    return quiet and torch.Tag.nondeterministic_seeded not in node.op.tags


def _canonical(node: Node, metas: Mapping[int, Meta]) -> Node:
    """Transposes as permutes; views with their sizes (-1 would have no meaning for no rows)."""
    out = metas[node.outs[0]] if node.outs[0] is not None else None
    if node.op in (_ATEN.t.default, _ATEN.transpose.int) and out is not None:
        order = list(range(len(out.shape)))
        if node.op is _ATEN.t.default:
            order.reverse()
        else:
            a, b = node.args[1], node.args[2]
            order[a], order[b] = order[b], order[a]
        return replace(node, op=_PERMUTE, args=(node.args[0], order))
    if node.op in (*_VIEWS, *_ONES) and out is not None and None not in out.shape:
        return replace(node, op=_VIEW, args=(node.args[0], list(out.shape)))
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
        """The addition, or what takes its place."""
        for product, addend in (node.args, node.args[::-1]):
            if not isinstance(product, Ref) or not isinstance(addend, Ref):
                continue
            if self.is_fusible(product, addend, node):
                maker = self.makers[product.value]
                rest = self.added(maker, addend)
                if rest is not None:
                    return replace(node, op=_ADDMM, args=(rest, *maker.args[-2:]))
            if (inner := self.viewed_product(product, addend, node)) is not None:
                biased = self.insert(replace(inner, op=_ADDMM, args=(addend, *inner.args)))
                return replace(node, op=_VIEW, args=(biased, self.makers[product.value].args[1]))
        return node

    def is_fusible(self, product: Ref, addend: Ref, node: Node) -> bool:
        """Whether the node is a product, read only here, and a matrix or row of its dtype."""
        if self.product(product) is None or node.outs[0] is None:
            return False
        a, b, out = (self.metas[v] for v in (product.value, addend.value, node.outs[0]))
        alike = a.dtype == b.dtype and a.shape == out.shape and None not in a.shape + b.shape
        return alike and len(b.shape) in (1, 2)

    def product(self, value: Ref) -> Node | None:
        """The ``mm`` or ``addmm`` that makes a floating value for one reader alone."""
        maker = self.makers.get(value.value)
        if maker is None or maker.op not in (_MM, _ADDMM) or maker.kwargs or not maker.grad:
            return None
        once = self.reads[value.value] == 1 and self.metas[value.value].dtype.is_floating_point
        return maker if once and not _touches(self.graph, value.value, *maker.reads()) else None

    def viewed_product(self, view: Ref, addend: Ref, node: Node) -> Node | None:
        """The ``mm`` of a layer over more than one row per thread: ``add(view(mm), row)``."""
        maker = self.makers.get(view.value)
        if maker is None or maker.op is not _VIEW or self.reads[view.value] != 1:
            return None
        inner = self.product(maker.args[0])
        if inner is None or inner.op is not _MM or not maker.grad or node.outs[0] is None:
            return None
        row, viewed = self.metas[addend.value], self.metas[view.value]
        width = self.metas[maker.args[0].value].shape[1:]
        fits = row.dtype == viewed.dtype and row.shape == width == viewed.shape[-1:]
        return inner if fits and viewed.shape == self.metas[node.outs[0]].shape else None

    def added(self, maker: Node, addend: Ref) -> Ref | None:
        """What the product adds once ``addend`` is added, too; None where that saves nothing."""
        if maker.op is _MM:
            return addend
        first = maker.args[0]
        if (inner := self.product(first)) is not None and inner.op is _MM:
            return self.insert(replace(inner, op=_ADDMM, args=(addend, *inner.args)))
        other = self.product(addend)
        whole = self.metas[addend.value].shape == self.metas[maker.outs[0]].shape  # type: ignore[index]
        if other is None and whole and self.are_rows(first):
            return self.insert(replace(maker, op=_ATEN.add.Tensor, args=(addend, first)))
        if other is None or other.op is not _ADDMM or not self.are_rows(first, other.args[0]):
            return None
        row = self.insert(replace(other, op=_ATEN.add.Tensor, args=(other.args[0], first)))
        return self.insert(replace(other, args=(row, *other.args[1:])))

    def are_rows(self, *values: Ref) -> bool:
        return all(len(self.metas[value.value].shape) == 1 for value in values)

    def insert(self, node: Node) -> Ref:
        """Emit a node like another under a new value, which one reader is to read."""
        out = max(self.metas) + 1
        like = node.args[0] if node.op is not _ADDMM else Ref(node.outs[0])  # type: ignore[arg-type]
        self.metas[out] = replace(self.metas[like.value], storage=out)
        self.reads[out] = 1
        self.emit(replace(node, outs=(out,)))
        return Ref(out)
