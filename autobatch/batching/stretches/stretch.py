"""The batched operations of a stretch as a function of rows, as an executor records it.

The interpreter itself is the tracer: the operations run on cells that hold fake tensors, and what
they leave behind becomes the plan's template. What needs data, single threads or a frame, and what
Python decides by a number that all threads share, ends the stretch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from autobatch.batching import operations
from autobatch.batching.context import Check, Context, Services
from autobatch.batching.numbers.records import BIT, Outlook
from autobatch.batching.operations import Env, Scope
from autobatch.batching.selects import Chosen
from autobatch.batching.stretches.executors import Run
from autobatch.batching.stretches.outputs import Template
from autobatch.batching.stretches.outside import outside_reads
from autobatch.batching.stretches.plans import Plan, Skeleton, Unforeseen, outlooks
from autobatch.batching.stretches.signature import Gathered, Rebuilt
from autobatch.batching.trace import Untraceable, record
from autobatch.ir.program import Op
from autobatch.source import Span
from autobatch.values.cells import (
    BOX,
    CLOSURE,
    Bounds,
    Cell,
    Column,
    Container,
    Mark,
    Uniform,
    View,
    read,
)
from autobatch.values.heap import walks

LEAST = 2
"""Recordings that tell what a stretch leaves behind: an executor need not make any."""
VALUE_FREE = frozenset({"add", "sub", "mul", "lt", "le", "gt", "ge", "eq", "ne", "select"})


class Recording:
    """The counter of a recording: whatever needs the host or single threads ends the stretch."""

    listens = True

    def host_read(self, reason: str) -> NoReturn:
        raise Untraceable(f"it reads data on the host ({reason})")

    def fallback(
        self, span: Span | None, what: str, why: str, meant: Callable[[], bool]
    ) -> NoReturn:
        raise Untraceable(f"{what} runs thread by thread: {why}")

    def one_by_one(self) -> None:
        """What does is a fallback, and has been told."""

    def launch(self, number: int = 1) -> None:
        """Kernels are counted when the stretch is replayed."""

    def trace(self, seconds: float) -> None:
        """Recordings are counted by whoever begins them."""

    def cold(self) -> None:
        """Whoever begins a recording is cold as it is."""

    def waits(self, operations: int) -> None:
        """What is recorded has waited."""


def refuse(*args: Any) -> NoReturn:
    raise Untraceable("it runs a program function or makes one")


class Unseen:
    """The counter of operations that run once more."""

    listens = False

    def nothing(self, *args: Any) -> None:
        pass

    host_read = fallback = one_by_one = launch = trace = cold = waits = nothing


def unseen(context: Context) -> Context:
    """The same block execution, for operations that may run twice: they enter no function, and draw
    nothing.

    An instance's own methods (``__getitem__``, a property, …) may have effects.
    """
    made = copy(context)
    made.invoke = refuse
    made.counter, made.policy, made.contributions = Unseen(), None, None
    if made.paths is not None:
        made.paths = made.paths.barred()
    return made


def recording_context(context: Context, k: int) -> Context:
    """The context of a recording of ``k`` rows."""
    inline, has_effects = context.inline, context.has_effects
    services = Services(
        context.device, Recording(), "error", inline, refuse, inline, refuse, has_effects,
        tensor_written=context.services.tensor_written,
    )  # fmt: skip
    made = Context(services, np.arange(k))
    made.forecasts, made.begins = [], context.begins
    return made


@dataclass(frozen=True, slots=True)
class Left:
    """What a recording left behind; ``loose`` are nodes of ints that fit if no row has left.

    It is None where no row can leave its dtype.
    """

    template: Template
    written: list[tuple[int, int]]
    checks: int
    loose: tuple[int, ...] | None
    forecasts: list[Any]
    inside: tuple[tuple[Any, int], ...]

    def shape(self) -> Hashable:
        """Equal for recordings that leave the same behind."""
        written = tuple(self.written)
        return (self.template.shape(), written, self.checks, self.loose, self.inside)


@dataclass(slots=True, eq=False, repr=False)
class Stretch:
    """The batched operations as a function of rows, and what it left behind when last run.

    ``failed`` is the operation at which a recording ended, ``writer`` the first that writes.
    Once it ``is_planned`` it keeps nothing of a run: an executor may have it run at each replay.
    """

    skeleton: Skeleton
    scope: Scope
    context: Context
    roots: list[Cell]
    left: list[Left] = field(default_factory=list)
    failed: Op | None = None
    writer: Op | None = None
    assumed: tuple[tuple[Callable[[], Any], Any], ...] = ()
    shared: frozenset[int] = frozenset()
    depends: frozenset[int] = frozenset()
    lone: tuple[str, ...] = ()
    is_planned: bool = False

    @property
    def span(self) -> Span:
        """Where it begins."""
        return self.skeleton.first.span

    def __call__(self, k: int, *values: Any) -> tuple[Tensor, ...]:
        skeleton = self.skeleton
        rebuilt = Rebuilt(self.roots, skeleton.baked, skeleton.picks, values)
        env = skeleton.environment(rebuilt.roots)
        context = recording_context(self.context, k)
        context.twins = rebuilt.twins
        before = [None if cell is None else cell.value for cell in rebuilt.leaves]
        self.shared = frozenset(rebuilt.shared.values())
        shapes = [(cell, shape_of(cell)) for cell in rebuilt.cells]
        selects = skeleton.chooses or any(op.name == "select" for op in skeleton.batched)
        chosen = Chosen()
        for op in skeleton.batched:
            self.failed = op
            if selects:
                chosen.follow(op, env)
            pending = len(context.escapes)
            operations.execute(context, self.scope, op, env)
            context.assumed += outside_reads(self.scope, op, env)
            if rebuilt.shared:
                self.check_shared(op, env, rebuilt.shared, len(context.escapes) > pending)
            if self.writer is None and has_changed(rebuilt.leaves, before):
                self.writer = op
            if any(shape_of(cell) != shape for cell, shape in shapes):
                raise Untraceable("it changes a list or dict that was there before")
        for op in skeleton.stores:
            self.failed = op
            cell = env.get(op.args[1])  # what the host makes is none of the recording's
            kept = None if cell is None else cell.value
            if type(kept) is Container and isinstance(kept.type, Mark):
                raise Untraceable("it keeps what is not known yet, or what is made of functions")
        self.failed = None
        if chosen.cells:
            self.lone = self.alone(chosen, rebuilt, env)
        template = Template()
        for place, cell in enumerate(rebuilt.leaves):
            if cell is not None:
                template.give(cell, place)
        for place, cell in enumerate(rebuilt.cells):
            template.keep(cell, place)
        written: list[tuple[int, int]] = []
        for place, cell in enumerate(rebuilt.leaves):
            if cell is not None and cell.value is not before[place]:
                written.append((place, template.add(cell, template.node(cell))))
        for name in skeleton.makes:
            template.names[name] = template.visit(env[name])
        checks = [check.failed for check in context.checks]
        forecasts, places = self.forecasts(context.forecasts or [], before)
        self.assumed = tuple(context.assumed)
        loose = {id(column) for escape in context.escapes for column in escape.columns}
        ints = [node for node, cell in enumerate(template.kept) if id(cell.value) in loose]
        masks = [escape.left for escape in context.escapes]
        left = [reduce(torch.bitwise_or, masks)] if masks else []
        fit = tuple(ints) if masks else None
        inside = indices(context.checks, places)
        if not self.is_planned:
            self.left.append(Left(template, written, len(checks), fit, forecasts, inside))
        return (*template.tensors, *checks, *left)

    def alone(self, chosen: Chosen, rebuilt: Rebuilt, env: Env) -> tuple[str, ...]:
        """Inputs that a select takes the place of, so that nobody else may know them."""
        inputs = dict(zip(self.skeleton.reads, rebuilt.roots, strict=True))
        leaves = [cell for cell in rebuilt.leaves if cell is not None]
        lone = chosen.lone(inputs, leaves, env, self.skeleton.wanted)
        if lone is None:
            raise Untraceable("two names may mean one tensor")
        return lone

    def check_shared(self, op: Op, env: Env, shared: dict[int, int], defers: bool) -> None:
        """Refuse what two recordings cannot tell apart: Python's decisions on a shared number."""
        places = {place for arg in op.args for place in numbers_in(env[arg], shared)}
        if not places:
            return
        if defers:
            raise Untraceable("where its results fit depends on a number that all threads share")
        if op.name == "call":
            self.depends = frozenset(places)
            raise Untraceable("a call with a number that all threads share")
        if op.name in ("getitem", "setitem") and type(read(env[op.args[0]])) is Container:
            index = frozenset(numbers_in(env[op.args[1]], shared))
            if index:  # two numbers can mean one element: 1 and -2 in a list of three
                self.depends = index
                raise Untraceable("a number that all threads share picks an element")
        if any(type(env[out].value) is Uniform for out in op.outs if out in env):
            raise Untraceable("a number that all threads share decides a result for all")

    def forecasts(
        self, noted: list[Any], before: list[Any]
    ) -> tuple[list[Any], dict[int, tuple[str, int]]]:
        """Operations on numbers, with operands as ``("leaf", i)``, ``("result", j)`` or numbers.

        And where in these each number is, by its id.
        """
        places: dict[int, tuple[str, int]] = {
            id(value): ("leaf", i) for i, value in enumerate(before) if value is not None
        }
        found: list[Any] = []
        total = 0
        for rule, given, results, deferred in noted:
            operands = [places.get(id(v), known_outlook(v)) for v in given]
            if not holds_for_any(rule, given, places):
                raise Untraceable("what it computes depends on a number that all threads share")
            outs = []
            for result in results:
                places[id(result)] = ("result", total)
                outs.append(id(result))
                total += 1
            found.append((rule, tuple(operands), deferred, outs))
        return found, places

    def are_alike(self) -> bool:
        """Whether all recordings have left the same behind."""
        return len({each.shape() for each in self.left}) < 2

    def plan(self, run: Run, gathered: Gathered) -> Plan:
        if len(self.left) < LEAST:
            self.left = []
            record(self, gathered.inputs())
        plan = self.planned(run, gathered)
        self.left, self.is_planned = [], True
        return plan

    def planned(self, run: Run, gathered: Gathered) -> Plan:
        if not self.are_alike():
            self.left = [replace(each, template=each.template.by_numbers()) for each in self.left]
            if not self.are_alike():
                raise Untraceable("what it leaves behind depends on a number")
        first = self.left[0]
        template, written, forecasts = first.template, first.written, first.forecasts
        if any(is_seen_through(gathered.leaves[leaf], gathered) for leaf, _ in written):
            self.failed = self.writer
            raise Untraceable("it writes what a view among its operands shows")
        columns = {id(column): column for column in template.columns}
        results = [out for _, _, _, outs in forecasts for out in outs]
        bounded = tuple(
            (node, results.index(id(cell.value)))
            for node, cell in enumerate(template.kept)
            if template.nodes[node].tag == "int"
            and id(cell.value) in columns
            and id(cell.value) in results
        )
        needed = any_ints(forecasts, gathered)
        kept = tuple((rule, operands, deferred) for rule, operands, deferred, _ in forecasts)
        return Plan(
            run,
            stripped(template),
            tuple(template.names.items()),
            tuple(written),
            first.checks,
            first.loose,
            kept if needed else (),
            bounded if needed else (),
            len(gathered.values),
            self.assumed,
            tuple(gathered.held),
            self.lone,
            fixed=() if needed else fixed_bounds(kept, bounded, gathered),
            inside=first.inside if needed or all_leaves(first.inside) else (),
        )


