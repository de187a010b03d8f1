"""One batched call, from arguments to results: chunks, engines, stacking."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import torch

from autobatch.alone import alone
from autobatch.arguments import Batch, is_of_objects
from autobatch.batching.calls import Target, resolve_object
from autobatch.batching.context import Context
from autobatch.batching.contributions import Contributions
from autobatch.batching.effects import effect_of
from autobatch.batching.fallbacks import Policy, policy_of
from autobatch.batching.reducing import applied
from autobatch.batching.rows import Rower
from autobatch.batching.stretches import Work, chosen
from autobatch.compiled import Refused, filled, launched, plan_of
from autobatch.entry import name_of, started
from autobatch.errors import LIMITS, AutobatchError, StackingError
from autobatch.ir.program import Function
from autobatch.options import Options
from autobatch.out_dims import moved
from autobatch.outcome import Chunk, apart, has_tensors, stacked, unvaried
from autobatch.presence.guards import Record, presence
from autobatch.random.drawing import drawing
from autobatch.random.paths import key_of
from autobatch.random.sources import Thread
from autobatch.results import Result
from autobatch.saving.offload import Offload, Offloading
from autobatch.saving.savers import Saver, saving
from autobatch.saving.segments import Tape
from autobatch.straight import straight
from autobatch.transforms.parts import changed
from autobatch.vm import heap
from autobatch.vm.calling import Returned
from autobatch.vm.failing import Errors
from autobatch.vm.frames import Callee
from autobatch.vm.library import Code, Library
from autobatch.vm.listeners import Tally
from autobatch.vm.observer import Observer
from autobatch.vm.program_counter import ProgramCounterMachine
from autobatch.vm.room import ROOM
from autobatch.vm.schedule import SCHEDULES, Schedule
from autobatch.vm.sequential import Interpreter
from autobatch.vm.stackless import Machine
from autobatch.vm.state import RunState, Settings
from autobatch.vm.steps import Steps
from autobatch.vm.values import Cell, Column, Objects, Uniform
from autobatch.vm.watching import Unwatched, Watch
from autobatch.vm.ways import UNKNOWN, Way, Ways


@dataclass(slots=True, eq=False)
class Shared:
    """What the chunks of one call have in common: steps, compiled stretches, onlookers.

    And what their threads write to tensors that all of them share.
    """

    steps: Steps
    cache: dict[Any, Any] | None
    observer: Observer | None
    policy: Policy | None
    contributions: Contributions = field(default_factory=Contributions)


def run(
    function: Callable[..., Any],
    batch: Batch,
    options: Options,
    library: Library,
    cache: dict[Any, Any] | None = None,
    observer: Observer | None = None,
) -> Any:
    """The results of ``function`` for every thread of ``batch``, as ``out_dims`` places them.

    Under ``on_error="isolate"`` a list of ``Result``.

    A batch without threads is run as one batch by either engine: no thread is there to run alone.
    """
    if options.on_error == "isolate" and not batch.size:
        return []
    if options.is_one_by_one and batch.size:
        return collected(
            [run_sequential(function, batch, options, library)], function, batch, options
        )
    target = started(function)
    if options.compiles and observer is None:
        shared = Shared(steps_of(options, batch), cache, observer, policy_of(options.fallback))
        chunk = by_machine_code(target, batch, options, library, shared)
        if chunk is not None:
            return collected([chunk], function, batch, options)
    if observer is None and cache is None:
        chunk = by_plain_python(target, batch, options, library)
        if chunk is not None:
            try:
                return collected([chunk], function, batch, options)
            except StackingError:
                pass  # the general way tells which returns are unlike
        short = straight(target, batch, options, library)
        if short is not None:
            value = short[1].value
            if type(value) is Column and options.out_dims == 0 and options.ragged_out is None:
                return value.data  # the commonest result
            chunks = [returned_at_once(*short, batch, options, library)]
            return collected(chunks, function, batch, options)
    shared = Shared(steps_of(options, batch), cache, observer, policy_of(options.fallback))
    with applying(shared):
        chunks = run_chunks(target, batch, options, library, shared)
    if shared.policy is not None and is_of_objects(batch) and not has_tensors(chunks):
        code = getattr(function, "__code__", None)
        place = (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)
        shared.policy.spent(name_of(function), *place)
    return collected(chunks, function, batch, options)


@contextmanager
def applying(shared: Shared) -> Iterator[None]:
    """Apply what the threads have written to shared tensors: those that the loop would come to.

    Nothing where the call is refused.
    """
    try:
        yield
    except AutobatchError:
        raise
    except Exception:
        shared.steps.tally.applied(applied(shared.contributions))
        raise
    shared.steps.tally.applied(applied(shared.contributions))


def collected(
    chunks: list[Chunk], function: Callable[..., Any], batch: Batch, options: Options
) -> Any:
    """One result of what the chunks have returned, as the options want it."""
    if options.on_error == "isolate":
        return apart(chunks, batch.size)
    result = stacked(chunks, batch.size, batch.device(), options.ragged_out)
    return moved(result, options.out_dims, name_of(function), lambda: unvaried(chunks))


def returned_at_once(
    code: Code, value: Cell, batch: Batch, options: Options, library: Library
) -> Chunk:
    """What one group of all threads has returned, without an engine."""
    ways = Ways()
    piece = Returned(np.arange(batch.size), value, ways=ways.number(code.function, 0))

    def rows(piece: Returned) -> list[Any]:
        shared = Shared(steps_of(options, batch), None, None, policy_of(options.fallback))
        machine = machine_of(options, library, shared, batch.device(), batch.size)
        return Rower(Context(machine.state.services, piece.rows)).rows(piece.value)

    return Chunk(0, [piece], ways, rows)


def run_chunks(
    target: Target,
    batch: Batch,
    options: Options,
    library: Library,
    shared: Shared,
) -> list[Chunk]:
    size = options.chunk_size or max(batch.size, 1)
    with ROOM.raised():
        return [
            run_chunk(target, batch, start, min(start + size, batch.size), options, library, shared)
            for start in range(0, max(batch.size, 1), size)
        ]


def run_chunk(
    target: Target,
    batch: Batch,
    start: int,
    stop: int,
    options: Options,
    library: Library,
    shared: Shared,
) -> Chunk:
    machine = machine_of(options, library, shared, batch.device(), batch.size)
    state = machine.state
    given = batch.chunk(start, stop).cells(options.scalars)
    threads = np.arange(start, stop, dtype=np.int64)
    with saving(state.saver), presence() as record:
        pieces = machine.run(target.given(*given), threads)
    left(pieces, record)

    def rows(piece: Returned) -> list[Any]:
        return Rower(Context(state.services, piece.rows + start)).rows(piece.value)

    return Chunk(start, pieces, state.ways, rows, machine.failures.errors)


def left(pieces: Sequence[Returned], record: Record) -> None:
    """What a run returns leaves it: its gradient is that of all threads."""
    if record.is_used and torch.is_grad_enabled():
        changed([piece.value for piece in pieces], record.left)


def schedule_of(schedule: Any) -> Schedule | None:
    """The policy that an option names, or is; None for the queue's own order."""
    return SCHEDULES[schedule] if isinstance(schedule, str) else schedule


