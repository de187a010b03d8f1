"""Parts of a recording: *regions*, each of which becomes one fused kernel, and what is between.

In: a ``Graph``. Out: its ``Part``s in the order in which they run, each a graph of
its own. A node's *level* counts the changes between nodes that may be fused and others on the way
to it; the nodes of a level that may be fused are a region, since no way leads out of them and back.
Views cost nothing, so every part makes those that it needs from what they are views of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autobatch.batching.fused.inductor import Unfusible
from autobatch.batching.fused.operators import is_free_view, leaves, may_fuse
from autobatch.batching.fused.pure import Impure, without_writes
from autobatch.batching.trace.graph import Graph, Node, Ref, Symbol

LEAST = 3
"""Kernels that a region stands for, at least: fewer are as fast by themselves."""


@dataclass(frozen=True, slots=True)
class Part:
    """``graph`` computes the values ``outs`` of the whole from its values ``ins``.

    ``is_region``: it becomes one kernel; ``size`` is how many kernels it stands for.
    """

    graph: Graph
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    is_region: bool
    size: int


def cut(graph: Graph, numbers: Mapping[int, int | float]) -> tuple[Graph, list[Part]]:
    """A graph without writes and its parts; ``Unfusible`` if none of these is a region.

    ``numbers`` are examples of its inputs that are numbers.
    """
    try:
        graph = without_writes(graph)
    except Impure as impure:
        raise Unfusible(str(impure)) from None
    parts = parts_of(graph, [place for place, number in numbers.items() if type(number) is float])
    if not any(part.is_region for part in parts):
        raise Unfusible("no operations that a kernel may hold follow each other")
    return graph, parts


def parts_of(graph: Graph, floats: Collection[int]) -> list[Part]:
    """The parts of a graph; ``floats`` are its inputs that are Python floats."""
    graph = without_unread(graph)
    views = {node.outs[0]: node for node in graph.nodes if is_view(node)}
    kernels = [node for node in graph.nodes if not is_view(node)]
    chosen = [may_fuse(node, graph, floats) for node in kernels]
    levels = leveled(graph, kernels, chosen)
    groups: dict[tuple[int, bool], list[Node]] = {}
    for node, fused, level in zip(kernels, chosen, levels, strict=True):
        groups.setdefault((level, not fused), []).append(node)
    ordered = sorted(groups.items(), key=lambda item: item[0])
    whole = Cutting(graph, views)
    parts: list[Part] = []
    rest: list[Node] = []
    for (_, apart), nodes in ordered:
        if apart or len(nodes) < LEAST:
            rest += nodes
            continue
        if rest:
            parts.append(whole.part(rest, False))
        parts.append(whole.part(nodes, True))
        rest = []
    if rest or any(out in views for out in graph.outputs):
        parts.append(whole.part(rest, False, graph.outputs))
    return parts


def without_unread(graph: Graph) -> Graph:
    """The graph, whose nodes of several results give only those that are read."""
    read = {*graph.outputs, *(value for node in graph.nodes for value in node.reads())}
    nodes = [
        replace(node, outs=tuple(out if out in read else None for out in node.outs))
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes))


def is_view(node: Node) -> bool:
    return is_free_view(node) and node.single and node.outs[0] is not None


def leveled(graph: Graph, kernels: Sequence[Node], chosen: Sequence[bool]) -> list[int]:
    """The level of each kernel: those to be fused come before the others of their level."""
    made: dict[int, tuple[int, bool]] = {}
    verdicts = dict(zip(map(id, kernels), chosen, strict=True))
    levels: list[int] = []
    for node in graph.nodes:
        before = [made[value] for value in node.reads() if value in made]
        fused = verdicts.get(id(node))
        if fused is None:  # a view is where its base is
            here = max(before, key=lambda each: (each[0], not each[1]), default=(0, True))
        else:
            here = (max((n + (fused and not was) for n, was in before), default=0), fused)
            levels.append(here[0])
        made |= {out: here for out in node.outs if out is not None}
    return levels


@dataclass(frozen=True, slots=True)
class Cutting:
    """Cuts parts out of a graph; ``views`` are its views by their value."""

    graph: Graph
    views: Mapping[Any, Node]

    def part(self, nodes: Sequence[Node], is_region: bool, outs: Sequence[int] = ()) -> Part:
        """The part of these kernels, which gives what others read, and the views in ``outs``."""
        own = {out for node in nodes for out in node.outs if out is not None}
        given = tuple(sorted(own & self.wanted(nodes))) + tuple(
            dict.fromkeys(out for out in outs if out in self.views)
        )
        needed = self.with_views(nodes, given)
        made = {out for node in needed for out in node.outs if out is not None}
        reads = [value for node in needed for value in node.reads()]
        numbers = [p.position for node in needed for p in leaves(node) if type(p) is Symbol]
        ins = tuple(sorted({*reads, *numbers} - made - set(self.graph.literals)))
        return Part(self.cut(needed, ins, given), ins, given, is_region, len(nodes))

    def wanted(self, nodes: Sequence[Node]) -> set[int]:
        """What is read by others than these kernels, by way of views or not."""
        inside = set(map(id, nodes))
        found = set(self.graph.outputs)
        for node in self.graph.nodes:
            if id(node) not in inside and node.outs[0] not in self.views:
                found.update(node.reads())
        return found | {base for value in found for base in self.bases(value)}

    def bases(self, value: int) -> Iterable[int]:
        """What a view is one of, up to what is none."""
        while value in self.views:
            (value,) = set(self.views[value].reads())
            yield value

    def with_views(self, nodes: Sequence[Node], outs: Sequence[int]) -> list[Node]:
        """The kernels, and the views that they read, in the order of the whole."""
        needed = {value for node in nodes for value in node.reads()} | set(outs)
        needed |= {base for value in needed for base in self.bases(value)}
        chosen = {id(node) for node in nodes}
        chosen |= {id(self.views[value]) for value in needed if value in self.views}
        return [node for node in self.graph.nodes if id(node) in chosen]

    def cut(self, nodes: Sequence[Node], ins: Sequence[int], outs: Sequence[int]) -> Graph:
        """A graph of these nodes, its values numbered anew: the inputs come first."""
        numbers = {value: place for place, value in enumerate(ins)}
        read = {value for node in nodes for value in node.reads()}
        literals = {value: t for value, t in self.graph.literals.items() if value in read}
        for value in (*literals, *(out for node in nodes for out in node.outs)):
            if value is not None:
                numbers.setdefault(value, len(numbers))
        metas = {numbers[v]: meta for v, meta in self.graph.metas.items() if v in numbers}
        renamed = tuple(
            replace(
                node,
                args=renumbered(node.args, numbers),
                kwargs={key: renumbered(arg, numbers) for key, arg in node.kwargs.items()},
                outs=tuple(None if out is None else numbers[out] for out in node.outs),
            )
            for node in nodes
        )
        return Graph(
            len(ins),
            renamed,
            tuple(numbers[out] for out in outs),
            metas,
            {numbers[value]: tensor for value, tensor in literals.items()},
        )


def renumbered(argument: Any, numbers: Mapping[int, int]) -> Any:
    match argument:
        case Ref(value):
            return Ref(numbers[value])
        case Symbol(position, offset):
            return Symbol(numbers[position], offset)
        case list() | tuple():
            return type(argument)(renumbered(item, numbers) for item in argument)
    return argument
