"""A launch of a plan for a batch: the results of its threads, and which of them have given up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event

import numpy as np
import torch
from torch import Tensor

from autobatch.compiled.kernel import Seeds
from autobatch.compiled.plans import Plan
from autobatch.compiled.returned import (
    Piece,
    allocated,
    cell_of,
    has_lists,
    outputs_of,
    returned,
)
from autobatch.compiled.types import Scalar
from autobatch.compiled.writer import GIVEN_UP, mark_of
from autobatch.options import Options
from autobatch.random.paths import key_of
from autobatch.values.heap import likeness, merging, selecting

FUEL = 2**27
"""Rounds of loops and calls in one launch, some tenths of a second: then the host looks around."""
FUEL_OF_ARRAYS = 2**17
"""The same where a round is work on tensors."""
MOST_DEPTH = 2000
"""How deep calls nest on the machine's own stack; deeper threads give up."""
STACK = 2**21
"""Bytes of that stack that tensors may take."""


LEAST_SHARE = 1024
"""Rows that are worth a host thread."""
SHARES = 4

Launch = Callable[[int, int, int], tuple[int, int, np.ndarray]]
"""Rows ``begin`` to ``end`` with some fuel; the row that is next, the fuel that is left, and the
memory of these threads."""
Take = Callable[[int, int, np.ndarray], None]
"""What is done with the rows of a launch, and their memory."""


@dataclass(frozen=True, slots=True)
class Launched:
    """``whole`` are the results, of each type that the program returns: the threads that have
    returned it, and what, with a row for each of the batch. Of lists there are ``listed`` results,
    with a row for each of these threads. Those of ``rest`` have given up.

    ``rounds`` counts the rounds of loops and the calls of recursive functions.
    """

    size: int
    whole: list[Piece]
    listed: list[Piece]
    rest: np.ndarray
    rounds: int

    def parts(self) -> list[Piece]:
        """The threads that have returned something, and what, with a row for each of the batch."""
        return [*self.whole, *(spread(piece, self.size) for piece in self.listed)]

    def pieces(self) -> list[Piece]:
        """The same, with a row for each of these threads."""
        chosen = [(rows, selecting.select([value], rows)[0]) for rows, value in self.whole]
        return [*chosen, *self.listed]


def spread(piece: Piece, size: int) -> Piece:
    """What some threads have returned, with a row for each of the batch; other rows are any."""
    rows, value = piece
    if len(rows) == size:
        return piece
    places = np.zeros(size, dtype=np.int64)
    places[rows] = np.arange(len(rows))
    return rows, selecting.select([value], places)[0]


def launched(
    plan: Plan,
    inputs: Sequence[Tensor],
    size: int,
    depth: int | None,
    seeds: Seeds | None = None,
    most: int | None = None,
) -> Launched:
    """Run all threads, in shares where torch has several host threads and there are many rows.

    A thread that takes more than ``most`` rounds gives up.
    """
    outputs = [outputs_of(type_, size) for type_ in plan.results]
    each = [data for way in outputs for data in way]
    marks = allocated(Scalar(torch.uint8), size).zero_()
    deepest = min(MOST_DEPTH, STACK // max(plan.kernel.frame, 1))
    deepest = deepest if depth is None else min(depth, deepest)
    launch = partial(plan.kernel.run, inputs, each, marks, deepest, seeds)
    patience = Patience(marks, most)
    taken: list[tuple[int, Piece]] = []

    def take(begin: int, end: int, heap: np.ndarray) -> None:
        """Read the lists of some threads, before their memory is given back."""
        for way, type_ in enumerate(plan.results):
            rows = begin + np.flatnonzero(marks.numpy()[begin:end] == mark_of(way))
            if len(rows) and has_lists(type_):
                taken.append((way, (rows, returned(type_, outputs[way], rows, heap))))

    fuel = FUEL if not plan.kernel.frame else FUEL_OF_ARRAYS
    workers = min(torch.get_num_threads(), size // LEAST_SHARE)
    rounds = in_shares(launch, patience, take if plan.kernel.keeps else None, fuel, size, workers)
    marked = marks.numpy()
    whole: list[Piece] = []
    listed: list[Piece] = []
    for way, type_ in enumerate(plan.results):
        rows = np.flatnonzero(marked == mark_of(way))
        if has_lists(type_):
            listed += met([piece for own, piece in taken if own == way])
        elif len(rows) or len(plan.results) == 1:
            whole.append((rows, cell_of(type_, iter(outputs[way]), None)))
    return Launched(size, whole, listed, np.flatnonzero(marked == GIVEN_UP), rounds)


def met(pieces: list[Piece]) -> list[Piece]:
    """What threads have returned in several launches, as one where that is alike."""
    pieces.sort(key=lambda piece: int(piece[0][0]))
    if len({likeness.alike([value]) for _, value in pieces}) != 1:
        return pieces
    values = [[value] for _, value in pieces]
    sizes = [len(rows) for rows, _ in pieces]
    (value,) = merging.merge(values, sizes, torch.device("cpu"))
    return [(np.concatenate([rows for rows, _ in pieces]), value)]


@dataclass(frozen=True, slots=True)
class Patience:
    """How many rounds a thread may take, None for any number; ``marks`` are of those given up."""

    marks: Tensor
    most: int | None

    def ends(self, row: int, fuel: int) -> bool:
        """Whether a thread that has taken all the fuel gives up."""
        if self.most is None or fuel < self.most:
            return False
        self.marks[row] = GIVEN_UP
        return True


def seeds_of(options: Options, threads: np.ndarray) -> Seeds | None:
    """Where threads of these indices begin to draw, if there is a seed."""
    if options.seed is None:
        return None
    indices = threads.astype(np.int64) + options.thread_offset
    return Seeds(key_of(options.seed), np.ascontiguousarray(indices))


def in_shares(
    launch: Launch, patience: Patience, take: Take | None, most: int, size: int, workers: int
) -> int:
    """All rows, by some host threads, several shares each since some rows take longer."""
    stopped = Event()
    if workers < 2:
        return ranged(launch, patience, take, stopped, most, 0, size)
    ends = np.linspace(0, size, SHARES * workers + 1, dtype=np.int64).tolist()
    with ThreadPoolExecutor(workers) as pool:
        try:
            each = partial(ranged, launch, patience, take, stopped, most)
            return sum(pool.map(each, ends[:-1], ends[1:]))
        finally:
            stopped.set()  # where this thread is interrupted, the others end with their fuel


def ranged(
    launch: Launch,
    patience: Patience,
    take: Take | None,
    stopped: Event,
    most: int,
    begin: int,
    end: int,
) -> int:
    """The rows of a range, with ``most`` fuel in a launch.

    One that takes more than all the fuel begins again with twice that.
    """
    fuel, rounds = most, 0
    while begin < end and not stopped.is_set():
        reached, left, heap = launch(begin, end, fuel)
        rounds += fuel - left
        if take is not None:
            take(begin, reached, heap)
        if reached == begin and patience.ends(begin, fuel):
            fuel, reached = most, begin + 1
        elif reached == begin:
            fuel *= 2
        begin = reached
    return rounds
