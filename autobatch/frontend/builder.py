"""Lays out blocks: operations go to the open block, labels are placed in source order.

In: operations, terminators and ``place(label)`` calls as lowering walks the source.
Out: ``Block`` records in the order in which labels were placed, so that a loop's blocks precede
what follows the loop; the last one is the exit. Blocks that nothing reaches are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from autobatch.ir.program import Block, Handler, Jump, Label, Op, Terminator, Var
from autobatch.source import Span


@dataclass(frozen=True, slots=True)
class Around:
    """What the blocks of a place in the source run under."""

    modes: tuple[Var, ...] = ()
    handler: Handler | None = None


@dataclass(slots=True)
class _Draft:
    label: Label
    around: Around
    ops: list[Op] = field(default_factory=list)
    terminator: Terminator | None = None

    def block(self) -> Block:
        assert self.terminator is not None
        return Block(tuple(self.ops), self.terminator, self.around.modes, self.around.handler)


class Builder:
    """The blocks of one function while they are being made; there is always an open block."""

    def __init__(self) -> None:
        self._labels = 0
        self.around = Around()
        self._drafts = [_Draft(self.label(), self.around)]

    def label(self) -> Label:
        """A new label, to be placed later."""
        self._labels += 1
        return self._labels - 1

    def place(self, label: Label, span: Span) -> None:
        """Opens the block ``label``; the open block, unless it has ended, goes on there."""
        if self._drafts[-1].terminator is None:
            self.end(Jump(label, span))
        self._drafts.append(_Draft(label, self.around))

    def emit(self, op: Op) -> None:
        self._open().ops.append(op)

    def end(self, terminator: Terminator) -> None:
        """Ends the open block. What comes before the next label is never reached."""
        self._open().terminator = terminator

    def _open(self) -> _Draft:
        if self._drafts[-1].terminator is not None:
            self._drafts.append(_Draft(self.label(), self.around))
        return self._drafts[-1]

    @contextmanager
    def within(self, around: Around) -> Iterator[None]:
        """Blocks that are opened within run under ``around``, and nothing else."""
        outer, self.around = self.around, around
        yield
        self.around = outer

    @contextmanager
    def modes(self, mode: Var) -> Iterator[None]:
        """Blocks that are opened within run under ``mode`` also."""
        around = self.around
        with self.within(replace(around, modes=(*around.modes, mode))):
            yield

    @contextmanager
    def handled(self, handler: Handler) -> Iterator[None]:
        """Exceptions of the blocks that are opened within go to ``handler``."""
        with self.within(replace(self.around, handler=handler)):
            yield

    def finish(self) -> tuple[Block, ...]:
        """The blocks that are reached, and the exit, with indices for labels."""
        drafts = {draft.label: draft.block() for draft in self._drafts}
        exit_label = self._drafts[-1].label
        reached = _reachable(drafts, self._drafts[0].label) | {exit_label}
        kept = [draft.label for draft in self._drafts if draft.label in reached]
        index = {label: place for place, label in enumerate(kept)}
        return tuple(drafts[label].retargeted(index) for label in kept)

    def is_reached(self) -> bool:
        """Whether any path leads to the end of the open block."""
        if self._drafts[-1].terminator is not None:
            return False
        drafts = {d.label: d.block() for d in self._drafts if d.terminator is not None}
        return self._drafts[-1].label in _reachable(drafts, self._drafts[0].label)


def _reachable(blocks: dict[Label, Block], entry: Label) -> set[Label]:
    found: set[Label] = set()
    pending = [entry]
    while pending:
        label = pending.pop()
        if label not in found:
            found.add(label)
            pending.extend(blocks[label].successors() if label in blocks else ())
    return found