def has_changed(cells: Sequence[Cell | None], before: Sequence[Any]) -> bool:
    pairs = zip(cells, before, strict=True)
    return any(cell is not None and cell.value is not old for cell, old in pairs)


def is_seen_through(cell: Cell | None, gathered: Gathered) -> bool:
    """Whether a write to an input would be seen in another one, or in what it is a view of."""
    return cell is None or type(cell.value) is View or id(cell) in gathered.viewed


def indices(
    checks: Sequence[Check], places: dict[int, tuple[str, int]]
) -> tuple[tuple[Any, int], ...]:
    """The indices that checks are of, and what they are into; none if one is of anything else."""
    found = [check.inside for check in checks]
    if not all(inside is not None and id(inside[0]) in places for inside in found):
        return ()
    return tuple((places[id(column)], size) for column, size in found)  # type: ignore[misc]


def all_leaves(inside: Sequence[tuple[Any, int]]) -> bool:
    return all(where == "leaf" for (where, _), _ in inside)


def numbers_in(cell: Cell, shared: dict[int, int]) -> set[int]:
    """The roots of the shared numbers that an operand holds."""
    parts = walks.parts(cell, closed=lambda value: value.type in (BOX, CLOSURE))
    return {shared[id(part)] for part in parts if id(part) in shared}