def by_plain_python(
    target: Target, batch: Batch, options: Options, library: Library
) -> Chunk | None:
    """What a program of Python objects alone has returned; None for any other.

    Threads that have not come to an end go the general way, under their own indices.
    """
    found = alone(target, batch, options, library)
    if found is None:
        return None
    code, done = found
    shared = Shared(steps_of(options, batch), None, None, None)
    shared.steps.tally.as_plain(code.function.name, batch.size, len(done.rest))
    errors: Errors = {}
    if len(done.rest):
        engine = machine_of(options, library, shared, batch.device(), batch.size)
        with ROOM.raised():
            given = batch.rows(done.rest).cells(options.scalars)
            others = engine.run(target.given(*given), done.rest)
        errors = engine.failures.errors
        if done.stopped:
            return None  # it fails no more: something that nobody sees has changed
        for piece in others:
            context = Context(engine.state.services, done.rest[piece.rows])
            for row, item in zip(piece.rows, Rower(context).rows(piece.value), strict=True):
                done.items[done.rest[row]] = item
    good = np.array([at for at in range(batch.size) if at not in errors], dtype=np.int64)
    items = [done.items[at] for at in good]
    piece = Returned(good, Cell(Objects(items)))
    return Chunk(0, [piece], Ways(), lambda piece: items, errors)


def by_machine_code(
    target: Target, batch: Batch, options: Options, library: Library, shared: Shared
) -> Chunk | None:
    """What a compiled program has returned; None where the general way is to run all threads.

    Threads that have given up go the general way, under their own indices.
    """
    try:
        plan, inputs = plan_of(target, batch, options, library, shared.steps.tally)
        run = launched(plan, inputs, batch.size, options.depth_limit)
    except Refused:
        return None
    if len(run.rest) == batch.size:
        return None
    shared.steps.tally.by_itself(plan.code.function.name, batch.size, run.rounds, len(run.rest))
    machine = partial(machine_of, options, library, shared, batch.device(), batch.size)
    pieces, errors = [Returned(np.arange(batch.size), run.value)], Errors()
    if len(run.rest):
        engine = machine()
        given = batch.rows(run.rest).cells(options.scalars)
        with ROOM.raised(), saving(engine.state.saver), presence() as record:
            others = engine.run(target.given(*given), run.rest)
        left(others, record)
        for piece in others:
            piece.rows = run.rest[piece.rows]
        errors = engine.failures.errors
        whole = not errors and all(filled(run.value, piece.value, piece.rows) for piece in others)
        if not whole and options.on_error != "isolate":
            return None  # results that are unlike each other stack, or are refused, as ever
        if not whole:
            good = np.setdiff1d(np.arange(batch.size), run.rest)
            (value,) = heap.select([run.value], good)
            pieces = [Returned(good, value), *others]

    def rows(piece: Returned) -> list[Any]:
        return Rower(Context(machine().state.services, piece.rows)).rows(piece.value)

    return Chunk(0, pieces, Ways(), rows, errors)


