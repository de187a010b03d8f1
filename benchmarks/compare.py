"""``python -m benchmarks.compare FILE.py:function --input DATA``: on a program of your own.

The plain loop, dynamic batching by both strategies (your function, as it is, on lazy
tensors) and autobatch, forward, and forward plus backward where something is
differentiable: by the module's parameters, else by the floating inputs. Arrays map to
parameters by name, as for ``autobatch run``. Launches and widths are the same on any machine.
Exit codes are those of ``autobatch``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import autobatch
from autobatch import objects
from autobatch.cli.datafiles import DataFileError, read_arguments
from autobatch.cli.target import CommandError, Target, check_names, find_target
from benchmarks import report
from benchmarks.harness import Cell, Measurement, measure_cell
from benchmarks.systems import DYNAMIC, LOOP, SYSTEMS, System, sample_rows
from benchmarks.workload import Problem


@dataclass(frozen=True, slots=True)
class ByName:
    """The target as a function of its mapped arguments, in order; the shared ones are fixed.

    One that writes to its arguments gets ``copies``, as it does from autobatch.
    """

    target: Target
    names: tuple[str, ...]
    shared: Mapping[str, Any]
    copies: bool = False

    def __call__(self, *rows: Any) -> Any:
        if self.copies:
            rows = tuple(x.clone() if isinstance(x, Tensor) else x for x in rows)
        return self.target(**dict(zip(self.names, rows, strict=True)), **self.shared)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    torch.set_num_threads(1)
    try:
        found = compare(options)
    except (CommandError, DataFileError) as error:
        print(f"benchmarks.compare: {error}", file=sys.stderr)
        return 2
    if options.output:
        report.write_json(options.output, found)
    return 1 if all(m.failure for m in found) else 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("target", metavar="FILE.py:function")
    parser.add_argument("--input", type=Path, required=True, help=".npz, .pt or .jsonl")
    parser.add_argument("--scalars", choices=("tensor", "python"), default="tensor")
    parser.add_argument("--seconds", type=float, default=10.0, help="time for each pass")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="of the results' agreement")
    parser.add_argument("--output", type=Path, help="write the measurements here, as JSON")
    return parser


def compare(options: argparse.Namespace) -> list[Measurement]:
    """Prints a table for each pass; gives what is in them."""
    target = find_target(options.target)
    arguments = read_arguments(options.input, exact=options.scalars == "python")
    check_names(target, arguments, options.input)
    differentiable = _differentiable(target, arguments)
    problem = _problem(target, arguments, {"scalars": options.scalars}, differentiable)
    systems = {name: SYSTEMS[name](problem) for name in (LOOP, *DYNAMIC)}
    decorated: Any = target if hasattr(target, "with_options") else autobatch.function(target)
    batched = decorated.with_options(**problem.options)
    systems["autobatch"] = System(lambda: batched.batch(**arguments))
    found: list[Measurement] = []
    print(report.HEAD)
    for kind in ("inference", "training") if _trains(problem) else ("inference",):
        cell = Cell(options.target.rpartition(":")[2], problem.batch, kind)
        found += measure_cell(cell, problem, options.tolerance, systems, options.seconds)
        print("\n".join(report.row(m) for m in found if m.kind == kind), flush=True)
        print(*(_graph(name, systems[name]) for name in DYNAMIC), sep="\n", flush=True)
    return found


def _differentiable(target: Target, arguments: dict[str, Any]) -> list[Tensor]:
    """What gradients are taken by; floating inputs are told to take some."""
    owner = target if isinstance(target, nn.Module) else getattr(target, "__self__", None)
    if isinstance(owner, nn.Module):
        parameters = [p for p in owner.parameters() if p.requires_grad]
        if parameters:
            return parameters
    inputs = [x for x in arguments.values() if isinstance(x, Tensor) and x.is_floating_point()]
    return [x.requires_grad_() for x in inputs]


def _problem(
    target: Target, arguments: Mapping[str, Any], options: dict[str, Any], by: list[Tensor]
) -> Problem:
    mapped = {n: x for n, x in arguments.items() if isinstance(x, (Tensor, objects))}
    shared = {name: x for name, x in arguments.items() if name not in mapped}
    if len({len(x) for x in mapped.values()}) != 1:
        raise CommandError("the input's arrays need one row per example, and as many in each")
    inputs = tuple(x if isinstance(x, Tensor) else x.items for x in mapped.values())
    function = ByName(target, tuple(mapped), shared)
    copies = _writes(Problem(function, inputs, {}, by, options))
    return Problem(replace(function, copies=copies), inputs, {}, by, options)


@torch.no_grad()
def _writes(problem: Problem) -> bool:
    """Whether the plain loop would change the caller's tensors."""
    inputs = tuple(x.clone() if isinstance(x, Tensor) else x for x in problem.inputs)
    copied = replace(problem, inputs=inputs)
    for index in sample_rows(copied):
        _comparable(copied.function(*copied.example(index)))
    return any(isinstance(x, Tensor) and x._version for x in inputs)


def _comparable(result: Any) -> None:
    if not all(isinstance(leaf, (Tensor, int, float)) for leaf in tree_leaves(result)):
        raise CommandError("only results of tensors and numbers can be compared")


def _trains(problem: Problem) -> bool:
    """Whether something of an example's result has a gradient, of those that are looked at."""
    with torch.enable_grad():
        results = (problem.function(*problem.example(row)) for row in sample_rows(problem))
        return any(
            isinstance(leaf, Tensor) and leaf.requires_grad
            for result in results
            for leaf in tree_leaves(result)
        )


def _graph(name: str, system: System) -> str:
    assert system.dynamic is not None
    phases = system.dynamic.phases
    if not phases.batches:
        return f"{name}: no graph"
    return (
        f"{name}: {phases.nodes:,} nodes in {phases.batches:,} batches, "
        f"{phases.nodes / phases.batches:.1f} a batch, {phases.flushes:,} flushes"
    )


if __name__ == "__main__":
    sys.exit(main())
