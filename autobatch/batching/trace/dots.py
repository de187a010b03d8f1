"""Rewrites of inner products: what multiplies and then sums is one kernel, without a sum another.

sum(mul(v, x), [1])   →  mv(x, v)     v is [n], x is [k, n]
bmm(x, y)             →  mul(x, y)    x is [k, n, 1], y is [k, 1, m]: a tenth of the time
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from autobatch.batching.trace.graph import Count, Graph, Meta, Node, Ref

_ATEN = torch.ops.aten
_DTYPES = (torch.float32, torch.float64)
_SHORT = range(4097)
"""Elements up to which a product is summed in any order: ``sum`` is the more accurate one."""


def fuse_dots(graph: Graph) -> Graph:
    """Inner products with one vector for all threads, by ``mv``."""
    makers: dict[int, Node] = {}
    reads = Counter(value for node in graph.nodes for value in node.reads())
    reads.update(graph.outputs)
    written = graph.written()
    nodes: list[Node] = []
    for node in graph.nodes:
        product = makers.get(node.args[0].value) if _sums_rows(node) else None
        if product is not None and product.grad is node.grad:
            operands = _operands(product, graph)
            quiet = written.isdisjoint(graph.metas[each].storage for each in product.reads())
            if operands is not None and quiet and reads[node.args[0].value] == 1:
                node = replace(node, op=_ATEN.mv.default, args=operands)
        nodes.append(node)
        if node.op is _ATEN.mul.Tensor and node.outs[0] is not None:
            makers[node.outs[0]] = node
    return replace(graph, nodes=tuple(nodes))


def part_outers(graph: Graph) -> Graph:
    """Products of one column and one row for each thread, as a gradient has them, by ``mul``."""
    return replace(graph, nodes=tuple(_outer(node, graph) for node in graph.nodes))


def _outer(node: Node, graph: Graph) -> Node:
    if node.op is not _ATEN.bmm.default or not all(isinstance(arg, Ref) for arg in node.args):
        return node
    left, right = (graph.metas[arg.value] for arg in node.args)
    if left.shape[2] != 1 or None in (*left.shape, *left.stride, *right.shape, *right.stride):
        return node
    return replace(node, op=_ATEN.mul.Tensor) if _is_dense(left, right) else node


def _is_dense(left: Meta, right: Meta) -> bool:
    """Whether the product element by element lies in memory as that of matrices does."""
    made = [
        torch.empty_strided(
            *(tuple(_size(size) for size in sizes) for sizes in (meta.shape, meta.stride)),
            device="meta",
        )
        for meta in (left, right)
    ]
    return torch.mul(*made).is_contiguous()


def _size(size: Any) -> int:
    return 2 * size.multiple if isinstance(size, Count) else int(size)


def _sums_rows(node: Node) -> bool:
    if node.op is not _ATEN.sum.dim_IntList or node.kwargs or len(node.args) != 2:
        return False
    return isinstance(node.args[0], Ref) and list(node.args[1]) == [1]


def _operands(product: Node, graph: Graph) -> tuple[Ref, Ref] | None:
    """The matrix and the vector of a product, if it is one of those."""
    for vector, matrix in (product.args, product.args[::-1]):
        if not isinstance(vector, Ref) or not isinstance(matrix, Ref):
            return None
        one, many = graph.metas[vector.value], graph.metas[matrix.value]
        alike = one.dtype is many.dtype and one.dtype in _DTYPES
        fits = alike and len(one.shape) == 1 and one.shape[0] in _SHORT
        if fits and len(many.shape) == 2 and many.shape[1] == one.shape[0]:
            return matrix, vector
    return None
