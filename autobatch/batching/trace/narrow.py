"""Rows of few elements: the same values by kernels that do not start anew for each row.

torch's kernels go along the last dimension first. Where that is short, and an operand has one
element for each row, it costs five times what an operand of the full size does.

    spread     mul(s, x); mul(s, y)   →  t = expand(s, [k, n]); mul(t, x); mul(t, y)
               (s is [k, 1], x and y are [k, n])
    largest    max(x, 1)[0]           →  amax(x, [1]), or maximum(x[:, 0], x[:, 1])

and where a graph is printed, ``stand_in`` has what to call for nodes that choose among short rows,
or spread an element: where there are many rows that fills memory, which the operations share.

In: a graph through which no gradient flows. Out: one whose results have the same bits, but for the
sign of the zero that ``maximum``, ``minimum`` and extremes give of 0.0 and -0.0: torch's kernels
differ in that by how their operands lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from autobatch.batching.trace.graph import Count, Graph, Meta, Node, Ref
from autobatch.presence import wide_rows

_ATEN = torch.ops.aten
_WHERE, _EXPAND = _ATEN.where.self, _ATEN.expand.default
_SELECT = _ATEN.select.int
_BINARY = frozenset(
    {
        _ATEN.add.Tensor,
        _ATEN.sub.Tensor,
        _ATEN.mul.Tensor,
        _ATEN.div.Tensor,
        _ATEN.minimum.default,
        _ATEN.maximum.default,
    }
)
_EXTREMES: Mapping[OpOverload, tuple[OpOverload, OpOverload]] = {
    _ATEN.max.dim: (_ATEN.amax.default, _ATEN.maximum.default),
    _ATEN.min.dim: (_ATEN.amin.default, _ATEN.minimum.default),
}
SHORT = range(2, 13)
"""Elements of a row that is short: longer ones are vectorised along the row."""
_REAL = frozenset({torch.float32, torch.float64})
MANY, MANY_PAIRS = 2048, 512
"""Rows from which spreading an element over its row pays; pairs of floats are faster made."""


@dataclass(frozen=True, slots=True)
class Spread(Node):
    """An ``expand`` that nothing but broadcasting operations read, so that it may be a copy."""


def narrowed(graph: Graph) -> Graph:
    """The graph with short rows computed by other kernels."""
    return spread_elements(part_extremes(graph))


def spread_elements(graph: Graph) -> Graph:
    """An element for each row that short rows meet twice is spread over such a row first."""
    widths = Counter(
        (arg.value, width) for node in graph.nodes for arg, width in _broadcast(node, graph)
    )
    metas, made = dict(graph.metas), dict[tuple[int, int], int]()
    nodes: list[Node] = []
    for node in graph.nodes:
        for arg, width in _broadcast(node, graph):
            key = (arg.value, width)
            if widths[key] < 2:
                continue
            if key not in made:
                made[key] = max(metas) + 1
                nodes.append(_spread(node, arg, width, made[key], metas))
            args = (Ref(made[key]) if each == arg else each for each in node.args)
            node = replace(node, args=tuple(args))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), metas=metas)


def _broadcast(node: Node, graph: Graph) -> Iterator[tuple[Ref, int]]:
    """Operands ``[k, 1]`` of an operation that gives short rows, with how long those are."""
    out = node.outs[0] if node.op in _BINARY and not node.kwargs else None
    if out is None or not all(isinstance(arg, Ref) for arg in node.args[:2]):
        return
    width = _width(graph.metas[out])
    if width is None or len(node.args) != 2 or node.args[0] == node.args[1]:
        return
    written = graph.written()
    for arg in node.args:
        meta = graph.metas[arg.value]
        if meta.shape == (Count(1), 1) and meta.storage not in written:
            yield arg, width


def _width(meta: Meta) -> int | None:
    """How many elements a short row has, in a dense table ``[k, n]``; None if it is none."""
    if len(meta.shape) != 2 or meta.shape[0] != Count(1) or meta.shape[1] not in SHORT:
        return None
    width: int = meta.shape[1]
    return width if meta.stride == (width, 1) and meta.device.type == "cpu" else None


def _spread(node: Node, arg: Ref, width: int, out: int, metas: dict[int, Meta]) -> Node:
    """The node that spreads an operand, for ``node``; adds to ``metas``."""
    meta = metas[arg.value]
    metas[out] = replace(meta, shape=(Count(1), width), stride=(meta.stride[0], 0))
    size = [Count(1), width]
    return Spread(_EXPAND, (arg, size), {}, (out,), True, node.grad)


def part_extremes(graph: Graph) -> Graph:
    """The largest or smallest element of each row, whose place nobody reads."""
    read = {*graph.outputs, *(value for node in graph.nodes for value in node.reads())}
    metas = dict(graph.metas)
    nodes: list[Node] = []
    for node in graph.nodes:
        if _is_extreme(node, read, metas):
            nodes += _extreme(node, metas)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), metas=metas)


def _is_extreme(node: Node, read: set[int], metas: Mapping[int, Meta]) -> bool:
    if node.op not in _EXTREMES or node.kwargs or node.outs[0] is None or node.outs[1] in read:
        return False
    meta = metas[node.args[0].value]
    return _width(meta) is not None and node.args[1] in (1, -1) and not meta.dtype.is_complex


def _extreme(node: Node, metas: dict[int, Meta]) -> Iterator[Node]:
    """The nodes that give what ``node`` gives first; adds to ``metas``."""
    whole, of_two = _EXTREMES[node.op]
    rows, keep = node.args[0], node.args[2] if len(node.args) > 2 else False
    first = node.outs[:1]
    if keep or _width(metas[rows.value]) != 2:
        yield replace(node, op=whole, args=(rows, [1], keep), outs=first, single=True)
        return
    columns: list[Ref] = []
    for place in range(2):
        out, meta = max(metas) + 1, metas[rows.value]
        metas[out] = replace(meta, shape=meta.shape[:1], stride=meta.stride[:1])
        columns.append(Ref(out))
        yield Node(_SELECT, (rows, 1, place), {}, (out,), True, node.grad)
    yield replace(node, op=of_two, args=tuple(columns), outs=first, single=True)


# What is called for a node.


def stand_in(node: Node, metas: Mapping[int, Meta]) -> Callable[..., Any] | None:
    """What does the same as torch's function for short rows; None for all other nodes."""
    if type(node) is Spread:
        return spread
    if node.op is not _WHERE or node.kwargs or not all(isinstance(arg, Ref) for arg in node.args):
        return None
    condition, one, other = (metas[arg.value] for arg in node.args)
    width = _width(one)
    alike = (one.shape, one.stride, one.dtype) == (other.shape, other.stride, other.dtype)
    fits = condition.shape == (Count(1), 1) and condition.dtype is torch.bool and alike
    if not fits or width is None or wide_rows.wide_dtype(width, one.dtype) is None:
        return None
    return wide_rows.where


def spread(data: Tensor, size: tuple[int, int]) -> Tensor:
    """``data``, a table ``[k, 1]``, as what a table of that size may be computed with."""
    k, width = size
    if width == 2 and k >= MANY_PAIRS and data.dtype in _REAL:
        column = data.reshape(k)
        return torch.view_as_real(torch.complex(column, column))
    return data.expand(size).contiguous() if k >= MANY else data
