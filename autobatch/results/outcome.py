"""From what the groups of each chunk have returned to one result for the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.trees import contents
from autobatch.ragged import Offsets
from autobatch.results.mismatch import Part
from autobatch.results.nesting import rings, roomy, structures
from autobatch.results.out_dims import VARIES, same_cell
from autobatch.results.stacking import Result, stacked_cell, stacked_rows
from autobatch.runs import entry
from autobatch.source import Span
from autobatch.values.cells import Cell, Column
from autobatch.values.heap import likeness, merging
from autobatch.values.heap.walks import reached
from autobatch.vm.calling import Returned
from autobatch.vm.failing import Errors
from autobatch.vm.ways import Ways

Reader = Callable[[Cell], list[Any]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """The groups that a chunk's run has returned; ``start`` is its first thread's index.

    ``reader`` gives what reads real values of cells, for some threads of the chunk: one reader
    gives one object where there is one. ``errors`` are of the threads that failed. ``is_plain``:
    plain Python has run them. ``engine_too`` is for results that do not stack, where an engine has
    run some of the threads, whose effects have been seen: the same, with all others run by it.
    """

    start: int
    pieces: list[Returned]
    ways: Ways
    reader: Callable[[np.ndarray], Reader]
    errors: Errors = field(default_factory=dict)
    is_plain: bool = False
    engine_too: Callable[[], Chunk] | None = None

    def rows(self, piece: Returned) -> list[Any]:
        """The real values of a group's result."""
        return self.reader(piece.rows)(piece.value)

    def spans(self, thread: int) -> tuple[Span, ...]:
        """Where a thread's result comes from, by its index; none if it is not of this chunk."""
        for piece in self.pieces:
            for row in np.flatnonzero(piece.rows == thread - self.start):
                found = self.ways.spans(piece.ways, int(row))
                return tuple(span for span in found if span.file != entry.__file__)
        return ()


def has_tensors(chunks: list[Chunk]) -> bool:
    """Whether a tensor is among the results."""
    leaves: list[Any] = []
    contents([piece.value for chunk in chunks for piece in chunk.pieces], leaves.append)
    return any(
        leaf.tag == "tensor"
        if type(leaf) is Column
        else any(isinstance(item, Tensor) for item in getattr(leaf, "items", ()))
        for leaf in leaves
    )


def stacked(
    chunks: list[Chunk],
    size: int,
    device: torch.device,
    ragged: Any = None,
    offsets: Offsets | None = None,
) -> Any:
    """The results of all chunks as one: at once if all are alike, else value by value.

    ``ragged`` is the option ``ragged_out``, ``offsets`` are those of jagged arguments. What nests
    too deep for that, or holds itself, is
    stacked value by value, with more room.
    """

    def spans(thread: int) -> tuple[Span, ...]:
        return next(filter(None, (chunk.spans(thread) for chunk in chunks)), ())

    whole = Part(spans, ragged=ragged, offsets=offsets or {})
    try:
        return stacked_whole(chunks, size, device, whole)
    except RecursionError:
        items = roomy(partial(items_of, chunks, size), partial(levels_of, chunks))
        whole = replace(whole, rings=rings(items))
        levels = len(structures(items))
        return roomy(partial(stacked_rows, items, device, whole), lambda: levels)


def levels_of(chunks: list[Chunk]) -> int:
    """How deep the results may nest: so many containers there are."""
    return sum(1 for _ in reached(piece.value for chunk in chunks for piece in chunk.pieces))


def stacked_whole(chunks: list[Chunk], size: int, device: torch.device, whole: Part) -> Any:
    found = [(chunk, piece) for chunk in chunks for piece in chunk.pieces]
    if len(found) == 1 and len(found[0][1].rows) == size:
        (chunk, piece) = found[0]  # with its rows in order, as all that has returned
        return stacked_cell(piece.value, size, device, chunk.reader(piece.rows), whole)
    alike = len({likeness.alike([piece.value]) for _, piece in found}) == 1
    in_order = all(len(chunk.pieces) == 1 for chunk in chunks)
    if alike and in_order:
        sizes = [len(piece.rows) for _, piece in found]
        (value,) = merging.merge([[piece.value] for _, piece in found], sizes, device)
        return stacked_cell(value, size, device, chunks[0].reader(np.arange(size)), whole)
    return stacked_rows(items_of(chunks, size), device, whole)


def items_of(chunks: list[Chunk], size: int) -> list[Any]:
    """Each thread's own result."""
    items: list[Any] = [None] * size
    for chunk in chunks:
        for piece in chunk.pieces:
            for row, item in zip(piece.rows.tolist(), chunk.rows(piece), strict=True):
                items[chunk.start + row] = item
    return items


def apart(chunks: list[Chunk], size: int) -> list[Result]:
    """Each thread's value or exception."""
    items = roomy(partial(items_of, chunks, size), partial(levels_of, chunks))
    results = [Result(item) for item in items]
    for chunk in chunks:
        for thread, error in chunk.errors.items():
            results[thread] = Result(None, error)
    return results


def unvaried(chunks: list[Chunk]) -> list[Any]:
    """What is the same for all threads of a group, group by group (see ``out_dims``)."""
    levels = partial(levels_of, chunks)

    def same(piece: Returned) -> Any:
        try:
            return roomy(partial(same_cell, piece.value), levels)
        except RecursionError:  # it holds itself
            return VARIES

    return [same(piece) for chunk in chunks for piece in chunk.pieces]
