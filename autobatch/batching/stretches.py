"""Stretches: runs of operations that are recorded once and replayed.

At a place in a block, ``Site.advance`` runs as many operations as it can in one go and says where
it stopped; what it cannot take, the caller runs one by one. A stretch has two parts. *Host*
operations have only uniform operands: they run as plain Python, first. *Batched* operations run
in one replay of a trace, which an executor made by running these very operations on fake
tensors. A signature that is new is planned when the place has been reached ``trace_after`` times.

Invariants: host operations are pure and write no variable that an earlier batched operation reads
or writes; a stretch that fails, on fakes or on data, leaves the environment as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from torch import Tensor

from autobatch.batching import numbers, operations, writes
from autobatch.batching.context import Check, Context, RowsFail
from autobatch.batching.drivers import Driver, driver_of
from autobatch.batching.effects import belongs_to_torch, effect_of
from autobatch.batching.operations import Env, Scope
from autobatch.batching.outputs import Template
from autobatch.batching.signature import Gathered, Rebuilt, ambient_key
from autobatch.batching.trace import Input, Untraceable, record
from autobatch.ir.ops import BINARY, COMPARE, UNARY
from autobatch.ir.program import Op
from autobatch.source import Span
from autobatch.vm import heap
from autobatch.vm.values import (
    BOX,
    CLOSURE,
    METHOD,
    Cell,
    Column,
    Container,
    Mark,
    Objects,
    Uniform,
    View,
    is_number,
    read,
    uniform,
)

PURE = frozenset(
    {"copy", "getattr", "getitem", "slice", "tuple", "list", "dict", "unpack", "truth", "to_tuple"}
    | UNARY.keys()
    | BINARY.keys()
    | COMPARE.keys()
)
HOST = PURE | {"const", "global", "load_free", "format", "join", "import_from"}
INPLACE = frozenset(f"i{name}" for name in BINARY)
WRITES = INPLACE | {"setitem"}
VALUE_FREE = frozenset({"add", "sub", "mul", "lt", "le", "gt", "ge", "eq", "ne"})
LARGEST_SHARED = 2**31
"""Uniform ints up to this size meet number columns by the same kernels."""
COLD = -1
MOST_DRIVERS = 3
LOG = logging.getLogger("autobatch")
MOST_PLANS = 16
"""Signatures of one stretch that are recorded; with more, it runs untraced."""

Run = Callable[..., Sequence[Tensor]]


class Executor(Protocol):
    """Makes a stretch fast.

    ``compile(stretch, inputs)`` gets the stretch, callable as ``stretch(k, *values)`` on rows
    (columns ``[k, *E]``, uniform tensors, uniform numbers) and returning a tuple of tensors, and
    an example of each value. It returns a callable of the same arguments and results, right for
    every ``k``, or raises ``Untraceable``.
    """

    def compile(self, stretch: Run, inputs: Sequence[Input]) -> Run: ...


class TracedExecutor:
    """Records the stretch on fake tensors and replays it as straight-line torch code."""

    def compile(self, stretch: Run, inputs: Sequence[Input]) -> Run:
        return record(stretch, inputs)


class Recording:
    """The counter of a recording: whatever needs the host or single threads ends the stretch."""

    def host_read(self, reason: str) -> NoReturn:
        raise Untraceable(f"it reads data on the host ({reason})")

    def fallback(self, span: Span | None, what: str, why: str) -> NoReturn:
        raise Untraceable(f"{what} runs thread by thread: {why}")

    def launch(self, number: int = 1) -> None:
        """Kernels are counted when the stretch is replayed."""


def refuse(*args: Any) -> NoReturn:
    raise Untraceable("it runs a program function or makes one")


@dataclass(slots=True, eq=False)
class Plan:
    """A stretch ready to replay for one signature."""

    run: Run
    template: Template
    names: tuple[tuple[str, int], ...]
    written: tuple[tuple[int, int], ...]
    checks: int
    forecasts: tuple[tuple[Any, tuple[Any, ...], int], ...]
    bounded: tuple[tuple[int, int], ...]
    kernels: int
    inputs: int
    verified: bool = False
    drivable: bool = True
    runs: int = 0


def host_only() -> Plan:
    """The plan of a stretch that has host operations only."""
    return Plan(lambda k: (), Template(), (), (), 0, (), (), 0, 0)


@dataclass(slots=True, eq=False)
class Skeleton:
    """Operations from ``start`` to ``end``: which are host, which batched, what goes in and out."""

    start: int
    end: int
    host: tuple[Op, ...]
    batched: tuple[Op, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    constants: dict[str, Cell]
    wanted: frozenset[str] = frozenset()
    baked: frozenset[int] = frozenset()
    plans: dict[Hashable, Plan | Skeleton] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Site:
    """A place in a block where stretches begin.

    ``needed`` are the variables that are still wanted when the block is done.
    """

    ops: Sequence[Op]
    start: int
    needed: frozenset[str]
    exposed: tuple[str, ...] = ()
    reached: int = 0
    skeletons: dict[Hashable, Skeleton] = field(default_factory=dict)
    drivers: list[tuple[Driver, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        defined: set[str] = set()
        exposed: list[str] = []
        for op in self.ops[self.start :]:
            exposed += [arg for arg in op.args if arg not in defined and arg not in exposed]
            defined.update(op.outs)
        self.exposed = tuple(exposed)

    def advance(self, work: Work, context: Context, scope: Scope, env: Env) -> int:
        """Run a stretch if there is one here.

        The position after it; ``start`` where the next operation runs by itself; ``COLD`` where
        the rest of the block does, since the place has not been reached often enough.
        """
        for drive, end, kernels in self.drivers:
            try:
                driven = drive(env, scope.namespace, context.k)
            except Exception:  # the general way finds out what is wrong
                driven = False
            if driven:
                context.counter.launch(kernels)
                return end
        kinds = tuple([kind_of(env.get(name)) for name in self.exposed])
        skeleton = self.skeletons.get(kinds)
        if skeleton is None:
            self.reached += 1
            if self.reached <= work.trace_after:
                return COLD
            skeleton = self.skeletons[kinds] = self.outlined(scope, context, env, len(self.ops))
        if skeleton.end == skeleton.start:
            return self.start
        before = work.env = dict(env)
        while True:
            try:
                found = self.replay(skeleton, work, context, scope, env)
            except Unforeseen:
                found = None
            except Exception:  # what is wrong comes out, with its thread, when it runs untraced
                LOG.debug("a stretch did not run", exc_info=True)
                found = None
            if found is skeleton:
                self.drive(skeleton, work, scope, before)
                return skeleton.end
            env.clear()
            env.update(before)
            if found is None or found.end == found.start:
                return self.start
            skeleton = found

    def drive(self, skeleton: Skeleton, work: Work, scope: Scope, before: Env) -> None:
        """Print a driver for the plan that has just run, the second time that it has."""
        plan = work.last
        if plan is None or plan.drivable is not True:
            return
        plan.runs += 1
        if plan.runs < 2:
            return
        plan.drivable = False
        env = {**before, **work.settled}
        drive = driver_of(skeleton, plan, env, scope.namespace)
        if drive is not None:
            self.drivers = [(drive, skeleton.end, plan.kernels), *self.drivers[: MOST_DRIVERS - 1]]

    def replay(
        self, skeleton: Skeleton, work: Work, context: Context, scope: Scope, env: Env
    ) -> Skeleton | None:
        """Run the stretch; another skeleton to try instead, or None where none will do."""
        if skeleton.constants:
            env.update(skeleton.constants)
        for op in skeleton.host:
            operations.execute(context, scope, op, env)
        work.last = None
        if not skeleton.batched:
            work.last = skeleton.plans.setdefault(None, host_only())  # type: ignore[assignment]
            work.settle(skeleton, env)
            return skeleton
        roots = [env[name] for name in skeleton.reads]
        gathered = Gathered(roots, skeleton.baked)
        key = (ambient_key(), gathered.key)
        plan = skeleton.plans.get(key)
        if plan is None:
            if len(skeleton.plans) >= MOST_PLANS:
                return None
            plan = self.planned(skeleton, work, context, scope, roots, gathered)
            skeleton.plans[key] = plan
        if type(plan) is Skeleton:
            return plan
        assert type(plan) is Plan
        outlooks = foreseen(plan, gathered) if plan.forecasts else ()
        outs = plan.run(context.k, *gathered.values)
        context.counter.launch(plan.kernels)
        if not plan.verified:
            if not agrees(self, skeleton, plan, context, scope, roots, gathered, outs):
                skeleton.plans[key] = self.shortened(skeleton, skeleton.start, context, scope)
                return None
            plan.verified = True
        work.last = plan
        work.settle(skeleton, env)
        self.leave(skeleton, plan, context, scope, env, roots, gathered, outs, outlooks)
        return skeleton

    def leave(
        self,
        skeleton: Skeleton,
        plan: Plan,
        context: Context,
        scope: Scope,
        env: Env,
        roots: list[Cell],
        gathered: Gathered,
        outs: Sequence[Tensor],
        outlooks: Sequence[Any],
    ) -> None:
        """Put what a replay has made into the environment."""
        if plan.checks:
            alone = Alone(skeleton, scope, context, heap.copied(roots, lambda value: value))
            for place in range(len(outs) - plan.checks, len(outs)):
                context.checks.append(Check(outs[place], alone))
        made = plan.template.make(outs, gathered.leaves, gathered.cells)
        for node, outlook in plan.bounded:
            made[node].value.bounds = outlooks[outlook].bounds
        for name, node in plan.names:
            env[name] = made[node]
        for leaf, node in plan.written:
            cell = gathered.leaves[leaf]
            assert cell is not None
            writes.set_content(cell, made[node].value)

    def outlined(self, scope: Scope, context: Context, env: Env, stop: int) -> Skeleton:
        """Tell host from batched operations, up to what a stretch cannot hold."""
        outline = Outline(scope, context, dict(env))
        position = self.start
        while position < stop and outline.take(self.ops[position]):
            position += 1
        return self.skeleton(outline, position)

    def skeleton(self, outline: Outline, end: int) -> Skeleton:
        wanted = set(self.needed)
        for op in self.ops[end:]:
            wanted.update(op.args if op.name != "delete" else (op.attr,))
        defined = {name for op in outline.batched for name in op.outs}
        constants = {
            name: cell
            for name, cell in outline.constants.items()
            if name in wanted or any(name in op.args for op in (*outline.host, *outline.batched))
        }
        return Skeleton(
            self.start,
            end,
            tuple(outline.host),
            tuple(outline.batched),
            tuple(outline.reads),
            tuple(sorted(defined & wanted)),
            constants,
            frozenset(wanted),
        )

    def shortened(
        self, skeleton: Skeleton, stop: int, context: Context, scope: Scope, env: Env | None = None
    ) -> Skeleton:
        """The stretch up to an operation that a recording refused."""
        if env is None or stop <= self.start:
            return Skeleton(self.start, self.start, (), (), (), (), {})
        return self.outlined(scope, context, env, stop)

    def planned(
        self,
        skeleton: Skeleton,
        work: Work,
        context: Context,
        scope: Scope,
        roots: list[Cell],
        gathered: Gathered,
    ) -> Plan | Skeleton:
        stretch = Stretch(skeleton, scope, context, roots)
        try:
            run = work.executor.compile(stretch, gathered.inputs())
            return stretch.plan(run, gathered)
        except Untraceable:
            if stretch.failed is not None and not stretch.depends:
                place = self.ops.index(stretch.failed)
                return self.outlined(scope, context, work.env, place)
            numbers_of = stretch.depends or stretch.shared
            if not numbers_of <= skeleton.baked:
                return replace(skeleton, baked=skeleton.baked | numbers_of, plans={})
            return Skeleton(self.start, self.start, (), (), (), (), {})
        finally:
            context.counter.trace()


class Unforeseen(Exception):
    """An int column may leave int64 this time: the operations run one by one, and look."""


@dataclass(slots=True, eq=False)
class Work:
    """What a machine lends to its sites: the executor, when to trace, the environment at start."""

    executor: Executor
    trace_after: int
    env: Env = field(default_factory=dict)
    last: Plan | None = None
    settled: Env = field(default_factory=dict)

    def settle(self, skeleton: Skeleton, env: Env) -> None:
        """Keep what the host operations have assigned, for a driver to be printed."""
        made = {name: env[name] for op in skeleton.host for name in op.outs}
        self.settled = {**skeleton.constants, **made}


@dataclass(slots=True, eq=False)
class Outline:
    """Takes operations one by one, as host or batched, and runs the host ones on a copy."""

    scope: Scope
    context: Context
    env: Env
    host: list[Op] = field(default_factory=list)
    batched: list[Op] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    constants: dict[str, Cell] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    settled: set[str] = field(default_factory=set)
    writes: bool = False

    def take(self, op: Op) -> bool:
        """Whether the operation fits into the stretch."""
        if op.name == "const":
            return self.constant(op)
        if any(arg in self.made for arg in op.args):
            return self.batch(op)
        if not all(arg in self.env for arg in op.args):
            return False
        cells = [self.env[arg] for arg in op.args]
        if any(has_objects(cell) for cell in cells):
            return False
        if all(is_uniform(cell) for cell in cells):
            return self.run(op, cells)
        return self.batch(op)

    def constant(self, op: Op) -> bool:
        name = op.outs[0]
        if name in self.touched or name in self.settled:
            return False
        self.constants[name] = self.env[name] = uniform(op.attr)
        return True

    def run(self, op: Op, cells: list[Cell]) -> bool:
        if any(out in self.constants for out in op.outs):
            return False
        pure = op.name in HOST or (op.name in INPLACE and is_uniform_number(cells[0]))
        if op.name == "call":
            pure = is_pure_call(read(cells[0]))
        if not pure or self.touched & set(op.outs) or (self.writes and cells):
            return False
        try:
            operations.execute(self.context, self.scope, op, self.env)
        except Exception:
            return False
        self.settled.update(op.args, op.outs)
        self.host.append(op)
        return True

    def batch(self, op: Op) -> bool:
        if op.name not in PURE and op.name not in WRITES and op.name != "call":
            return False
        if op.name == "call" and op.args[0] not in self.made:
            if not is_traceable_call(read(self.env[op.args[0]])):
                return False
        for arg in op.args:
            if arg not in self.made and arg not in self.constants and arg not in self.reads:
                self.reads.append(arg)
        if any(out in self.constants for out in op.outs):
            return False
        self.touched.update(op.args, op.outs)
        self.made.update(op.outs)
        self.writes = self.writes or op.name in WRITES
        self.batched.append(op)
        return True


def is_uniform_number(cell: Cell) -> bool:
    value = cell.value
    return type(value) is Uniform and is_number(value.obj)


def is_pure_call(value: Any) -> bool:
    return type(value) is Uniform and effect_of(value.obj) in ("torch", "host")


def is_traceable_call(value: Any) -> bool:
    """Whether a callee may be recorded: torch's own code, and what has a batched meaning here."""
    if type(value) is Container:
        return is_traceable_call(Uniform(value.static)) if callable(value.static) else False
    if type(value) is not Uniform:
        return False
    effect = effect_of(value.obj)
    if effect == "torch":
        if isinstance(value.obj, torch.nn.Module):
            return all(unhooked(part) for part in value.obj.modules())
        return belongs_to_torch(value.obj)
    return effect in ("host", "write", "program")


