"""The chunks of a call by an engine, one after the other.

In: what is called, and the batch. Out: for each chunk what its groups have returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.arguments.batch import Batch
from autobatch.batching.calling.resolving import Target
from autobatch.batching.context import Context
from autobatch.batching.host.rower import Rower
from autobatch.batching.late_reads import rows_written
from autobatch.batching.unseen import refuse_late
from autobatch.compat import next_node
from autobatch.options import Options
from autobatch.presence.record import Record, presence
from autobatch.random.repeating import Repeating
from autobatch.results.holding import held
from autobatch.results.outcome import Chunk, Reader
from autobatch.runs.machines import Shared, machine_of
from autobatch.saving.savers import saving
from autobatch.transforms.levels import change_cell
from autobatch.transforms.parts import others, tensors, without_others
from autobatch.values.cells import PACKED, Cell, Column, Container, read
from autobatch.values.heap import selecting
from autobatch.values.heap.walks import reached
from autobatch.values.layouts import seen
from autobatch.vm.calling import Returned
from autobatch.vm.invariants import InvariantError
from autobatch.vm.library import Library
from autobatch.vm.state import RunState


def run_chunks(
    target: Target,
    batch: Batch,
    options: Options,
    library: Library,
    shared: Shared,
) -> list[Chunk]:
    size = options.chunk_size or max(batch.size, 1)
    starts = range(0, max(batch.size, 1), size)
    run = partial(run_chunk, target, batch, options=options, library=library, shared=shared)
    with repeated(options, batch.device(), len(starts)) as again:
        chunks = []
        for start in starts:
            with again():
                chunks.append(run(start, min(start + size, batch.size)))
        return chunks


@contextmanager
def repeated(
    options: Options, device: torch.device, chunks: int
) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """What each chunk is to run in, so that all draw the same where that is asked for."""
    if options.randomness != "same" or options.seed is not None or chunks < 2:
        yield nullcontext
        return
    repeating = Repeating()
    try:
        yield partial(repeating.chunk, device)
    finally:
        repeating.end()


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
    given = target.given(*batch.chunk(start, stop).cells(options.scalars))
    threads = np.arange(start, stop, dtype=np.int64)
    record, given_tensors = shared.record, given_to(given)
    with seen(state.sees_layouts), saving(state.saver), presence(given_tensors, record):
        pieces = machine.run(given, threads)
    record.end()
    if state.contributions.written:
        for piece in pieces:
            refuse_late_result(state, threads[piece.rows], piece)
    if state.services.alike is not None:
        state.services.alike.end()
    lost = len(threads) - sum(len(piece.rows) for piece in pieces) - len(machine.failures.errors)
    if lost:  # better no result than one that is none
        raise InvariantError(f"{lost} of {len(threads)} threads have neither returned nor failed")
    isolates, listed = options.on_error == "isolate", options.ragged_out == "list"
    if not isolates:
        left(pieces, record, listed)

    def reader(rows: np.ndarray) -> Reader:
        rower = Rower(Context(state.services, rows + start))
        return partial(rows_left, rower, record) if isolates or listed else rower.rows

    return Chunk(start, pieces, state.ways, reader, machine.failures.errors)


def given_to(target: Target) -> list[Tensor]:
    """The tensors that a run is given, where it may be differentiated."""
    if not torch.is_grad_enabled():
        return []
    return tensors([*target.args, *target.kwargs.values()])


def refuse_late_result(state: RunState, threads: np.ndarray, piece: Returned) -> None:
    """Refuse a result that shows, in rows of their own, what the ``threads`` have written.

    What all threads share comes back as itself.
    """
    if not rows_written(Context(state.services, threads), [piece.value]):
        return
    for row in range(len(threads)):
        context = Context(state.services, threads[[row]])
        late = rows_written(context, selecting.select([piece.value], np.array([row])))
        if late:
            context.span = next(iter(state.ways.spans(piece.ways, row)), None)
            raise refuse_late(context, late)


def left(pieces: Sequence[Returned], record: Record, listed: bool = False) -> None:
    """What a run returns leaves it: its gradient is that of all threads.

    ``listed``: but for what ``ragged_out="list"`` gives one by one.
    """
    if record.is_used and torch.is_grad_enabled():
        values = [piece.value for piece in pieces]
        without_others(values)
        for cell in in_columns(values) if listed else reached(values):
            change_cell(cell, record.left)
        record.hold(held(others(values)), next_node())


def in_columns(values: Sequence[Cell]) -> Iterator[Cell]:
    """Those cells of results that give one tensor for all threads, under ``ragged_out="list"``."""
    waiting, seen = list(values), set[int]()
    while waiting:
        cell = waiting.pop()
        if id(cell) in seen:
            continue
        seen.add(id(cell))
        value = read(cell)
        if type(value) is Container:
            waiting += () if value.type in (PACKED, list) else value.children()
        elif type(value) is not Column or value.data.dim() < 2:
            yield cell


def rows_left(rower: Rower, record: Record, cell: Cell) -> list[Any]:
    """A result of each thread's own: its gradient is that of this thread alone."""
    since = next_node()
    rows = rower.rows(cell)
    if record.is_used and torch.is_grad_enabled():
        record.hold(held(rows), since)
    return rows
