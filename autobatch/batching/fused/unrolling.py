"""Several laps of a loop as one recording, in which threads that leave keep what they left with.

    lap(a, b) -> a', goes on

    y1, m1 = lap(a, b)
    y2, s2 = lap(y1, b)       y2 = where(m1, y2, y1)      m2 = m1 & s2      n = m1
    y3, s3 = lap(y2, b)       y3 = where(m2, y3, y2)      m3 = m2 & s3      n = m1 + m2
    return y3, m3, n

In: the graph of one lap without writes, whose results are columns of memory of their own, and the
``Loop``, which says what of them the next lap takes. Out: a graph of the same inputs and results,
and one more: how often each thread went back in between. It is right only where a lap fails on no
row, for threads that have left are computed along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.trace.graph import Graph, Meta, Node, Ref, dense_strides, rename

_ATEN = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Loop:
    """``carried`` are the inputs of a lap, each with the place of the result that is its next
    value; the result at ``decision``, a bool for each thread, is ``stays`` for those that go on.
    """

    carried: tuple[tuple[int, int], ...]
    decision: int
    stays: bool


def refusal(graph: Graph, loop: Loop) -> str:
    """Why several laps are not one recording; empty if they can be."""
    outs = [graph.metas[out] for out in graph.outputs]
    inputs = {meta.storage for i in range(graph.inputs) if (meta := graph.metas.get(i))}
    storages = [meta.storage for meta in outs]
    if len(set(storages)) < len(storages) or inputs & set(storages):
        return "results share their memory"
    for place, slot in loop.carried:
        before, after = graph.metas.get(place), outs[slot]
        if before is None or (before.shape, before.dtype) != (after.shape, after.dtype):
            return "a variable changes in kind"
    if outs[loop.decision].dtype is not torch.bool or len(outs[loop.decision].shape) != 1:
        return "its end is not a bool"
    return ""


def unrolled(graph: Graph, loop: Loop, laps: int) -> Graph:
    """The graph of so many laps."""
    walk = _Walk(graph, dict(graph.metas))
    outs = walk.lap({})
    goes_on = walk.decided(outs[loop.decision], loop)
    back = walk.counted(goes_on)
    for number in range(1, laps):
        if number > 1:
            back = walk.added(back, walk.counted(goes_on))
        new = walk.lap({place: outs[slot] for place, slot in loop.carried})
        outs = [
            old if slot == loop.decision else walk.chosen(goes_on, one, old)
            for slot, (one, old) in enumerate(zip(new, outs, strict=True))
        ]
        goes_on = walk.both(goes_on, walk.decided(new[loop.decision], loop))
    outs[loop.decision] = goes_on if loop.stays else walk.inverse(goes_on)
    return replace(graph, nodes=tuple(walk.nodes), outputs=(*outs, back), metas=walk.metas)


@dataclass(slots=True)
class _Walk:
    """Writes laps one after the other; ``fresh`` is the next value's number."""

    graph: Graph
    metas: dict[int, Meta]
    nodes: list[Node] = field(default_factory=list)
    fresh: int = 0

    def __post_init__(self) -> None:
        numbers = [*self.metas, *(meta.storage for meta in self.metas.values())]
        self.fresh = max([*numbers, *self.graph.literals, self.graph.inputs]) + 1

    def lap(self, now: dict[int, int]) -> list[int]:
        """One lap on other values for some of its inputs; its results."""
        now = dict(now)
        storages = {self.graph.metas[i].storage: self.metas[v].storage for i, v in now.items()}
        for node in self.graph.nodes:
            new = rename(node, now)
            for out in node.outs:
                if out is not None:
                    now[out] = self.again(self.graph.metas[out], storages)
            outs = tuple(None if out is None else now[out] for out in node.outs)
            self.nodes.append(replace(new, outs=outs))
        return [now.get(out, out) for out in self.graph.outputs]

    def again(self, meta: Meta, storages: dict[int, int]) -> int:
        """A new value that is like an old one."""
        number, self.fresh = self.fresh, self.fresh + 1
        inputs = {m.storage for i in range(self.graph.inputs) if (m := self.graph.metas.get(i))}
        if meta.storage not in storages and meta.storage not in inputs:
            storages[meta.storage] = number
        self.metas[number] = replace(meta, storage=storages.get(meta.storage, meta.storage))
        return number

    def made(self, op: Any, args: Sequence[Any], meta: Meta, **kwargs: Any) -> int:
        """What one more operation gives."""
        number, self.fresh = self.fresh, self.fresh + 1
        stride = dense_strides(meta.shape)
        self.metas[number] = replace(meta, stride=stride, storage=number)
        self.nodes.append(Node(op, tuple(args), kwargs, (number,)))
        return number

    def inverse(self, mask: int) -> int:
        return self.made(_ATEN.logical_not.default, [Ref(mask)], self.metas[mask])

    def both(self, mask: int, other: int) -> int:
        return self.made(_ATEN.logical_and.default, [Ref(mask), Ref(other)], self.metas[mask])

    def decided(self, decision: int, loop: Loop) -> int:
        """Which threads a decision lets go on."""
        return decision if loop.stays else self.inverse(decision)

    def counted(self, mask: int) -> int:
        """A mask as numbers, which add up."""
        meta = replace(self.metas[mask], dtype=torch.float32)
        return self.made(_ATEN._to_copy.default, [Ref(mask)], meta, dtype=torch.float32)

    def added(self, number: int, other: int) -> int:
        return self.made(_ATEN.add.Tensor, [Ref(number), Ref(other)], self.metas[number])

    def chosen(self, mask: int, new: int, old: int) -> int:
        """The new value of the threads of a mask, the old one of all others."""
        meta = self.metas[new]
        place = self.metas[mask]
        for _ in meta.shape[1:]:
            shape = (*place.shape, 1)
            storage, place = place.storage, replace(place, shape=shape)
            mask = self.made(_ATEN.unsqueeze.default, [Ref(mask), -1], place)
            self.metas[mask] = replace(self.metas[mask], storage=storage)
        return self.made(_ATEN.where.self, [Ref(mask), Ref(new), Ref(old)], meta)


def one_by_one(
    lap: Callable[..., Sequence[Tensor]], loop: Loop, laps: int
) -> Callable[..., tuple[Tensor, ...]]:
    """What the graph of several laps computes, by launches of one."""

    def run(k: int, *values: Any) -> tuple[Tensor, ...]:
        given, outs = list(values), list(lap(k, *values))
        goes_on = outs[loop.decision] == loop.stays
        back = torch.zeros(goes_on.shape, device=goes_on.device)
        for _ in range(laps - 1):
            back += goes_on
            for place, slot in loop.carried:
                given[place] = outs[slot]
            new = lap(k, *given)
            for slot, one in enumerate(new):
                rows = goes_on.view(-1, *[1] * (one.dim() - 1))
                outs[slot] = torch.where(rows, one, outs[slot])
            goes_on = goes_on & (new[loop.decision] == loop.stays)
        return (*outs, back)

    return run
