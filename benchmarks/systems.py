"""What can run a problem, by name; each gives the result of the whole batch.

``autobatch`` by each executor (the name alone is ``"traced"``) and the plain loop, dynamic batching
by either strategy, the ways by hand that a problem brings, and what is installed of the neighbours
(``extras``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

import autobatch
from benchmarks import extras
from benchmarks.dynamic_batching import NATIVE_ANALYSIS, STRATEGIES, DynamicBatching
from benchmarks.workload import Other, Problem, Run

SAMPLE = 32
LOOP = "loop"
DYNAMIC = tuple(f"dynamic-{strategy}" for strategy in STRATEGIES)
NATIVE = "+native-analysis"
COMPILED = "autobatch-compiled"
CAPTURED = "autobatch-cudagraph"
MACHINE = ("collatz", "fib", "mandelbrot", "nuts", "ode")
"""Workloads that ``executor="compiled"`` makes machine code of."""
DEFAULTS = ("autobatch", LOOP, *DYNAMIC)


@dataclass(frozen=True, slots=True)
class System:
    """``run()`` gives the batch's result; the plain loop gives that of a sample of rows.

    What is not torch has its ``other``.
    """

    run: Run
    dynamic: DynamicBatching | None = None
    other: Other | None = None

    @property
    def trains(self) -> bool:
        return self.other is None or self.other.train is not None

    def native(self, seconds: float) -> float:
        """Seconds of the last run with building and analysis at native DyNet's price."""
        assert self.dynamic is not None
        phases = self.dynamic.phases
        own = phases.building + phases.analysis
        return seconds - own + phases.nodes * NATIVE_ANALYSIS


SYSTEMS: dict[str, Callable[[Problem], System]] = {
    "autobatch": lambda p: _batched(p, {"executor": "traced"}),
    COMPILED: lambda p: _batched(p, {"executor": "compiled"}),
    CAPTURED: lambda p: _batched(p, {"executor": "cudagraph"}),
    "autobatch-vmap": lambda p: _batched(p, {"executor": "vmap"}),
    "autobatch-map_fn": lambda p: _map_fn(p),
    LOOP: lambda p: System(lambda: plain_loop(p, sample_rows(p))),
    **{name: lambda p, name=name: _dynamic(p, name) for name in DYNAMIC},
}


def systems_of(workload: str, problem: Problem, names: Sequence[str]) -> dict[str, System]:
    """Those of the ``names`` that there are for the problem; without names, the usual ones."""
    own = {name: System(run) for name, run in problem.by_hand.items()}
    others = extras.runs(workload, problem).items()
    own |= {name: System(other.run, other=other) for name, other in others}
    on_cuda = problem.device.type == "cuda"
    machine = (CAPTURED,) if on_cuda else (COMPILED,) if workload in MACHINE else ()
    chosen = names or (*machine, *DEFAULTS, *own)
    return {
        name: own[name] if name in own else SYSTEMS[name](problem)
        for name in chosen
        if name in own or (name in SYSTEMS and (problem.delayable or name not in DYNAMIC))
    }


def trained(system: System, problem: Problem) -> System:
    """Forward and backward: from the sum of the results to the parameters' ``grad``."""
    if system.other is not None:
        assert system.other.train is not None
        return System(system.other.train)

    def step() -> None:
        for parameter in problem.parameters:
            parameter.grad = None
        total(system.run()).backward()

    return System(step, system.dynamic)


def total(result: Any) -> Tensor:
    """A sum of all that is differentiable in a result ``[B, *E]``; weights differ within E.

    (Of a softmax, say, the plain sum has no gradient.)
    """
    parts = []
    for leaf in tree_leaves(result):
        if isinstance(leaf, Tensor) and leaf.requires_grad:
            flat = leaf.reshape(len(leaf), -1)
            weights = torch.linspace(0.5, 1.5, flat.shape[1], dtype=leaf.dtype, device=leaf.device)
            parts.append((flat @ weights).sum())
    return torch.stack(parts).sum()


def sample_rows(problem: Problem) -> list[int]:
    """At most ``SAMPLE`` rows, evenly spread."""
    batch = problem.batch
    return [i * batch // SAMPLE for i in range(SAMPLE)] if batch > SAMPLE else list(range(batch))


def rows_of(result: Any, rows: Sequence[int]) -> Any:
    chosen = torch.tensor(rows)
    return tree_map(lambda leaf: leaf[chosen], result)


def plain_loop(problem: Problem, rows: Sequence[int]) -> Any:
    """The program on one example after the other; results stacked."""
    results = [tree_flatten(problem.function(*problem.example(i))) for i in rows]
    columns = zip(*(leaves for leaves, _ in results), strict=True)
    stacked = [torch.stack([torch.as_tensor(leaf) for leaf in column]) for column in columns]
    return tree_unflatten(stacked, results[0][1])


def _batched(problem: Problem, options: dict[str, Any]) -> System:
    batched = autobatch.vmap(problem.function, **problem.options, **options)
    inputs = problem.mapped()
    return System(lambda: batched(*inputs))


def _map_fn(problem: Problem) -> System:
    def function(example: tuple[Any, ...]) -> Any:
        return problem.function(*example)

    inputs = problem.mapped()
    return System(lambda: autobatch.map_fn(function, inputs, **problem.options))


def _dynamic(problem: Problem, name: str) -> System:
    batched = DynamicBatching(problem.function, name.removeprefix("dynamic-"))
    return System(lambda: batched(*problem.inputs), batched)
