"""One batched call, from arguments to results: the way it is run, and one result of all chunks.

In: a function, a ``Batch`` and options. Out: the results of all threads, as ``out_dims`` places
them. The ways are tried in order: one by one, machine code, plain Python, straight through without
an engine (``shortcuts``), and an engine for each chunk (``chunks``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

from torch import nn

from autobatch.alone import Asked, asked, objection, trial
from autobatch.arguments.batch import Batch, is_of_objects
from autobatch.batching.fallbacks import ONE_BY_ONE, Policy, is_often, policy_of, warned
from autobatch.batching.shared.reducing import applied
from autobatch.errors import AutobatchError, StackingError
from autobatch.explaining.overhead import Ran, is_cheap, is_scalar, overhead
from autobatch.listeners import Counts, counts
from autobatch.options import Options
from autobatch.presence.moves import keeping
from autobatch.random.drawing import unasked
from autobatch.random.repeating import as_it_was
from autobatch.results.nesting import roomy, structures
from autobatch.results.out_dims import moved
from autobatch.results.outcome import Chunk, apart, has_tensors, stacked, unvaried
from autobatch.runs.chunks import run_chunks
from autobatch.runs.entry import name_of, started
from autobatch.runs.machines import Shared, steps_of
from autobatch.runs.one_by_one import run_sequential
from autobatch.runs.shortcuts import returned_at_once, without_engine
from autobatch.runs.straight import straight
from autobatch.runs.trial import BetterApart
from autobatch.structure import own_attribute
from autobatch.values.cells import Column
from autobatch.vm.forks import BeginAgain
from autobatch.vm.library import Library
from autobatch.vm.observer import Observer
from autobatch.vm.room import with_room

MOST_BEGINNINGS = 8
"""How often a run begins before it forks no calls."""


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
    with unasked(options.seed):
        for _ in range(MOST_BEGINNINGS):
            with suppress(BeginAgain):  # what fails later has no context
                return ran(function, batch, options, library, cache, observer)
        return ran(function, batch, replace(options, fork="off"), library, cache, observer)


def ran(
    function: Callable[..., Any],
    batch: Batch,
    options: Options,
    library: Library,
    cache: dict[Any, Any] | None,
    observer: Observer | None,
) -> Any:
    """The same; ``BeginAgain`` where calls were forked that should not have been."""
    if options.on_error == "isolate" and not batch.size:
        return []
    if batch.size and (options.is_one_by_one or library.replaced.one_by_one):
        return collected(
            [run_sequential(function, batch, options, library)], function, batch, options
        )
    target = started(function)
    plainly = None
    if observer is None and cache is None:
        plainly = asked(target, batch, options, library)
    if observer is None:
        for chunk in without_engine(target, batch, options, library, cache, plainly):
            try:
                result = collected([chunk], function, batch, options)
            except StackingError:  # the general way tells which returns are unlike
                if chunk.engine_too is None:
                    continue
                return collected([chunk.engine_too()], function, batch, options)
            if chunk.is_plain and options.fallback == "warn" and not is_of_objects(batch):
                warned(place_of(function), ONE_BY_ONE.format(name_of(function)))
            return result
    if observer is None and cache is None:
        short = straight(target, batch, options, library)
        if short is not None:
            value = short[1].value
            if type(value) is Column and options.out_dims == 0 and options.ragged_out is None:
                return value.data  # the commonest result
            chunk = returned_at_once(*short, batch, options, library)
            return collected([chunk], function, batch, options)
    policy, begun = policy_of(options.fallback), perf_counter()
    with nullcontext() if policy is None else counts() as seen:
        shared = Shared(steps_of(options, batch), cache, observer, policy)
        shared.steps.tally.trial = None if plainly is None else trial(plainly)
        if policy is not None:
            shared.steps.ran, policy.waits = {}, True
        chunks: list[Chunk] | None = None
        try:
            with as_it_was(batch.device(), BeginAgain), applying(shared):
                chunks = with_room(run_chunks, target, batch, options, library, shared)
        except BetterApart:
            pass  # what fails from now on has no context
        except Exception:
            if policy is not None:
                policy.tell(name_of(function), place_of(function))
            raise
    if chunks is None:
        return run(function, batch, options, library)
    if shared.steps.tally.trial is not None:
        shared.steps.tally.trial.ended()
    if policy is not None and seen is not None:
        tried = shared.steps.tally.trial
        often = is_often(seen.meant, seen.launches) or (tried is not None and tried.is_sure())
        ran, told = shared.steps.ran or {}, partial(against, plainly, function)
        place, seconds = (name_of(function), place_of(function)), perf_counter() - begun
        policy.recorded(*place, seen.trace_seconds, seconds, seen.traces)
        tell(policy, function, batch, options, chunks, seen, ran, often, told)
        policy.tell(*place)
    return collected(chunks, function, batch, options)


def against(asked: Asked | None, function: Callable[..., Any]) -> str:
    """What keeps a call from being run as plain Python."""
    return "" if asked is None else objection(asked, name_of(function))


def tell(
    policy: Policy,
    function: Callable[..., Any],
    batch: Batch,
    options: Options,
    chunks: list[Chunk],
    seen: Counts,
    ran: Ran,
    often: bool,
    objection: Callable[[], str],
) -> None:
    """Warn of what a run as a whole has spent its time on, if that was not its operations.

    ``often``: it was much on objects.
    """
    name, results = name_of(function), has_tensors(chunks)
    tensors = results or not is_of_objects(batch)
    policy.spent(name, place_of(function), tensors, often, objection)
    if often or not tensors or not batch.size or not is_cheap(batch):
        return
    numbers = options.scalars == "python" and is_scalar(batch) and not results
    lost = overhead(seen, ran, numbers)
    if lost is not None:
        policy.lost(lost.shown, lost.told(name, batch, options), objection)


def place_of(function: Any) -> tuple[str, int]:
    """The file and the first line of what is run."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, nn.Module):
        function = function.forward
    own = own_attribute(function, "__code__")
    code = own or getattr(type(function).__call__, "__code__", None)
    return ("<program>", 0) if code is None else (code.co_filename, code.co_firstlineno)


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
    with keeping():
        offsets = {} if options.ragged_out is None else batch.offsets()
        result = stacked(chunks, batch.size, batch.device(), options.ragged_out, offsets)
    if options.out_dims == 0:
        return result
    placed = partial(moved, result, options.out_dims, name_of(function), lambda: unvaried(chunks))
    return roomy(placed, lambda: len(structures([result])))
