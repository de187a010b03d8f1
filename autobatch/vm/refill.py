"""Refill: an engine's outermost frame, kept full of threads that come one after the other.

In: admissions, the arguments of some new threads as the cells of a group. Out: groups that have
returned, whose rows are free for others again. The frame has as many rows as threads may be in
flight; ``threads[row]`` is the input index of a row's thread, ``NOBODY`` of a free one. A new
group waits at the function's first block like any other and coalesces by itself; ``stages`` says
what runs next. Where a name has come to mean another function, and the one that it meant is
inlined, what is in flight finishes as it began before others enter. Once a thread has failed no
more are to be admitted; those below it finish (``failing``). Where threads are isolated, one that
has failed makes room as one that has returned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
import torch

from autobatch.batching.calling import resolving
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.foreign import Foreign
from autobatch.presence.record import Record, presence
from autobatch.random.paths import Paths
from autobatch.saving.savers import saving
from autobatch.transforms.parts import tensors
from autobatch.values.cells import Cell
from autobatch.values.layouts import seen
from autobatch.vm import invariants
from autobatch.vm.calling import Returned
from autobatch.vm.entering import Entry, entered
from autobatch.vm.failing import Errors
from autobatch.vm.groups import Group
from autobatch.vm.stackless import Machine
from autobatch.vm.stages import Stages
from autobatch.vm.state import NOBODY, Frame

GENERATION = 8
"""After how many times the width of new threads what they brought along is kept apart."""


@dataclass(slots=True, eq=False, repr=False)
class Refill:
    """``function`` runs for ``threads``, the frame's; ``enough`` of them at its tail let that run.

    ``recursive``: the function calls itself, as far as that is seen. ``inside``: calls wait in the
    queue themselves, and no function has called itself, so that they have stages like its own
    loops. ``inlines``: what it calls is inlined, as long as that stays what it is; ``later`` are
    groups that enter when all that is in flight has left. ``record`` is that of all of the stream's
    gradients.
    """

    machine: Machine
    function: Callable[..., Any]
    threads: np.ndarray
    enough: int
    recursive: bool
    inside: bool
    inlines: bool = False
    later: list[tuple[np.ndarray, Entry]] = field(default_factory=list)
    frame: Frame | None = None
    stages: Stages | None = None
    watch: invariants.Watch | None = None
    foreign: Foreign = field(default_factory=Foreign)
    began: int = 0
    first: Any = None
    record: Record = field(default_factory=Record)
    paths: Paths | None = field(init=False)

    def __post_init__(self) -> None:
        self.machine.lend(self.foreign)
        self.paths = self.machine.state.settings.paths(len(self.threads))

    @property
    def room(self) -> int:
        """How many threads can be admitted."""
        waiting = sum(len(threads) for threads, _ in self.later)
        return int((self.threads == NOBODY).sum()) - waiting

    @property
    def is_busy(self) -> bool:
        return bool(self.stages) or bool(self.later) or self.has_lost

    @property
    def failure(self) -> BaseException | None:
        """What the stream is to raise, if anything."""
        failures = self.machine.failures
        return None if failures.isolate else failures.failure

    @property
    def has_lost(self) -> bool:
        """Whether threads have failed whose failures are to be handed out."""
        failures = self.machine.failures
        return failures.isolate and bool(failures.errors)

    def admit(self, args: list[Cell], kwargs: dict[str, Cell], threads: np.ndarray) -> None:
        """Let new threads, with indices above all others', enter the function."""
        state = self.machine.state
        self.lend([*args, *kwargs.values()], threads)
        if torch.is_grad_enabled():
            self.record.get(tensors([*args, *kwargs.values()]))
        rows = self.taken_by(threads)
        if self.frame is not None:
            self.frame.span = None
        context = Context(state.services, threads, policy=state.policy)
        target = resolving.resolve_object(self.function, args, kwargs)
        try:
            forking = self.machine.forking(context, self.paths)
            judgements = state.judgements and state.judgements.without_inlining()
            entry = entered(state.library, context, target, forking, judgements, self.inlines)
        except RowsFail as failure:
            self.machine.failures.never_begin(threads, failure)
            return
        if self.paths is not None:
            self.paths.begin(rows, state.settings.key)
        entry.paths = self.paths
        if self.later or (self.inlines and self.frame and entry.code is not self.frame.code):
            self.threads[rows] = NOBODY
            self.later.append((threads, entry))
        else:
            self.enter(rows, entry)

    def taken_by(self, threads: np.ndarray) -> np.ndarray:
        """Free rows, which are those of some threads from now on."""
        rows = np.flatnonzero(self.threads == NOBODY)[: len(threads)]
        self.threads[rows] = threads
        self.machine.state.steps.admit(rows)
        return rows

    def enter(self, rows: np.ndarray, entry: Entry) -> None:
        """Let a group begin, in the frame at work if there is one."""
        if self.frame is None:
            self.open(entry)
        assert self.stages is not None
        self.stages.add([(self.first, Group(rows, entry.env))])

    def anew(self) -> None:
        """All that was in flight has left: what has waited for that enters a frame of its own."""
        self.machine.failures.frames.clear()
        self.frame = self.stages = None
        later, self.later = self.later, []
        code = later[0][1].code
        for threads, entry in later:
            if entry.code is code and not self.later:
                self.enter(self.taken_by(threads), entry)
            else:
                self.later.append((threads, entry))

    def open(self, entry: Entry) -> None:
        """Begin the frame with the first group that enters it."""
        machine = self.machine
        frame = machine.opened(entry, self.threads)
        assert frame is not None  # the outermost is never too deep
        self.frame = frame
        frame.answers = False  # no results are to stack: which ``return`` gave them does not matter
        machine.failures.frames.append(frame)
        self.first = machine.first(frame)
        alike = frame.waiting
        self.stages = Stages(
            lambda at: machine.way_to(frame, at, self.inside),
            lambda: replace(alike, counters=[], places={}),
            self.enough,
            entry.code.blocks,
            self.recursive,
            calling=not self.inside,
        )
        frame.aside = self.stages.opened
        self.watch = invariants.watch(frame)

    def lend(self, cells: list[Cell], threads: np.ndarray) -> None:
        """Let the run know what new threads bring along, and forget what is no longer at work.

        That is by generations of threads: the last one is forgotten once all of it has finished.
        """
        mine = self.foreign
        mine.roots |= Foreign.of(cells).roots
        at_work = self.threads[self.threads != NOBODY]
        oldest = int(at_work.min()) if len(at_work) else int(threads[0])
        if mine.older is not None and oldest >= self.began:
            mine.older = None
        if mine.older is None and threads[0] - self.began >= GENERATION * len(self.threads):
            self.foreign = Foreign(older=mine)
            self.began = int(threads[-1]) + 1
        self.machine.lend(self.foreign)

    def advance(self, most: int | None = None) -> None:
        """Execute blocks until some threads have returned or failed, or none are left.

        At most so many, where that is said.
        """
        if self.later and not self.stages and not (self.frame and self.frame.returned):
            self.anew()
        frame, stages, watch = self.frame, self.stages, self.watch
        if frame is None or stages is None:
            return
        execute, steps = self.machine.execute, self.machine.state.steps
        end = inf if most is None else steps.taken + most
        state = self.machine.state
        with seen(state.sees_layouts), saving(state.saver), presence(record=self.record):
            while stages and not frame.returned and not self.has_lost and steps.taken < end:
                frame.waiting, at, group = stages.next()
                began, due = steps.taken, stages.due
                steps.pause = min(end, inf if due is None else began + due)
                if watch is not None:
                    watch.ahead(at, group)
                stages.add(execute(frame, at, group))
                stages.took(steps.taken - began)
                if self.inside and self.machine.has_recursed(frame):
                    self.inside = False
                    stages.anew()

    def take(self) -> list[tuple[np.ndarray, Returned]]:
        """The groups that have returned, and their threads, whose rows are free from now on."""
        if self.frame is None:
            return []
        pieces, self.frame.returned = self.frame.returned, []
        found = [(self.threads[piece.rows], piece) for piece in pieces if len(piece.rows)]
        for _, piece in found:
            self.threads[piece.rows] = NOBODY
        return found

    def lost(self) -> Errors:
        """The isolated threads that have failed, whose rows are free from now on."""
        if not self.has_lost:
            return {}
        errors = self.machine.failures.handed_out()
        rows = np.flatnonzero(np.isin(self.threads, list(errors)))
        self.threads[rows] = NOBODY
        if self.frame is not None:
            self.machine.free(self.frame, rows)
        return errors

    def close(self) -> None:
        """Drop what is in flight."""
        self.machine.failures.frames.clear()
        if self.frame is not None and self.stages is not None:
            self.stages.clear()
            self.frame.returned.clear()
        self.frame = self.stages = self.watch = None
        self.machine.lend(Foreign())