def machine_of(
    options: Options, library: Library, shared: Shared, device: torch.device, size: int
) -> Machine:
    """An engine for ``size`` threads whose numbers live on ``device``."""
    settings = Settings(
        device,
        size,
        options.draws,
        options.depth_limit,
        options.fork == "auto" and options.engine != "program_counter",
        options.max_width,
        schedule_of(options.schedule),
        options.on_error == "isolate",
        options.seed,
        options.thread_offset,
    )
    state = RunState(
        library,
        settings,
        shared.steps,
        work=work_of(options, shared.cache) if size else None,
        policy=shared.policy,
        observer=shared.observer,
        saver=saver_of(options, shared.steps.tally),
        contributions=shared.contributions,
    )
    engine = ProgramCounterMachine if options.engine == "program_counter" else Machine
    return engine(state)


def work_of(options: Options, cache: dict[Any, Any] | None) -> Work | None:
    """What makes stretches fast; None where each operation runs as it comes."""
    if options.executor == "vmap":
        return None
    keeps = options.save == "keep"
    executor = chosen(options.executor, keeps, options.fast_math)
    return Work(executor, options.trace_after, {} if cache is None else cache)


def saver_of(options: Options, tally: Tally) -> Saver | None:
    """What sees to what a run saves for its backward; None: torch's own way."""
    if options.save == "recompute":
        return Tape(tally.again)
    plan = Offload() if options.save == "offload" else options.save
    return Offloading(plan, tally.moved) if isinstance(plan, Offload) else None


@dataclass(frozen=True, slots=True)
class OneByOne:
    """A function by the definitional interpreter."""

    function: Callable[..., Any]
    options: Options
    library: Library
    steps: Steps

    def run(
        self,
        index: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: tuple[Any, ...] | None = None,
    ) -> tuple[Any, Way | None]:
        """The result of the thread ``index``, and the way it has come, if that is known.

        ``given`` is what of its arguments may be the caller's: by default, all of them.
        """
        target = resolve_object(self.function, [], {})
        receivers = tuple(cell.value.obj for cell in target.args if type(cell.value) is Uniform)
        if target.effect != "program" or not isinstance(target.callee, FunctionType):
            with self.drawing(index):
                return self.function(*args, **kwargs), None
        lowered = self.library.code_of(target.callee, *receivers[:1]).function
        callee = Callee.of(lowered, target.callee)
        limit = self.options.depth_limit
        watch = self.watch()
        watch.closure(target.callee)
        watch.given((*receivers, *((*args, *kwargs.values()) if given is None else given)))
        interpreter = Interpreter(self.lookup, self.steps, limit, (index,), watch=watch)
        with self.drawing(index):
            return interpreter.run(callee, (*receivers, *args), kwargs), interpreter.way

    def watch(self) -> Unwatched:
        """What keeps a thread from writing what existed before it, unless it may."""
        return Unwatched() if self.options.writes else Watch(self.library.code_of)

    def lookup(self, function: FunctionType) -> Function | None:
        """The lowering of a function that a thread calls; None for what runs as plain Python."""
        return self.library.code_of(function).function if effect_of(function) == "program" else None

    def drawing(self, index: int) -> AbstractContextManager[None]:
        """The thread draws from words of its own, if there is a seed."""
        options = self.options
        if options.seed is None:
            return nullcontext()
        return drawing(Thread(index + options.thread_offset, key_of(options.seed)))

    def isolated(
        self,
        index: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: tuple[Any, ...] | None = None,
    ) -> tuple[Result, Way | None]:
        """The same as a result that has its exception, where threads are isolated."""
        try:
            value, way = self.run(index, args, kwargs, given)
        except Exception as error:
            own = isinstance(error, AutobatchError) and not isinstance(error, LIMITS)
            if own or self.options.on_error != "isolate":
                raise
            return Result(None, error.with_traceback(None)), None
        return Result(value), way


def run_sequential(
    function: Callable[..., Any], batch: Batch, options: Options, library: Library
) -> Chunk:
    """One thread after the other."""
    each = OneByOne(function, options, library, steps_of(options, batch))
    ways = Ways()
    items: list[Any] = [None] * batch.size
    marks = np.full(batch.size, UNKNOWN)
    errors: Errors = {}

    for index in range(batch.size):
        row = batch.row(index, options.scalars, not options.writes)
        result, way = each.isolated(index, *row, batch.shared(*row))
        items[index] = result.value
        if result.exception is not None:
            errors[index] = result.exception
        if way is not None:
            marks[index] = ways.number(way.function, way.label)
    piece = Returned(np.arange(batch.size), Cell(Objects(items)), ways=marks)
    return Chunk(0, [piece], ways, lambda piece: items, errors)


def steps_of(options: Options, batch: Batch) -> Steps:
    return Steps(batch.size, options.max_steps, options.listeners, Tally())
