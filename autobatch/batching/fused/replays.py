"""Replays with fused kernels: a recording's regions as kernels, the rest as torch calls.

    def replay(k, a0, a1, a2):
        if k < 2 or within_duals() or not a0.is_contiguous() or not a2.is_contiguous():
            return traced(k, a0, a1, a2)
        v4, = part(k, a0, a1)
        v7, v9, = kernel([k, v4.contiguous(), a2])
        return (v9.view(boolean), v7, )

In: a ``Graph``. Out: the function, or ``Unfusible``. Sizes 0 and 1 are others than all the rest to
torch's compiler, so they go by the recording; so do inputs that are not laid out as it was told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from autobatch.batching.fused.inductor import Kernel, compiled
from autobatch.batching.fused.regions import Part, cut
from autobatch.batching.trace.bindings import Example
from autobatch.batching.trace.codegen import Replay, compile_graph
from autobatch.batching.trace.graph import Count, Graph
from autobatch.batching.trace.tracing import kernels_of
from autobatch.compat import within_duals


@dataclass(frozen=True, slots=True)
class FusedReplay:
    """``replay`` runs as the recording does; it launches ``kernels``, of which ``fused`` stand for
    several operations each (``operations`` in all); ``compilations`` of them were compiled now. The
    inputs at the places ``dense`` must be so for them to run. ``is_whole``: kernels are all of it.
    """

    replay: Replay
    source: str
    kernels: int
    fused: int
    operations: int
    compilations: int
    dense: frozenset[int]
    is_whole: bool


def fused(graph: Graph, traced: Replay, numbers: Mapping[int, int | float]) -> FusedReplay:
    """The replay of a graph by kernels; ``numbers`` are examples of its inputs that are numbers.

    Call it inside ``trace.recorder.outside``.
    """
    graph, parts = cut(graph, numbers)
    regions = [part for part in parts if part.is_region]
    kernels = [compiled(part.graph) for part in regions]
    printer = _Printer(graph, numbers)
    made = iter(kernels)
    for part in parts:
        printer.print(part, next(made) if part.is_region else None)
    dense = frozenset(
        value
        for part in regions
        for value in part.ins
        if value < graph.inputs and value in graph.metas
    )
    replay, source = printer.replay(traced, dense)
    return FusedReplay(
        replay,
        source,
        sum(1 if part.is_region else kernels_of(part.graph) for part in parts),
        len(regions),
        sum(part.size for part in regions),
        sum(kernel.is_new for kernel in kernels),
        dense,
        len(regions) == len(parts),
    )


@lru_cache(maxsize=256)
def number(text: str) -> Tensor:
    """A number as a tensor, which nobody writes; given as text, which tells zeros by their sign."""
    return torch.scalar_tensor(float.fromhex(text), dtype=torch.float64, device="cpu")


@dataclass(slots=True)
class _Printer:
    """Prints the calls; ``masks`` are the values that are there as bytes too."""

    graph: Graph
    numbers: Mapping[int, int | float]
    lines: list[str] = field(default_factory=list)
    space: dict[str, Any] = field(default_factory=dict)

    def name(self, value: int) -> str:
        if value in self.graph.literals:
            self.space[f"c{value}"] = self.graph.literals[value]
            return f"c{value}"
        return f"a{value}" if value < self.graph.inputs else f"v{value}"

    def print(self, part: Part, kernel: Kernel | None) -> None:
        """The call of one part, which assigns its results."""
        name = f"{'part' if kernel is None else 'kernel'}_{len(self.space)}"
        if kernel is None:
            known = {i: self.numbers[v] for i, v in enumerate(part.ins) if v in self.numbers}
            self.space[name], _ = compile_graph(part.graph, Example(211, known), (), False)
            given = ", ".join(["k", *map(self.name, part.ins)])
            self.assign(part.outs, f"{name}({given})")
            return
        self.space[name] = kernel.call
        self.assign(part.outs, f"{name}([k, {', '.join(map(self.operand, part.ins))}])")
        for out in part.outs:
            if self.graph.metas[out].dtype is torch.bool:
                self.lines.append(f"v{out} = v{out}.view(boolean)")

    def assign(self, outs: Iterable[int], call: str) -> None:
        self.lines.append(f"{''.join(f'v{out}, ' for out in outs)}= {call}")

    def operand(self, value: int) -> str:
        """An input of a kernel: dense, a bool as bytes, a number as a tensor."""
        name = self.name(value)
        meta = self.graph.metas.get(value)
        if meta is None:
            return f"number({name}.hex())"
        if value >= self.graph.inputs:
            name = f"{name}.contiguous()"
        return f"{name}.view(uint8)" if meta.dtype is torch.bool else name

    def replay(self, traced: Replay, dense: frozenset[int]) -> tuple[Replay, str]:
        """The function, with the checks that its kernels rest on."""
        parameters = ", ".join(["k", *(f"a{i}" for i in range(self.graph.inputs))])
        checks = ["k < 2", "within_duals()"]
        for value in sorted(dense):
            checks.append(f"not a{value}.is_contiguous()")
            if not any(type(size) is Count for size in self.graph.metas[value].shape):
                checks.append(f"type(a{value}) not in plain")
        results = "".join(f"{self.name(out)}, " for out in self.graph.outputs)
        body = [f"if {' or '.join(checks)}:", f"    return traced({parameters})", *self.lines]
        body.append(f"return ({results})")
        source = "\n".join([f"def replay({parameters}):", *(f"    {line}" for line in body)]) + "\n"
        space = {
            **self.space,
            "traced": traced,
            "within_duals": within_duals,
            "plain": (Tensor, nn.Parameter),
            "number": number,
            "boolean": torch.bool,
            "uint8": torch.uint8,
        }
        exec(compile(source, "<autobatch fused>", "exec"), space)
        return space["replay"], source
