"""One run of a program for a batch: what all its frames have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from autobatch.batching.context import Context, RowsFail, Services
from autobatch.batching.contributions import Contributions
from autobatch.batching.escapes import Snapshot
from autobatch.batching.fallbacks import Policy
from autobatch.batching.generators import Generators
from autobatch.batching.lent import Lent
from autobatch.batching.operations import Scope
from autobatch.batching.stretches import Work
from autobatch.errors import AutobatchError, Diagnostic
from autobatch.ir.program import Call, Function, Handler, Raise
from autobatch.listeners import Tally
from autobatch.presence.moves import keeping
from autobatch.random.paths import Ledger, Mark, Paths, key_of
from autobatch.saving.savers import Saver
from autobatch.source import Span
from autobatch.values.cells import Cell
from autobatch.vm.aliasing import Blindness
from autobatch.vm.asking import Seeing
from autobatch.vm.calling import Returned
from autobatch.vm.code import Code
from autobatch.vm.groups import Group
from autobatch.vm.judgements import Judgements
from autobatch.vm.library import Library
from autobatch.vm.observer import Observer
from autobatch.vm.queue import Waiting
from autobatch.vm.schedule import Schedule
from autobatch.vm.steps import Steps
from autobatch.vm.ways import Ways

NOBODY = -1
"""The thread index of a row that no thread has."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is to respect; see ``options.Options`` for their meaning."""

    device: torch.device
    batch: int
    randomness: str = "error"
    max_depth: int | None = None
    fork: bool = True
    max_width: int | None = None
    schedule: Schedule | None = None
    isolate: bool = False
    seed: int | None = None
    thread_offset: int = 0

    @property
    def key(self) -> int:
        """The key of the paths that threads begin with."""
        assert self.seed is not None
        return key_of(self.seed)

    def paths(self, rows: int) -> Paths | None:
        """Where threads begin to draw, if there is a seed."""
        return None if self.seed is None else Paths.over(Ledger.of(np.full(rows, self.key)))


@dataclass(frozen=True, slots=True)
class Leaving:
    """Threads that have failed, as they were then, and with what; None: for a caller's handler."""

    group: Group
    errors: list[BaseException]
    handler: Handler | None


class Stages(Protocol):
    """What a frame runs bottom up; see ``bottom_up``."""

    def next(self) -> list[tuple[int, Group]]: ...
    def elsewhere(self) -> list[np.ndarray]: ...


class Late(Protocol):
    """Groups that wait until nothing else is left to run; see ``late``."""

    callee: tuple[int, int]
    blocks: frozenset[int]
    above: Frame | None
    most: int
    parts: list[tuple[int, Group]]
    away: list[np.ndarray]
    is_due: bool
    alone: bool
    apart: bool
    stages: Stages | None

    def elsewhere(self) -> list[np.ndarray]: ...
    def put_aside(
        self, frame: Frame, parts: list[tuple[int, Group]]
    ) -> list[tuple[int, Group]]: ...
    def taken_up(self, frame: Frame) -> list[tuple[int, Group]]: ...
    def handed_back(self, returned: Sequence[Returned]) -> list[Returned]: ...


class Plainly(Protocol):
    """What runs parts of a program as plain Python, thread after thread; see ``alone.within``."""

    def run(
        self, engine: Any, frame: Frame, pc: int, group: Group
    ) -> list[tuple[int, Group]] | None: ...
    def call(
        self, engine: Any, frame: Frame, call: Call, group: Group
    ) -> list[tuple[int, Group]] | None: ...


