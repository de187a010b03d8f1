"""A launch of a plan for a batch: the results of its threads, and which of them have given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event

import numpy as np
import torch
from torch import Tensor

from autobatch.compiled.plans import Plan
from autobatch.compiled.types import Number, Scalar, Static, Structure, Type, refuse
from autobatch.vm.values import NUMBER_DTYPES, Cell, Column, Container, uniform

FUEL = 2**27
"""Rounds of loops and calls in one launch, some tenths of a second: then the host looks around."""
MOST_DEPTH = 2000
"""How deep calls nest on the machine's own stack; deeper threads give up."""


LEAST_SHARE = 1024
"""Rows that are worth a host thread."""
SHARES = 4

Launch = Callable[[int, int, int], tuple[int, int]]
"""Rows ``begin`` to ``end`` with some fuel; the row that is next, and the fuel that is left."""


@dataclass(frozen=True, slots=True)
class Launched:
    """``value`` has a row for each thread; those of ``rest`` have given up, and hold nothing.

    ``rounds`` counts the rounds of loops and the calls of recursive functions.
    """

    value: Cell
    rest: np.ndarray
    rounds: int


def launched(
    plan: Plan, inputs: Sequence[Tensor], size: int, depth: int | None, most: int | None = None
) -> Launched:
    """Run all threads, in shares where torch has several host threads and there are many rows.

    A thread that takes more than ``most`` rounds gives up.
    """
    outputs: list[Tensor] = []
    value = result_of(plan.result, size, outputs)
    marks = allocated(size, torch.uint8).zero_()
    deepest = MOST_DEPTH if depth is None else min(depth, MOST_DEPTH)
    launch = partial(plan.kernel.run, inputs, outputs, marks, deepest)
    patience = Patience(marks, most)
    rounds = in_shares(launch, patience, size, min(torch.get_num_threads(), size // LEAST_SHARE))
    return Launched(value, np.flatnonzero(marks.numpy()), rounds)


@dataclass(frozen=True, slots=True)
class Patience:
    """How many rounds a thread may take, None for any number; ``marks`` are of those given up."""

    marks: Tensor
    most: int | None

    def ends(self, row: int, fuel: int) -> bool:
        """Whether a thread that has taken all the fuel gives up."""
        if self.most is None or fuel < self.most:
            return False
        self.marks[row] = 1
        return True


def in_shares(launch: Launch, patience: Patience, size: int, workers: int) -> int:
    """All rows, by some host threads, several shares each since some rows take longer."""
    stopped = Event()
    if workers < 2:
        return ranged(launch, patience, stopped, 0, size)
    ends = np.linspace(0, size, SHARES * workers + 1, dtype=np.int64).tolist()
    with ThreadPoolExecutor(workers) as pool:
        try:
            each = partial(ranged, launch, patience, stopped)
            return sum(pool.map(each, ends[:-1], ends[1:]))
        finally:
            stopped.set()  # where this thread is interrupted, the others end with their fuel


def ranged(launch: Launch, patience: Patience, stopped: Event, begin: int, end: int) -> int:
    """The rows of a range; one that takes more than all the fuel begins again with twice that."""
    fuel, rounds = FUEL, 0
    while begin < end and not stopped.is_set():
        reached, left = launch(begin, end, fuel)
        rounds += fuel - left
        if reached == begin and patience.ends(begin, fuel):
            fuel, reached = FUEL, begin + 1
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
        case Structure(kind, parts, keys):
            cells = [result_of(part, size, outputs) for part in parts]
            named = dict(zip(keys, cells, strict=True)) if kind is dict else cells
            return Cell(Container(kind, named))
        case Static(obj):
            return uniform(obj, shared=True)
        case _:
            raise AssertionError(f"a plan returns {type_}")


def allocated(size: int, dtype: torch.dtype) -> Tensor:
    made = torch.empty(size, dtype=dtype, device="cpu")
    return made if type(made) is Tensor else refuse("a mode is on under which tensors are none")


def filled(own: Cell, other: Cell, rows: np.ndarray) -> bool:
    """Whether what threads have returned elsewhere is like the results, and now among them."""
    pairs = list(matched(own, other))
    if not all(fits for fits, _, _ in pairs):
        return False
    index = torch.from_numpy(rows)
    for _, column, data in pairs:
        if column is not None and data is not None:
            column.data[index] = data
    return True


def matched(own: Cell, other: Cell) -> Iterator[tuple[bool, Column | None, Tensor | None]]:
    """The columns of a result, each with what belongs there; whether that is the like of it."""
    mine, theirs = own.value, other.value
    if isinstance(mine, Container):
        like = (
            isinstance(theirs, Container)
            and theirs.type is mine.type
            and len(theirs.cells) == len(mine.cells)
            and (not isinstance(mine.cells, dict) or list(mine.cells) == list(theirs.cells))
        )
        yield like, None, None
        if like and isinstance(theirs, Container):
            for one, another in zip(mine.children(), theirs.children(), strict=True):
                yield from matched(one, another)
    elif isinstance(mine, Column):
        data = likeness(mine, theirs)
        yield data is not None, mine, data
    else:
        yield getattr(theirs, "obj", None) is getattr(mine, "obj", mine), None, None


def likeness(mine: Column, theirs: object) -> Tensor | None:
    """The rows of a column of the same kind; None if it is of another."""
    if isinstance(theirs, Column) and theirs.tag == mine.tag:
        same = theirs.data.dtype is mine.data.dtype and theirs.data.dim() == 1
        return theirs.data if same else None
    obj = getattr(theirs, "obj", None)
    if mine.tag != "tensor" and type(obj).__name__ == mine.tag:
        return torch.tensor(obj, dtype=mine.data.dtype, device="cpu")
    if isinstance(obj, Tensor) and mine.tag == "tensor" and obj.dim() == 0:
        return obj if obj.dtype is mine.data.dtype else None
    return None
