"""Whether a call has a compiled form, and that form: ``plan_of``.

In: what a run calls, its batch and options. Out: a ``Plan``, or ``Refused`` with the reason. Plans
are kept with the lowered function, by the types of its arguments; each is looked at again, since
the names that it knows may have come to mean something else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from autobatch.arguments.batch import Batch
from autobatch.batching.calling.resolving import Target
from autobatch.batching.replaced import NOTHING
from autobatch.compat import any_autocast, within_duals, within_level, within_modes
from autobatch.compiled.arguments import arguments
from autobatch.compiled.flow import Unit
from autobatch.compiled.kernel import Kernel, compiled
from autobatch.compiled.listing import Grows
from autobatch.compiled.names import Names
from autobatch.compiled.raising import Raised
from autobatch.compiled.types import (
    Bound,
    Closure,
    Items,
    Listed,
    Method,
    Range,
    Record,
    Refused,
    Static,
    Structure,
    Table,
    Type,
    parts_in,
    refuse,
)
from autobatch.compiled.versions import Version, reached, written_in
from autobatch.ir.program import Branch
from autobatch.listeners import Tally
from autobatch.llvm import is_installed
from autobatch.options import Options
from autobatch.runs.refusing import Refusals
from autobatch.values.cells import Cell
from autobatch.vm.code import Code
from autobatch.vm.entering import opened
from autobatch.vm.library import Library

NARROW = 8
"""Elements of rows that fused kernels take one by one, over threads (``batching.fused``)."""
MOST_NARROW = 2048
"""Threads of a program of such rows alone: more are faster in fused kernels (adaptive Runge-Kutta
steps, 32,768 threads: 108 ms each by itself, 22 ms together; 1,024 threads: 4.0 and 4.7), but for
what those do not do: draws, index tensors (orders of permutations, 32,768 threads: 1.5 and 29)."""
MOST_PLANS = 8
OPERATION = 3000
"""Nanoseconds of an operation for many threads at once, however many."""
MOST_COMPILATIONS = 64
"""Of one function: past them what it reads changes too often."""


MOST_TRIES = 32
"""Places that make lists which are written, each of which begins anew."""


class TooMany(Refused):
    """More than ``most`` threads at once are faster block by block."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most} examples are faster block by block")
        self.most = most


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Plan:
    """``kernel`` runs threads of ``code``; each gives a result of one of the types ``results``.

    For more threads than ``most`` it is faster block by block: products of matrices, and functions
    of many elements, cost less for all at once than the launches that they take.
    """

    code: Code
    kernel: Kernel
    results: tuple[Type, ...]
    most: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Text:
    """A plan for up to ``most`` threads that no call has wanted yet: LLVM's text of ``unit``, which
    took so many ``seconds`` to write.
    """

    code: Code
    main: Version
    unit: Unit
    most: int
    seconds: float

    def plan(self, tally: Tally) -> Plan | Refused:
        """The plan, which LLVM makes now."""
        begin, unit = perf_counter(), self.unit
        try:
            heap = bool(unit.layouts or unit.lists.found)
            kernel = compiled(self.main, unit.versions.values(), heap)
        except Refused as refused:
            return Refused(refused.why, refused.span)
        tally.compilation(1, 0, self.seconds + perf_counter() - begin)
        return Plan(self.code, kernel, tuple(self.main.results), self.most)


Verdict = Plan | Text | Refused


@dataclass(slots=True, eq=False, repr=False)
class Plans:
    """What has been compiled, or refused, for one function; ``compilations`` counts.

    ``refusals`` are of calls, by their outlines, ``calls`` counts these where they matter,
    ``waits`` are those that are looked at again once torch's tracing is loaded;
    ``written`` are the variables that the function writes.
    """

    found: dict[Any, tuple[Names, Verdict]] = field(default_factory=dict)
    compilations: int = 0
    refusals: Refusals = field(default_factory=Refusals)
    calls: dict[Any, int] = field(default_factory=dict)
    waits: frozenset[Any] = frozenset()
    written: frozenset[str] | None = None

    def keep(self, key: Any, names: Names, verdict: Verdict) -> None:
        self.found.pop(key, None)
        while len(self.found) >= MOST_PLANS:
            del self.found[next(iter(self.found))]
        self.found[key] = names, verdict


def plan_of(
    target: Target, batch: Batch, options: Options, library: Library, tally: Tally
) -> tuple[Plan, list[Tensor]]:
    """The plan for a call, and its inputs; raises ``Refused``."""
    if not batch.size:
        refuse("the batch is empty")
    return plan_for(
        target, lambda: batch.cells(options.scalars), batch.size, options, library, tally
    )


