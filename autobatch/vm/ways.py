"""Where results come from: the ``return`` behind each row, for errors that must name it.

Every ``return`` of a function jumps to its one exit. A group that comes there is marked with the
block that it came from, all rows by one number; rows are told apart only once groups coalesce, so
that a run pays for it once. A call in the place of the run's result (``return f(x)``) hands on
the marks of what it called, also out of a ``with`` of torch's modes; what other calls return has
none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from autobatch.ir.dataflow import assigned_at, outs, predecessors
from autobatch.ir.program import Call, Function, Join, Jump, Label, Return
from autobatch.source import Span

Marks = int | np.ndarray | None
"""For the rows of a group: the number of their way, one for each row, or not known."""
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Way:
    """The way to a function's exit from the block ``label``; the exit itself if no other leads."""

    function: Function
    label: Label

    def spans(self) -> tuple[Span, ...]:
        """The expressions that may have made the result; more than one only if ways have met."""
        blocks = self.function.blocks
        end = blocks[-1].terminator
        assert isinstance(end, Return)
        here = any(end.value in op.outs for op in blocks[-1].ops)
        label = len(blocks) - 1 if here else self.label
        return assigned_at(blocks, label, end.value) or (end.span,)


def is_tail(function: Function, call: Call) -> bool:
    """Whether what ``call`` returns is what ``function`` returns.

    Managers may be left between (``with m: return f(x)``), in blocks that nothing else leads to:
    there all rows have marks, or none.
    """
    blocks = function.blocks
    end, label = blocks[-1], call.target
    if end.ops or not isinstance(end.terminator, Return) or end.terminator.value != call.out:
        return False
    if label == len(blocks) - 1:
        return True
    comes_from = predecessors(blocks)
    while label != len(blocks) - 1:
        block = blocks[label]
        records = (*block.ops, block.terminator)
        if len(comes_from[label]) > 1 or any(call.out in outs(record) for record in records):
            return False
        if not isinstance(block.terminator, Jump | Call):
            return False
        label = block.terminator.target
    return True


def is_end(function: Function, label: Label) -> bool:
    """Whether a block is the exit, or a join that has only the exit ahead of it."""
    block = function.blocks[label]
    while isinstance(block.terminator, Join) and not block.ops:
        label = block.terminator.target
        block = function.blocks[label]
    return label == len(function.blocks) - 1


class Marked(Protocol):
    """Rows that carry marks: a group."""

    ways: Marks


Arriving = TypeVar("Arriving", bound=Iterable[tuple[Label, Marked]])


@dataclass(slots=True, eq=False, repr=False)
class Ways:
    """The ways of a run, numbered as they are first met."""

    known: list[Way] = field(default_factory=list)
    numbers: dict[tuple[int, Label], int] = field(default_factory=dict)

    def number(self, function: Function, label: Label) -> int:
        key = (id(function), label)
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.known)
            self.known.append(Way(function, label))
        return found

    def mark(self, function: Function, label: Label, parts: Arriving) -> Arriving:
        """Mark the groups that go from a block to the exit, but for those that a call has."""
        for target, part in parts:
            if part.ways is None and is_end(function, target):
                part.ways = self.number(function, label)
        return parts

    def spans(self, marks: Marks, row: int) -> tuple[Span, ...]:
        """Where the result of a row may come from; none where that is not known."""
        number = marks if isinstance(marks, int) else UNKNOWN if marks is None else int(marks[row])
        return () if number == UNKNOWN else self.known[number].spans()


def picked(marks: Marks, positions: np.ndarray) -> Marks:
    """The marks of some rows."""
    return marks[positions] if isinstance(marks, np.ndarray) else marks


def joined(marks: Sequence[Marks], sizes: Sequence[int]) -> Marks:
    """The marks of several groups' rows, one group after the other; all have some, or none."""
    first = marks[0]
    if all(not isinstance(mark, np.ndarray) and mark == first for mark in marks):
        return first
    return np.concatenate([rowwise(mark, size) for mark, size in zip(marks, sizes, strict=True)])


def rowwise(marks: Marks, size: int) -> np.ndarray:
    return marks if isinstance(marks, np.ndarray) else np.full(size, marks)
