"""One batched call, from arguments to results: chunks, engines, stacking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import torch

from autobatch import results
from autobatch.arguments import Batch
from autobatch.batching.calls import effect_of, resolve_object
from autobatch.batching.fallbacks import Policy, policy_of
from autobatch.batching.rows import Rower
from autobatch.batching.stretches import TracedExecutor, Work
from autobatch.options import Options
from autobatch.vm.calling import Returned
from autobatch.vm.library import Library
from autobatch.vm.observer import Observer
from autobatch.vm.sequential import run_thread
from autobatch.vm.stackless import Machine, Settings
from autobatch.vm.values import Cell

FRAMES_PER_CALL = 16
"""Python frames that one nested call of a program takes, at most."""


@dataclass(slots=True, eq=False)
class Shared:
    """What the chunks of one call have in common: compiled stretches, onlookers, steps so far."""

    cache: dict[Any, Any] | None = None
    observer: Observer | None = None
    policy: Policy | None = None
    steps: int = 0


def run(
    function: Callable[..., Any],
    batch: Batch,
    options: Options,
    library: Library,
    cache: dict[Any, Any] | None = None,
    observer: Observer | None = None,
) -> Any:
    """The results of ``function`` for every thread of ``batch``, stacked."""
    if options.engine == "sequential":
        return run_sequential(function, batch, options, library)
    size = options.chunk_size or max(batch.size, 1)
    device = batch.device()
    shared = Shared(cache, observer, policy_of(options.fallback))
    with recursion_limit(options.max_depth * FRAMES_PER_CALL):
        parts = [
            run_chunk(function, batch.chunk(start, min(start + size, batch.size)), start, batch.size,
                      options, library, device, shared)
            for start in range(0, max(batch.size, 1), size)
        ]
    return results.joined_chunks(parts)


def run_chunk(
    function: Callable[..., Any],
    batch: Batch,
    start: int,
    total: int,
    options: Options,
    library: Library,
    device: torch.device,
    shared: Shared,
) -> Any:
    settings = Settings(
        device, total, options.randomness, options.max_steps, options.max_depth,
        options.fallback, options.listeners,
    )
    machine = Machine(
        library, settings, steps=shared.steps, work=work_of(options),
        cache=shared.cache, policy=shared.policy, observer=shared.observer,
    )
    args, kwargs = batch.cells(options.scalars)
    threads = np.arange(start, start + batch.size, dtype=np.int64)
    pieces = machine.run(function, args, kwargs, threads)
    shared.steps = machine.steps
    return stacked(machine, pieces, threads)


def work_of(options: Options) -> Work | None:
    """What makes stretches fast; None where each operation runs as it comes."""
    if options.executor == "vmap":
        return None
    executor = TracedExecutor() if options.executor == "traced" else options.executor
    return Work(executor, options.trace_after)


def stacked(machine: Machine, pieces: list[Returned], threads: np.ndarray) -> Any:
    device = machine.settings.device

    def rows_of(k: int) -> Callable[[Cell], list[Any]]:
        context = machine.context(threads[:k], None)
        return lambda cell: Rower(context).rows(cell)

    if len(pieces) == 1:
        return results.stacked_cell(pieces[0].value, len(threads), device, rows_of(len(threads)))
    items: list[Any] = [None] * len(threads)
    for piece in pieces:
        rows = rows_of(len(piece.rows))(piece.value)
        for row, item in zip(piece.rows.tolist(), rows, strict=True):
            items[row] = item
    return results.stacked_rows(items, device)


def run_sequential(
    function: Callable[..., Any], batch: Batch, options: Options, library: Library
) -> Any:
    """One thread after the other, by the definitional interpreter."""

    def lookup(callee: FunctionType) -> Any:
        return library.code_of(callee).function if effect_of(callee) == "program" else None

    items: list[Any] = []
    for index in range(batch.size):
        args, kwargs = batch.row(index, options.scalars)
        target = resolve_object(function, [], {})
        receivers = tuple(cell.value.obj for cell in target.args)
        if isinstance(target.callee, FunctionType):
            lowered = library.code_of(target.callee, *receivers[:1]).function
            items.append(
                run_thread(
                    lowered, target.callee, (*receivers, *args), kwargs, lookup=lookup,
                    max_steps=options.max_steps, max_depth=options.max_depth, threads=(index,),
                )
            )
        else:
            items.append(function(*args, **kwargs))
    return results.stacked_rows(items, batch.device())


@contextmanager
def recursion_limit(frames: int) -> Iterator[None]:
    """Room for calls to nest: Python's limit is raised while runs that need it are at work."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, frames + 1000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


