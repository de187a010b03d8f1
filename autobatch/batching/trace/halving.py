"""A graph as two: what depends on some of the inputs alone, and the rest.

    graph(x, w, s):           once(x, w, s):          rest(x, w, s, a):
      a = mm(x, w)              a = mm(x, w)            b = add(s, a)
      b = add(s, a)             return a                return b
      return b

with ``x`` and ``w`` given as steady. The second may run again and again with what the first gave:
that is in memory which nothing writes to and no result shows. Views of inputs launch nothing, so
they are no reason for a second half; where there is one, those of what all threads share, such as
``w.t()``, are kept with it.

In: a graph, and the inputs that are steady. Out: the two, or None where they would keep as many
values as they spare kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from typing import Any

from autobatch.batching.trace.graph import Count, Graph, Meta, Node, Symbol, rename


@dataclass(frozen=True, slots=True)
class Halves:
    """Both take the inputs of the whole, ``rest`` after them what ``once`` gives.

    Of that, so many come last as ``views``, of what all threads share.
    """

    once: Graph
    rest: Graph
    views: int


def halved(graph: Graph, steady: Set[int]) -> Halves | None:
    """The graph by what depends on the inputs at ``steady`` alone."""
    apart = graph.written() | graph.leaving()
    given = {graph.metas[i].storage for i in range(graph.inputs) if i in graph.metas}
    known, made = set(steady) | set(graph.literals), set(graph.literals)
    shared = {i for i in steady if i in graph.metas and is_shared(graph.metas[i])}
    views: set[int] = set()
    early: list[Node] = []
    kernels = 0
    for node in graph.nodes:
        if not is_of(node, known, steady) or any(
            graph.metas[value].storage in apart for value in values_of(node) - set(graph.literals)
        ):
            continue
        outs = {out for out in node.outs if out is not None}
        early.append(node)
        known |= outs
        if not all(graph.metas[out].storage in given for out in outs):
            made |= outs
            kernels += not node.is_view
        elif node.is_view and shared.issuperset(node.reads()) and not has_count(node):
            views |= outs
            shared |= outs
    late = [n for n in graph.nodes if n not in early or (made | views).isdisjoint(n.outs)]
    late = without_unread_views(late, set(graph.outputs))
    reads = {value for node in late for value in node.reads()}
    kept = sorted(reads & made - set(graph.literals))
    if not kernels or len(kept) > kernels:
        return None
    shown = sorted(reads & views)
    kept += shown
    once = replace(graph, nodes=tuple(without_unread_views(early, set(kept))), outputs=tuple(kept))
    return Halves(once, with_inputs(replace(graph, nodes=tuple(late)), kept), len(shown))


def is_shared(meta: Meta) -> bool:
    """Whether a tensor is the same however many threads there are."""
    return not any(isinstance(size, Count) or size is None for size in (*meta.shape, *meta.stride))


def has_count(node: Node) -> bool:
    return any(isinstance(each, Count) for each in parts_of((node.args, *node.kwargs.values())))


def parts_of(argument: Any) -> Iterator[Any]:
    if isinstance(argument, (tuple, list)):
        for item in argument:
            yield from parts_of(item)
    else:
        yield argument


def is_of(node: Node, known: Set[int], steady: Set[int]) -> bool:
    """Whether a node computes what depends on known values alone, and is one that may run once."""
    reads = set(node.reads())
    numbers = {symbol.position for symbol in symbols_in((node.args, *node.kwargs.values()))}
    return bool(reads) and reads <= known and numbers <= steady and not node.mutates


def values_of(node: Node) -> set[int]:
    return {*node.reads(), *(out for out in node.outs if out is not None)}


def symbols_in(argument: Any) -> Iterator[Symbol]:
    return (each for each in parts_of(argument) if isinstance(each, Symbol))


def without_unread_views(nodes: list[Node], wanted: set[int]) -> list[Node]:
    """The nodes but for views that nobody reads; what computes may fail, and stays."""
    kept: list[Node] = []
    for node in reversed(nodes):
        if not node.is_view or not wanted.isdisjoint(node.outs):
            kept.append(node)
            wanted |= set(node.reads())
    return kept[::-1]


def with_inputs(graph: Graph, more: list[int]) -> Graph:
    """The graph with some of its values as inputs after the others."""
    count, metas = graph.inputs, graph.metas
    others = sorted(
        {*metas, *(out for node in graph.nodes for out in node.outs if out is not None)}
    )
    others = [value for value in others if value >= count and value not in more]
    now = {value: count + place for place, value in enumerate([*more, *others])}
    nodes = []
    for node in graph.nodes:
        outs = tuple(None if out is None else now.get(out, out) for out in node.outs)
        nodes.append(replace(rename(node, now), outs=outs))
    return Graph(
        count + len(more),
        tuple(nodes),
        tuple(now.get(out, out) for out in graph.outputs),
        {now.get(value, value): meta for value, meta in metas.items()},
        {now.get(value, value): literal for value, literal in graph.literals.items()},
    )
