"""A recording without writes: each becomes its pure form, where nobody can tell.

    add_(a, b)                                 c = add(a, b)
    p, q = unsafe_split(a, 2, 1)           →   p = slice(c, 1, 0, 2); q = slice(c, 1, 2, 4)
    sigmoid_(p)                                r = sigmoid(p)

Of the tensors that share memory with what is written, only such may be read later as lie apart
from it: the other parts of one split. ``trace.rewrite.make_pure`` does that for tensors that share
no memory at all, as every replay may; here values are told apart, which costs torch calls more
than writes do, but not a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from autobatch.batching.trace.graph import Graph, Meta, Node, Ref, dense_strides, rename
from autobatch.batching.trace.rewrite import follow, is_unseen, pure_op

_ATEN = torch.ops.aten
_SPLITS = (_ATEN.unsafe_split.Tensor, _ATEN.split.Tensor)


class Impure(Exception):
    """A write that somebody may see."""


def without_writes(graph: Graph) -> Graph:
    """The same without writes; ``Impure`` where that cannot be."""
    if not any(node.mutates for node in graph.nodes):
        return graph
    walk = _Walk(graph, dict(graph.metas))
    for place, node in enumerate(graph.nodes):
        walk.enter(place, node)
    outputs = tuple(walk.now.get(out, out) for out in graph.outputs)
    return replace(graph, nodes=tuple(walk.nodes), outputs=outputs, metas=walk.metas)


@dataclass(slots=True)
class _Walk:
    """``now`` is what a value has become, ``parts`` the other parts of its split, by part."""

    graph: Graph
    metas: dict[int, Meta]
    nodes: list[Node] = field(default_factory=list)
    now: dict[int, int] = field(default_factory=dict)
    parts: dict[int, Sequence[int | None]] = field(default_factory=dict)

    def enter(self, place: int, node: Node) -> None:
        new = rename(node, self.now)
        if node.mutates:
            self.enter_write(place, node, new)
        elif node.op in _SPLITS and not node.kwargs:
            self.enter_split(node, new)
        else:
            self.nodes.append(new)
            if node.is_view:
                self.metas.update(follow(new, self.metas))

    def enter_write(self, place: int, node: Node, new: Node) -> None:
        (target, *others) = node.writes()
        op = pure_op(node, self.graph)
        if (
            op is None
            or others
            or not is_unseen(self.graph, place, target, self.parts.get(target, ()))
        ):
            raise Impure("it writes in place")
        out = max(self.metas) + 1
        meta = self.metas[target]
        self.metas[out] = replace(meta, stride=dense_strides(meta.shape), storage=out)
        self.now[target] = out
        self.nodes.append(replace(new, op=op, outs=(out,)))

    def enter_split(self, node: Node, new: Node) -> None:
        """A split as slices."""
        given, size = new.args[0], new.args[1]
        dim = new.args[2] if len(new.args) > 2 else 0
        if type(size) is not int or type(dim) is not int or not isinstance(given, Ref):
            raise Impure("it splits by the number of threads")
        total = self.metas[given.value].shape[dim]
        if type(total) is not int:
            raise Impure("it splits by the number of threads")
        for place, out in enumerate(node.outs):
            if out is not None:
                begin = place * size
                args = (given, dim, begin, min(begin + size, total))
                self.nodes.append(Node(_ATEN.slice.Tensor, args, {}, (out,), grad=node.grad))
                self.parts[out] = node.outs
        self.metas.update(follow(new, self.metas))
