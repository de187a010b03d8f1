"""Which results of a recording a capture makes, and which are views of these or of the inputs.

    v3 = exp(a0); v4 = view(v3); v5 = select(a0, 1)        return v4, v3, v5

The capture makes ``v3``; ``v4`` and ``v5`` are made afterwards, of the copy of ``v3`` that outlives
it and of the input itself, so that results share memory with each other, and with inputs, exactly
where the recording's do. In: a ``Trace``. Out: ``Results``, or ``Refused``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from autobatch.batching.fused.regions import Cutting, Part, is_view, without_unread
from autobatch.batching.graphed.buffers import Refused
from autobatch.batching.trace import Trace
from autobatch.batching.trace.bindings import Example
from autobatch.batching.trace.codegen import Replay, compile_graph
from autobatch.batching.trace.graph import Graph
from autobatch.batching.trace.rewrite import drop_dead

COUNT = 211
"""A thread count that functions are looked up with."""


@dataclass(frozen=True, slots=True)
class Late:
    """``replay(k, *ins)`` makes the views ``outs`` of the values ``ins``."""

    replay: Replay
    ins: tuple[int, ...]
    outs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """``graph``, by ``replay``, makes what is to be copied: its outputs; ``wanted`` are all results
    in order. Inputs are the values below ``graph.inputs``.
    """

    graph: Graph
    replay: Replay
    wanted: tuple[int, ...]
    late: Late | None = None

    def all(self, k: int, values: Sequence[Any], made: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """All results, of what a capture has made."""
        if self.late is None and self.wanted == self.graph.outputs:
            return tuple(made)
        known: dict[int, Any] = {**dict(enumerate(values)), **self.graph.literals}
        known.update(zip(self.graph.outputs, made, strict=True))
        if self.late is not None:
            views = self.late.replay(k, *(known[value] for value in self.late.ins))
            known.update(zip(self.late.outs, views, strict=True))
        return tuple(known[value] for value in self.wanted)


def results_of(trace: Trace, numbers: Mapping[int, int | float]) -> Results:
    """The results of a recording; ``numbers`` are examples of its inputs that are numbers."""
    graph = trace.graph
    times = Counter(trace.storages)
    if all(count == 1 for count in times.values()) and not any(
        alias is not None for alias in trace.aliases
    ):
        return Results(graph, trace.replay, graph.outputs)
    late = late_views(without_unread(graph))
    bases = () if late is None else late.ins
    views = set() if late is None else set(late.outs)
    kept = dict.fromkeys(value for value in (*graph.outputs, *bases) if value not in views)
    early = tuple(value for value in kept if value >= graph.inputs and value in graph.metas)
    storages = [graph.metas[value].storage for value in early]
    inputs = {graph.metas[place].storage for place in range(graph.inputs) if place in graph.metas}
    if len(set(storages)) < len(storages) or not inputs.isdisjoint(storages):
        raise Refused("two of its results share memory")
    made = drop_dead(replace(graph, outputs=early))
    replay, _ = compile_graph(made, Example(COUNT, dict(numbers)), (), False)
    after = None if late is None else compiled(late, numbers)
    return Results(made, replay, graph.outputs, after)


def late_views(graph: Graph) -> Part | None:
    """The results that share memory with an input or another result, where they are views."""
    metas = graph.metas
    views = {node.outs[0]: node for node in graph.nodes if is_view(node)}
    given = {metas[place].storage for place in range(graph.inputs) if place in metas}
    times = Counter(metas[out].storage for out in set(graph.outputs))
    outs = [
        out
        for out in graph.outputs
        if out in views and (metas[out].storage in given or times[metas[out].storage] > 1)
    ]
    return Cutting(graph, views).part((), False, outs) if outs else None


def compiled(part: Part, numbers: Mapping[int, int | float]) -> Late:
    known = {place: numbers[value] for place, value in enumerate(part.ins) if value in numbers}
    replay, _ = compile_graph(part.graph, Example(COUNT, known), (), False)
    return Late(replay, part.ins, part.outs)
