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
    engine_too = None
    if len(done.rest):
        engine = machine_of(options, library, shared, batch.device(), batch.size)
        by_engine = partial(returned_by, engine, target, batch, options)
        try:
            others = by_engine(done.rest)
            errors = engine.failures.errors
        except UnsupportedError as refused:  # for what a function does that yields
            if refused.diagnostic.code != "yield" or len(done.failures) < len(done.rest):
                raise
            others, errors = [], done.failures if asked.isolates else {}
        for thread, error in done.failures.items():
            if thread not in errors:
                raise error
        for piece in others:
            items = Rower(Context(engine.state.services, piece.rows)).rows(piece.value)
            for thread, item in zip(piece.rows, items, strict=True):
                done.items[thread] = item
        engine_too = partial(all_by, engine, by_engine, others, without(done.rest, batch.size))
    good = np.array([at for at in range(batch.size) if at not in errors], dtype=np.int64)
    items = [done.items[at] for at in good]
    piece = Returned(good, Cell(Objects(items)))

    def reader(rows: np.ndarray) -> Reader:
        return lambda cell: items

    return Chunk(0, [piece], Ways(), reader, errors, is_plain=True, engine_too=engine_too)


def returned_by(
    engine: Machine, target: Target, batch: Batch, options: Options, threads: np.ndarray
) -> list[Returned]:
    """What an engine returns for some threads, which are the rows of its pieces."""
    called, state = target.given(*batch.rows(threads).cells(options.scalars)), engine.state
    at_work = seen(state.sees_layouts), saving(state.saver)
    with at_work[0], at_work[1], presence(given_to(called)) as record:
        pieces = with_room(engine.run, called, threads)
    left(pieces, record)
    for piece in pieces:
        piece.rows = threads[piece.rows]
    return pieces


def all_by(
    engine: Machine,
    by_engine: Callable[[np.ndarray], list[Returned]],
    others: list[Returned],
    threads: np.ndarray,
) -> Chunk:
    """What an engine has returned for some threads, and what it returns for all ``threads`` else.

    Whoever has run these has shown nothing, so they may run again; what the engine has run may not.
    """
    pieces = [*others, *by_engine(threads)]

    def reader(rows: np.ndarray) -> Reader:
        return Rower(Context(engine.state.services, rows)).rows

    return Chunk(0, pieces, engine.state.ways, reader, engine.failures.errors)


def without(threads: np.ndarray, size: int) -> np.ndarray:
    """All others of so many."""
    return np.setdiff1d(np.arange(size), threads, assume_unique=True)


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
    engine_too = None
    if len(run.rest):
        engine = machine()
        ways = engine.state.ways
        by_engine = partial(returned_by, engine, target, batch, options)
        others = by_engine(run.rest)
        errors = engine.failures.errors
        engine_too = partial(all_by, engine, by_engine, others, without(run.rest, batch.size))
    isolated = options.gives_own
    many = len(run.whole) + len(run.listed)
    one = None
    if not errors and many <= MOST_JOINED and not (isolated and many > 1):
        one = joined(run.parts(), [(piece.rows, piece.value) for piece in others], batch.size)
    if one is None and not isolated and not run.listed and engine_too is None:
        return None  # results that are unlike each other stack, or are refused, as ever
    if one is not None:
        pieces = [Returned(np.arange(batch.size), one)]
    else:
        pieces = [Returned(*piece) for piece in run.pieces()] + others

    def reader(rows: np.ndarray) -> Reader:
        return idle(machine, rows)

    return Chunk(0, pieces, ways, reader, errors, engine_too=engine_too)
