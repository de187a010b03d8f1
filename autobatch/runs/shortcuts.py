"""Calls that need no engine, or one for a few of their threads only.

Each gives the ``Chunk`` of all threads, or None where the call must go the general way. Threads
that a short way gives up on go through an engine, under their own indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np

from autobatch.alone import Asked, alone, begun
from autobatch.arguments.batch import Batch
from autobatch.batching.calling.resolving import Target
from autobatch.batching.context import Context
from autobatch.batching.fallbacks import policy_of
from autobatch.batching.foreign import Foreign
from autobatch.batching.host.rower import Rower
from autobatch.compiled import Refused, joined, launched, seeds_of
from autobatch.errors import UnsupportedError
from autobatch.options import Options
from autobatch.presence.record import presence
from autobatch.results.outcome import Chunk, Reader
from autobatch.runs.chunks import given_to, left
from autobatch.runs.machine_code import plan_if_worth
from autobatch.runs.machines import Shared, machine_of, steps_of
from autobatch.saving.savers import saving
from autobatch.values.cells import Cell, Objects
from autobatch.values.layouts import seen
from autobatch.vm.calling import Returned
from autobatch.vm.code import Code
from autobatch.vm.failing import Errors
from autobatch.vm.library import Library
from autobatch.vm.room import with_room
from autobatch.vm.stackless import Machine
from autobatch.vm.ways import Ways

MOST_JOINED = 8
"""Parts of a result that are put together column by column."""


def returned_at_once(
    code: Code, value: Cell, batch: Batch, options: Options, library: Library
) -> Chunk:
    """What one group of all threads has returned, without an engine."""
    ways = Ways()
    piece = Returned(np.arange(batch.size), value, ways=ways.number(code.function, 0))

    def reader(rows: np.ndarray) -> Reader:
        def machine() -> Machine:
            shared = Shared(steps_of(options, batch), None, None, policy_of(options.fallback))
            return machine_of(options, library, shared, batch.device(), batch.size)

        return idle(machine, rows)

    return Chunk(0, [piece], ways, reader)


def idle(machine: Callable[[], Machine], rows: np.ndarray) -> Reader:
    """What reads rows of what an engine that has run nothing would have returned.

    Most results are columns, which nobody reads so: the engine is made for the first that is.
    """

    @lru_cache(maxsize=1)
    def reader() -> Reader:
        engine = machine()
        engine.lend(Foreign())
        return Rower(Context(engine.state.services, rows)).rows

    return lambda cell: reader()(cell)


def without_engine(
    target: Target,
    batch: Batch,
    options: Options,
    library: Library,
    cache: dict[Any, Any] | None,
    plainly: Asked | None,
) -> Iterator[Chunk]:
    """What machine code has returned, and plain Python, until one is taken."""
    chunk = by_machine_code(target, batch, options, library, cache)
    if chunk is not None:
        yield chunk
    chunk = None if plainly is None else by_plain_python(plainly, target, options, library)
    if chunk is not None:
        yield chunk


def by_plain_python(
    asked: Asked, target: Target, options: Options, library: Library
) -> Chunk | None:
    """What a program has returned that is better run thread by thread; None for any other.

    Threads that have not come to an end go the general way, under their own indices. What they have
    raised comes from elsewhere if they do not raise there: from a signal's handler, say.
    """
    done = alone(asked) or begun(asked)
    if done is None:
        return None
    batch = asked.batch
    shared = Shared(steps_of(options, batch), None, None, None)
    shared.steps.tally.as_plain(asked.code.function.name, batch.size, len(done.rest))
    errors: Errors = {}
    if len(done.rest):
        engine = machine_of(options, library, shared, batch.device(), batch.size)
        given = batch.rows(done.rest).cells(options.scalars)
        try:
            others = with_room(engine.run, target.given(*given), done.rest)
            errors = engine.failures.errors
        except UnsupportedError as refused:  # for what a function does that yields
            if refused.diagnostic.code != "yield" or len(done.failures) < len(done.rest):
                raise
            others, errors = [], done.failures if asked.isolates else {}
        for thread, error in done.failures.items():
            if thread not in errors:
                raise error
        for piece in others:
            context = Context(engine.state.services, done.rest[piece.rows])
            for row, item in zip(piece.rows, Rower(context).rows(piece.value), strict=True):
                done.items[done.rest[row]] = item
    good = np.array([at for at in range(batch.size) if at not in errors], dtype=np.int64)
    items = [done.items[at] for at in good]
    piece = Returned(good, Cell(Objects(items)))
    return Chunk(0, [piece], Ways(), lambda rows: lambda cell: items, errors, is_plain=True)


def by_machine_code(
    target: Target,
    batch: Batch,
    options: Options,
    library: Library,
    cache: dict[Any, Any] | None,
) -> Chunk | None:
    """What a compiled program has returned; None where the general way is to run all threads.

    Threads that have given up go the general way, under their own indices.
    """
    found = plan_if_worth(target, batch, options, library)
    if found is None:
        return None
    plan, inputs = found
    shared = Shared(steps_of(options, batch), cache, None, policy_of(options.fallback))
    seeds = seeds_of(options, np.arange(batch.size))
    try:
        run = launched(plan, inputs, batch.size, options.depth_limit, seeds)
    except Refused:
        return None
    if len(run.rest) == batch.size:
        return None
    shared.steps.tally.by_itself(plan.code.function.name, batch.size, run.rounds, len(run.rest))
    machine = partial(machine_of, options, library, shared, batch.device(), batch.size)
    others: list[Returned] = []
    errors: Errors = {}
    ways = Ways()
    if len(run.rest):
        engine = machine()
        ways = engine.state.ways
        given = batch.rows(run.rest).cells(options.scalars)
        called = target.given(*given)
        state, tensors = engine.state, given_to(called)
        at_work = seen(state.sees_layouts), saving(state.saver)
        with at_work[0], at_work[1], presence(tensors) as record:
            others = with_room(engine.run, called, run.rest)
        left(others, record)
        for piece in others:
            piece.rows = run.rest[piece.rows]
        errors = engine.failures.errors
    isolated = options.gives_own
    many = len(run.whole) + len(run.listed)
    one = None
    if not errors and many <= MOST_JOINED and not (isolated and many > 1):
        one = joined(run.parts(), [(piece.rows, piece.value) for piece in others], batch.size)
    if one is None and not isolated and not run.listed:
        return None  # results that are unlike each other stack, or are refused, as ever
    if one is not None:
        pieces = [Returned(np.arange(batch.size), one)]
    else:
        pieces = [Returned(*piece) for piece in run.pieces()] + others

    def reader(rows: np.ndarray) -> Reader:
        return idle(machine, rows)

    return Chunk(0, pieces, ways, reader, errors)