def plan_for(
    target: Target,
    cells: Callable[[], tuple[list[Cell], dict[str, Cell]]],
    size: int,
    options: Options,
    library: Library,
    tally: Tally,
) -> tuple[Plan, list[Tensor]]:
    """The same, of the cells that a call's arguments are in."""
    refuse_options(options)
    if library.replaced is not NOTHING:
        refuse("functions of torch's have been replaced")
    function = target.callee
    if target.effect != "program" or not isinstance(function, FunctionType):
        refuse("what is mapped is no Python function")
    try:
        code, _, env = opened(library, target.given(*cells()))
    except TypeError as error:
        raise Refused(str(error)) from None
    given = {name: cell for name, cell in env.items() if name in params_of(code)}
    plans = kept(code)
    if plans.written is None:
        plans.written = written_in(code.function)
    types, inputs = arguments(given, plans.written)
    seeded = options.seed is not None
    modes = torch.get_default_dtype(), torch.is_grad_enabled(), seeded
    # Functions of equal code may be of several modules, each with globals of its own; a plan that
    # reads globals keeps their dict alive.
    key = (tuple(types.items()), *modes, id(function.__globals__))
    names, verdict = plans.found.get(key, (None, None))
    if names is None or verdict is None or not names.hold(function):
        names = Names(library)
        verdict = verdict_on(code, function, types, Unit(names, seeded), plans)
        plans.compilations += 1
        plans.keep(key, names, verdict)
    if not isinstance(verdict, Refused) and size > verdict.most:
        raise TooMany(verdict.most)
    if isinstance(verdict, Text):
        verdict = verdict.plan(tally)
        plans.keep(key, names, verdict)
    if isinstance(verdict, Refused):
        raise Refused(verdict.why, verdict.span)
    return verdict, inputs


def params_of(code: Code) -> frozenset[str]:
    return frozenset(param.name for param in code.function.params)


def kept(code: Code) -> Plans:
    if code.plans is None:
        code.plans = Plans()
    found: Plans = code.plans
    return found


def refuse_options(options: Options) -> None:
    """What a launch of machine code cannot keep to."""
    if options.max_steps is not None:
        refuse("max_steps counts block executions")
    if options.listeners:
        refuse("listeners are told of each block execution")
    if options.save != "keep":
        refuse(f"save is {options.save!r}")
    if any(dim is None for dim in pytree.tree_leaves(options.out_dims, is_leaf=_is_none)):
        refuse("out_dims asks for what is the same for all examples")
    if within_level() or within_duals() or within_modes():
        refuse("a transform or a mode of torch's is at work")
    if any_autocast():
        refuse("autocast is on")
    if torch.get_default_device().type != "cpu":
        refuse(f"the default device is {torch.get_default_device()}")


def _is_none(leaf: Any) -> bool:
    return leaf is None


def verdict_on(
    code: Code, function: FunctionType, types: dict[str, Type], unit: Unit, plans: Plans
) -> Text | Refused:
    """A new plan for arguments of these types."""
    begin = perf_counter()
    if plans.compilations >= MOST_COMPILATIONS:
        return Refused(f"what it reads has changed {MOST_COMPILATIONS} times")
    try:
        main, unit = written(code, function, types, unit)
        if not main.results:
            return Refused("it returns nothing on any way")
        for type_ in main.results:
            refuse_result(type_)
        if not is_installed():
            refuse("llvmlite is not installed (pip install 'autobatch[compiled]')")
        most = most_threads(unit)
        if not most:
            refuse("programs without a branch are faster block by block")
    except Refused as refused:
        return Refused(refused.why, refused.span)
    return Text(code, main, unit, most, perf_counter() - begin)


def written(
    code: Code, function: FunctionType, types: dict[str, Type], unit: Unit
) -> tuple[Version, Unit]:
    """The text of a program, with lists in memory where it writes them."""
    for _ in range(MOST_TRIES):
        try:
            main = unit.version(code, function, types, is_main=True)
            unit.write_all()
        except Grows as grows:
            grown = (unit.grown or frozenset()) | {grows.site}
            unit = Unit(unit.names, unit.seeded, grown=grown)
        else:
            return main, unit
    return refuse("lists are made in too many places")


def most_threads(unit: Unit) -> int:
    """How many threads are faster each by itself than together.

    Of a program that calls itself that is any number: blocks go deeper with few threads in each. Of
    one without branches it is none: there is nothing that threads could wait for. Random words are
    some operations for many threads, so programs that draw are an exception.
    """
    versions = list(unit.versions.values())
    widest = max(version.writer.widest for version in versions)
    functions = {id(version.lowered): version.lowered for version in versions}.values()
    blocks = [block for function in functions for block in function.blocks]
    draws = any(version.writer.draws for version in versions)
    if widest and not draws and not any(type(block.terminator) is Branch for block in blocks):
        return 0
    if any(version in reached(version) for version in versions):
        return sys.maxsize
    fused = not any(version.writer.unfused for version in versions)
    most = MOST_NARROW if 0 < widest <= NARROW and fused else sys.maxsize
    cost = max(sum(version.costs.values()) for version in versions)
    operations = sum(len(block.ops) for block in blocks)
    return min(most, operations * OPERATION // cost) if cost else most


def has_results(kind: type) -> bool:
    """Whether results of a kind are put together from those of their parts."""
    return kind in (tuple, list, dict) or hasattr(kind, "_fields")


def refuse_result(type_: Type, within: tuple[Type, ...] = ()) -> None:
    if isinstance(type_, Static) and type(type_.obj) is Raised:
        refuse("it returns an exception")
    if isinstance(type_, Range | Items | Method | Bound | Record | Table | Closure):
        refuse(f"it returns {type_}")
    if isinstance(type_, Structure) and not has_results(type_.kind):
        refuse(f"it returns {type_}")
    if isinstance(type_, Listed) and type_ in within:
        refuse("it returns a list that may hold itself")
    for part in type_.contents.kinds if isinstance(type_, Listed) else parts_in(type_):
        refuse_result(part, (*within, type_))