class Gone(Protocol):
    """The threads that go on no more, since they or threads below them have failed."""

    def spares(self, threads: np.ndarray) -> np.ndarray:
        """Which of some threads go on, as bools."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Frame:
    """One call at work: its code, what it closes over, and the thread index of each row.

    Rows of threads that are ``gone`` are dropped, None as long as none is; a row of ``NOBODY`` is
    free (in a stream, see ``refill``). ``aside`` are all its queues, where there are several and
    ``waiting`` is the one at work; ``late`` are groups that wait for the frames of forked calls
    below it. ``span`` is what runs now, ``joining`` are the groups that have
    come to the end of a block with a join. ``answers`` says that what it returns is the result of
    the run, ``hands_on`` that the call at work gives that. ``paths`` are where its rows draw, if
    there is a seed; ``handled`` are the exceptions that are being handled where it is in a call.

    ``caught`` says that what threads fail with is for a handler of a caller's; ``handler`` is that
    of the block at work, which is ``exact`` where threads that fail are to leave with all as it was
    then: ``snapshot`` is how it was before the operation at work. ``leaving`` are those that do.
    """

    code: Code
    scope: Scope
    threads: np.ndarray
    waiting: Waiting[Any]
    depth: int
    returned: list[Returned] = field(default_factory=list)
    span: Span | None = None
    gone: Gone | None = None
    joining: list[Group] = field(default_factory=list)
    answers: bool = False
    hands_on: bool = False
    caught: bool = False
    handler: Handler | None = None
    exact: bool = False
    snapshot: Snapshot | None = None
    leaving: list[Leaving] = field(default_factory=list)
    aside: Sequence[Waiting[Any]] = ()
    late: Late | None = None
    paths: Paths | None = None
    handled: Cell | None = None

    @property
    def catches(self) -> bool:
        """Whether threads that fail in the block at work go on, in a handler."""
        return self.caught or self.handler is not None

    def drawn(self) -> Mark | None:
        """How often its threads have drawn, to go back to."""
        return None if self.paths is None else self.paths.ledger.mark()

    def redraw(self, before: Mark | None, error: Exception | None = None) -> None:
        """Take draws back: what made them is to run again, but for what a failure has finished."""
        if before is None or (isinstance(error, RowsFail) and error.partial is not None):
            return
        assert self.paths is not None
        self.paths.ledger.rewind(before)

    def calls(self, thread: int) -> list[Span]:
        """The places at work for a thread, outermost first, the last one being what runs now."""
        return [self.span] if self.span is not None else []

    def faults(self) -> Iterator[str]:
        """What is wrong with it apart from its queue, if anything; for the invariants."""
        return iter(())


@dataclass(slots=True, eq=False, repr=False)
class RunState:
    """``policy`` says what to do about fallbacks, ``raising`` is whether the block at work ends
    by raising; ``work`` is what makes stretches fast, None where each operation runs as it comes;
    ``guard`` is called before a visible effect, while fork-join calls run; ``inference`` is whether
    the run began in torch's inference mode; ``saver`` sees to what is saved for a backward, None:
    torch's own way; ``contributions`` are what the threads of the call write to tensors that all of
    them share. ``blind`` says whether its program cannot tell two names for one tensor from two
    tensors, ``seeing`` whether it can tell how they lie in memory; None before it has begun.
    """

    library: Library
    settings: Settings
    steps: Steps = field(default_factory=Steps)
    work: Work | None = None
    policy: Policy | None = None
    observer: Observer | None = None
    raising: bool = False
    guard: Callable[[bool], None] | None = None
    inference: bool = field(default_factory=torch.is_inference_mode_enabled)
    ways: Ways = field(default_factory=Ways)
    saver: Saver | None = None
    contributions: Contributions = field(default_factory=Contributions)
    blind: Blindness | None = None
    seeing: Seeing | None = None
    plainly: Plainly | None = None
    judgements: Judgements | None = field(init=False)
    tally: Tally = field(init=False)
    services: Services = field(init=False)
    lent: Lent = field(default_factory=Lent)
    generators: Generators = field(default_factory=Generators)

    def __post_init__(self) -> None:
        self.tally = self.steps.tally
        settings = self.settings
        lasting = not self.steps.listeners and settings.schedule is None
        inline = self.observer is None  # it is told of each function by itself
        self.judgements = Judgements(self.library, lasting, inline) if settings.fork else None

    def shows(self) -> None:
        """Code that nothing here sees into is about to run, or has: others see what it does."""
        self.tally.shown = True
        self.names_may_change()

    def names_may_change(self) -> None:
        """What was judged by what names mean may not hold any more."""
        if self.judgements is not None:
            self.judgements.forget()

    def is_blind(self) -> bool:
        """Whether the program cannot tell two names for one tensor from two tensors."""
        return self.blind is not None and self.blind()

    def sees_layouts(self) -> bool:
        """Whether the program can tell how a tensor lies in memory."""
        return self.seeing is None or self.seeing()

    def tensor_written(self, span: Span | None) -> None:
        """A tensor is about to be written: unseen, if the program is blind to aliases."""
        if self.blind is not None and self.blind.found and not self.blind.is_sole(span):
            raise AutobatchError(
                Diagnostic(
                    "A tensor is written by code that was taken to write none.",
                    hints=("Make a new tensor there instead: `x = x + y`, not `x += y`.",),
                )
            )

    def context(self, frame: Frame, group: Group) -> Context:
        """What the operations of one block execution need to know."""
        policy = None if self.raising else self.policy
        threads = frame.threads[group.rows]
        paths = None if frame.paths is None else frame.paths.taken(group.rows)
        context = Context(self.services, threads, group.checks, policy, self.guard, paths)
        context.after = partial(frame.code.alive, self.tally.block[1])
        context.begins = frame.code.begins
        if group.pending is not None:
            context.escapes = group.pending.escapes
            context.checkpoint = group.pending.checkpoint
            group.pending = None
        if frame.catches:
            context.lost, context.keys, context.eager = {}, group.rows, frame.exact
        return context

    def context_of(self, threads: np.ndarray, group: Group) -> Context:
        """What turning the rows of a group into objects needs to know; they draw nothing."""
        policy = None if self.raising else self.policy
        return Context(self.services, threads[group.rows], group.checks, policy, self.guard)

    def moving(self) -> AbstractContextManager[None]:
        """Rows that move keep their gradients, whatever the program's ``no_grad`` says."""
        if torch.is_inference_mode_enabled() is self.inference:
            return keeping()
        return self.as_it_began()

    @contextmanager
    def as_it_began(self) -> Iterator[None]:
        with torch.inference_mode(self.inference), keeping():
            yield

    def begin(self, frame: Frame, pc: int, group: Group) -> None:
        """Count a block execution."""
        self.steps.begin(frame.code.function, pc, group.k)
        if self.steps.own is not None:
            self.steps.take_part(frame.threads[group.rows])
        self.raising = type(frame.code.blocks[pc].terminator) is Raise
        if self.observer is not None:
            threads = frame.threads[group.rows]
            self.observer.block(frame.code.function, pc, threads, group.env)

    def kept_apart(self, function: Function, pc: int, first: Group, other: Group) -> None:
        """Tell of two groups at a block that are not alike."""
        if self.observer is not None:
            self.observer.apart(function, pc, first.env, other.env)