def shape_of(cell: Cell) -> Hashable:
    """What a change to a container changes."""
    value = cell.value
    if type(value) is not Container:
        return None
    keys = tuple(value.cells) if isinstance(value.cells, dict) else None
    return (keys, tuple(map(id, value.children())))


def known_outlook(value: Any) -> Any:
    """An operand that no number and no input made: a number, or a column of known bounds."""
    if type(value) is Column and value.tag in ("bool", "float"):
        return Outlook(value.tag, BIT if value.tag == "bool" else None)
    return getattr(value, "obj", None)


def holds_for_any(rule: Any, given: Sequence[Any], places: dict[int, Any]) -> bool:
    """Whether the kernels of an operation on numbers are right for any uniform number in it.

    A rule looks at uniform numbers: ``n % m`` has other kernels for ``m == 0``.
    """
    shared = [v for v in given if type(v) is Uniform and id(v) in places]
    if not shared:
        return True
    name = rule.removeprefix("i") if isinstance(rule, str) else ""
    if name not in VALUE_FREE:
        return False
    ints = any(type(v) is Column and v.tag != "float" for v in given)
    return not (ints and any(type(v.obj) is float for v in shared))


def stripped(template: Template) -> Template:
    """The template without the recording's cells and tensors."""
    return Template(template.nodes, template.names)


def fixed_bounds(
    forecasts: Sequence[Any], bounded: Sequence[tuple[int, int]], gathered: Gathered
) -> tuple[tuple[int, Bounds], ...]:
    """The bounds of the ints that a stretch makes of no ints: the same at each replay."""
    if not bounded:
        return ()
    try:
        looks = outlooks(forecasts, gathered.leaves)
    except Unforeseen:
        return ()
    return tuple((node, b) for node, place in bounded if (b := looks[place].bounds) is not None)


def any_ints(forecasts: list[Any], gathered: Gathered) -> bool:
    """Whether bounds of ints, or shared ints, have to be followed at each replay."""
    return bool(forecasts) and (
        "int" in gathered.kinds
        or any(
            cell is not None and type(cell.value) is Column and cell.value.tag == "int"
            for cell in gathered.leaves
        )
    )