def unhooked(module: torch.nn.Module) -> bool:
    return not (module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def kind_of(cell: Cell | None) -> str:
    """A rough kind, which decides what is host and what is batched."""
    if cell is None:
        return "-"
    value = cell.value
    kind = type(value)
    if kind is Uniform:
        return "u"
    if kind is Column:
        return "c"
    if kind is Container:
        return "O" if has_objects(cell) else "U" if is_uniform(cell) else "C"
    return "o" if kind is Objects else kind_of(Cell(read(cell)))


def is_uniform(cell: Cell) -> bool:
    """Whether no thread's own value is in it."""
    return not found_in(cell, lambda value: type(value) is not Uniform, set())


def has_objects(cell: Cell) -> bool:
    """Whether it holds what no recording can: objects, iterators, functions and their boxes."""
    return found_in(cell, lambda value: type(value) is Objects, set())


def found_in(cell: Cell, wanted: Callable[[Any], bool], seen: set[int]) -> bool:
    value = cell.value
    kind = type(value)
    if kind is View:
        return wanted(read(cell))
    if kind is not Container:
        return wanted(value)
    if isinstance(value.type, Mark) and value.type is not METHOD:
        return True
    if id(cell) in seen:
        return False
    seen.add(id(cell))
    return any(found_in(child, wanted, seen) for child in value.children())


@dataclass(slots=True, eq=False)
class Stretch:
    """The batched operations as a function of rows, and what it left behind when last run."""

    skeleton: Skeleton
    scope: Scope
    context: Context
    roots: list[Cell]
    left: list[tuple[Template, list[tuple[int, int]], int, list[Any]]] = field(default_factory=list)
    failed: Op | None = None
    shared: frozenset[int] = frozenset()
    depends: frozenset[int] = frozenset()

    def __call__(self, k: int, *values: Any) -> tuple[Tensor, ...]:
        skeleton = self.skeleton
        rebuilt = Rebuilt(self.roots, skeleton.baked, values)
        env: Env = {**skeleton.constants, **dict(zip(skeleton.reads, rebuilt.roots, strict=True))}
        context = recording_context(self.context, k)
        before = [None if cell is None else cell.value for cell in rebuilt.leaves]
        self.shared = frozenset(rebuilt.shared.values())
        shapes = [(cell, shape_of(cell)) for cell in rebuilt.cells]
        for op in skeleton.batched:
            self.failed = op
            operations.execute(context, self.scope, op, env)
            if rebuilt.shared:
                self.check_shared(op, env, rebuilt.shared)
            if any(shape_of(cell) != shape for cell, shape in shapes):
                raise Untraceable("it changes a list or dict that was there before")
        self.failed = None
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
        forecasts = self.forecasts(context.forecasts or [], rebuilt, before, template)
        self.left.append((template, written, len(checks), forecasts))
        return (*template.tensors, *checks)

    def check_shared(self, op: Op, env: Env, shared: dict[int, int]) -> None:
        """Refuse what two recordings cannot tell apart: Python's decisions on a shared number."""
        places = {place for arg in op.args for place in numbers_in(env[arg], shared)}
        if not places:
            return
        if op.name == "call":
            self.depends = frozenset(places)
            raise Untraceable("a call with a number that all threads share")
        if any(type(env[out].value) is Uniform for out in op.outs if out in env):
            raise Untraceable("a number that all threads share decides a result for all")

    def forecasts(
        self, noted: list[Any], rebuilt: Rebuilt, before: list[Any], template: Template
    ) -> list[Any]:
        """Operations on numbers, with operands as ``("leaf", i)``, ``("result", j)`` or numbers."""
        places: dict[int, tuple[str, int]] = {
            id(value): ("leaf", i) for i, value in enumerate(before) if value is not None
        }
        found: list[Any] = []
        total = 0
        for rule, given, results in noted:
            operands = [places.get(id(v), getattr(v, "obj", None)) for v in given]
            if not holds_for_any(rule, given, places):
                raise Untraceable("what it computes depends on a number that all threads share")
            outs = []
            for result in results:
                places[id(result)] = ("result", total)
                outs.append(id(result))
                total += 1
            found.append((rule, tuple(operands), len(results), outs))
        return found

    def plan(self, run: Run, gathered: Gathered) -> Plan:
        template, written, checks, forecasts = self.left[0]
        for other, other_written, other_checks, _ in self.left[1:]:
            same = other.shape() == template.shape()
            if not same or other_written != written or other_checks != checks:
                raise Untraceable("what it leaves behind depends on a number")
        if written and gathered.views:
            raise Untraceable("it writes while views are among its operands")
        columns = {id(column): column for column in template.columns}
        results = [out for _, _, _, outs in forecasts for out in outs]
        bounded = tuple(
            (node, results.index(id(cell.value)))
            for node, cell in enumerate(template.kept)
            if template.nodes[node].tag == "int" and id(cell.value) in columns
            and id(cell.value) in results
        )
        needed = any_ints(forecasts, gathered)
        return Plan(
            run,
            stripped(template),
            tuple(template.names.items()),
            tuple(written),
            checks,
            tuple((rule, operands, count) for rule, operands, count, _ in forecasts)
            if needed
            else (),
            bounded if needed else (),
            getattr(run, "kernels", 1),
            len(gathered.values),
        )


def numbers_in(cell: Cell, shared: dict[int, int]) -> list[int]:
    """The roots of the shared numbers that an operand holds."""
    if id(cell) in shared:
        return [shared[id(cell)]]
    value = cell.value
    if type(value) is not Container or value.type in (BOX, CLOSURE):
        return []
    return [place for child in value.children() for place in numbers_in(child, shared)]


def shape_of(cell: Cell) -> Hashable:
    """What a change to a container changes."""
    value = cell.value
    if type(value) is not Container:
        return None
    keys = tuple(value.cells) if isinstance(value.cells, dict) else None
    return (keys, tuple(map(id, value.children())))


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


def any_ints(forecasts: list[Any], gathered: Gathered) -> bool:
    """Whether bounds of ints, or shared ints, have to be followed at each replay."""
    return bool(forecasts) and (
        "int" in gathered.kinds
        or any(
            cell is not None and type(cell.value) is Column and cell.value.tag == "int"
            for cell in gathered.leaves
        )
    )


def recording_context(context: Context, k: int) -> Context:
    return Context(
        k,
        np.arange(k),
        context.device,
        Recording(),
        "error",
        context.inline,
        refuse,
        context.inline,
        forecasts=[],
    )


def foreseen(plan: Plan, gathered: Gathered) -> list[Any]:
    """The outlook of each number that the stretch computes; ``Unforeseen`` if one may escape."""
    outlooks: list[Any] = []
    for rule, operands, _ in plan.forecasts:
        given = [operand(part, gathered, outlooks) for part in operands]
        if not any(hasattr(part, "tag") for part in given):
            raise Unforeseen
        found = numbers.forecast(rule, *given)
        if found is None or any(outlook.may_escape for outlook in found):
            raise Unforeseen
        outlooks += found
    return outlooks


def operand(part: Any, gathered: Gathered, outlooks: list[Any]) -> Any:
    if type(part) is tuple:
        where, place = part
        if where == "result":
            return outlooks[place]
        cell = gathered.leaves[place]
        value = None if cell is None else read(cell)
        if type(value) is Column:
            return value
        obj = value.obj  # type: ignore[union-attr]
        if type(obj) is int and abs(obj) > LARGEST_SHARED:
            raise Unforeseen
        return obj
    return part


@dataclass(slots=True, eq=False)
class Alone:
    """The batched operations of a stretch for one thread, to find the exception it raises."""

    skeleton: Skeleton
    scope: Scope
    context: Context
    roots: list[Cell]

    def __call__(self, row: int) -> None:
        cells = heap.select(self.roots, np.array([row]))
        env: Env = {**self.skeleton.constants, **dict(zip(self.skeleton.reads, cells, strict=True))}
        context = self.context.restricted([row])
        for op in self.skeleton.batched:
            try:
                operations.execute(context, self.scope, op, env)
                context.flush()
            except RowsFail as failure:
                raise RowsFail(row, failure.error, span=failure.span or op.span) from failure.error


def agrees(
    site: Site,
    skeleton: Skeleton,
    plan: Plan,
    context: Context,
    scope: Scope,
    roots: list[Cell],
    gathered: Gathered,
    outs: Sequence[Tensor],
) -> bool:
    """Whether a first replay gives what the operations give one by one on the same rows."""
    cells = heap.copied(roots, lambda value: value)
    env: Env = {**skeleton.constants, **dict(zip(skeleton.reads, cells, strict=True))}
    quiet = recording_context(context, context.k)
    quiet.threads = context.threads
    try:
        for op in skeleton.batched:
            operations.execute(quiet, scope, op, env)
    except (RowsFail, Untraceable):
        return False
    made = plan.template.make(outs, gathered.leaves, gathered.cells)
    return all(same_leaf(made[node], env[name]) for name, node in plan.names)


def same_leaf(left: Cell, right: Cell) -> bool:
    mine, theirs = read(left), read(right)
    if type(mine) is not type(theirs):
        return False
    if type(mine) is Container:
        pairs = zip(mine.children(), theirs.children(), strict=True)  # type: ignore[union-attr]
        return all(same_leaf(a, b) for a, b in pairs)
    a = getattr(mine, "data", getattr(mine, "obj", None))
    b = getattr(theirs, "data", getattr(theirs, "obj", None))
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return True
    if a.dtype != b.dtype or a.shape != b.shape or a.requires_grad != b.requires_grad:
        return False
    if a.dtype.is_floating_point or a.dtype.is_complex:
        return torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True)
    return torch.equal(a, b)

