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
from autobatch.compiled.types import Array, Number, Scalar, Static, Structure, Type, refuse
from autobatch.compiled.writer import GIVEN_UP, mark_of
from autobatch.options import Options
from autobatch.random.paths import key_of
from autobatch.values.cells import NUMBER_DTYPES, Cell, Column, Container, uniform
from autobatch.values.heap import selecting

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

Launch = Callable[[int, int, int], tuple[int, int]]
"""Rows ``begin`` to ``end`` with some fuel; the row that is next, and the fuel that is left."""


@dataclass(frozen=True, slots=True)
class Launched:
    """``values`` are the results, of each type that the program returns, with a row for each
    thread; ``rows`` are the threads that have returned it, only theirs hold something. Those of
    ``rest`` have given up.

    ``rounds`` counts the rounds of loops and the calls of recursive functions.
    """

    values: list[Cell]
    rows: list[np.ndarray]
    rest: np.ndarray
    rounds: int

    def parts(self) -> list[tuple[np.ndarray, Cell]]:
        """The threads that have returned something, and what, with a row for each of the batch."""
        return list(zip(self.rows, self.values, strict=True))

    def pieces(self) -> list[tuple[np.ndarray, Cell]]:
        """The same, with a row for each of these threads."""
        return [(rows, selecting.select([value], rows)[0]) for rows, value in self.parts()]


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
    outputs: list[Tensor] = []
    values = [result_of(type_, size, outputs) for type_ in plan.results]
    marks = allocated(size, torch.uint8).zero_()
    deepest = min(MOST_DEPTH, STACK // max(plan.kernel.frame, 1))
    deepest = deepest if depth is None else min(depth, deepest)
    launch = partial(plan.kernel.run, inputs, outputs, marks, deepest, seeds)
    patience = Patience(marks, most)
    fuel = FUEL if not plan.kernel.frame else FUEL_OF_ARRAYS
    workers = min(torch.get_num_threads(), size // LEAST_SHARE)
    rounds = in_shares(launch, patience, fuel, size, workers)
    marked = marks.numpy()
    ways = [np.flatnonzero(marked == mark_of(way)) for way in range(len(values))]
    came = [way for way, rows in enumerate(ways) if len(rows)] or [0]
    return Launched(
        [values[way] for way in came],
        [ways[way] for way in came],
        np.flatnonzero(marked == GIVEN_UP),
        rounds,
    )


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


def in_shares(launch: Launch, patience: Patience, most: int, size: int, workers: int) -> int:
    """All rows, by some host threads, several shares each since some rows take longer."""
    stopped = Event()
    if workers < 2:
        return ranged(launch, patience, stopped, most, 0, size)
    ends = np.linspace(0, size, SHARES * workers + 1, dtype=np.int64).tolist()
    with ThreadPoolExecutor(workers) as pool:
        try:
            each = partial(ranged, launch, patience, stopped, most)
            return sum(pool.map(each, ends[:-1], ends[1:]))
        finally:
            stopped.set()  # where this thread is interrupted, the others end with their fuel


def ranged(
    launch: Launch, patience: Patience, stopped: Event, most: int, begin: int, end: int
) -> int:
    """The rows of a range, with ``most`` fuel in a launch.

    One that takes more than all the fuel begins again with twice that.
    """
    fuel, rounds = most, 0
    while begin < end and not stopped.is_set():
        reached, left = launch(begin, end, fuel)
        rounds += fuel - left
        if reached == begin and patience.ends(begin, fuel):
            fuel, reached = most, begin + 1
        elif reached == begin:
            fuel *= 2
        begin = reached
    return rounds


def result_of(type_: Type, size: int, outputs: list[Tensor]) -> Cell:
    """The cell of a result, its columns added to the outputs."""
    match type_:
        case Number(tag):
            outputs.append(allocated(size, NUMBER_DTYPES[tag]))
            return Cell(Column(outputs[-1], tag))
        case Scalar(dtype):
            outputs.append(allocated(size, dtype))
            return Cell(Column(outputs[-1]))
        case Array(dtype, shape):
            outputs.append(allocated((size, *shape), dtype))
            return Cell(Column(outputs[-1]))
        case Structure(kind, parts, keys):
            cells = [result_of(part, size, outputs) for part in parts]
            named = dict(zip(keys, cells, strict=True)) if kind is dict else cells
            return Cell(Container(kind, named))
        case Static(obj):
            return uniform(obj, shared=True)
        case _:
            raise AssertionError(f"a plan returns {type_}")


def allocated(size: int | tuple[int, ...], dtype: torch.dtype) -> Tensor:
    made = torch.empty(size, dtype=dtype, device="cpu")
    return made if type(made) is Tensor else refuse("a mode is on under which tensors are none")
