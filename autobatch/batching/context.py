"""What an operation needs to know of the group that it runs for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.contributions import Contributions
from autobatch.batching.escapes import (
    Checkpoint,
    Escape,
    Escaped,
    Snapshot,
    any_left,
    bind,
    ends_of,
)
from autobatch.batching.fallbacks import Policy
from autobatch.batching.foreign import Foreign
from autobatch.batching.generators import Generators, Given
from autobatch.batching.host.making import Static
from autobatch.batching.kinds import is_tensor
from autobatch.batching.lent import Lent
from autobatch.compat import on_host, on_one_device
from autobatch.explaining.kinds import operand
from autobatch.ir.program import Op
from autobatch.random.alike import Alike
from autobatch.random.paths import Paths
from autobatch.random.sources import Threads
from autobatch.source import Span
from autobatch.values.cells import METHOD, Cell, Column, Container, read


class Due(Exception):
    """What is to run now needs what forked calls give, or may change what they were noted with.

    They run before it.
    """


class RowsFail(Exception):
    """The operation fails for the thread at ``row``, and for no thread of a lower index.

    ``partial`` is the result for the threads below it, in row order, where the operation had
    effects and must not run again for them; ``parts`` the same where it gives several. ``kept`` are
    their rows, where that is known. ``span`` is where it fails, if not at the operation that is at
    work.
    """

    def __init__(
        self,
        row: int,
        error: BaseException,
        partial: Cell | None = None,
        span: Span | None = None,
        kept: np.ndarray | None = None,
    ) -> None:
        super().__init__(row, error)
        self.row = row
        self.error = error
        self.partial = partial
        self.parts: tuple[Cell, ...] | None = None
        self.span = span
        self.kept = kept


class Irrevocable(BaseException):
    """An operation that runs ahead is about to do what cannot be taken back."""


class Counter(Protocol):
    """Where the counts of a run go (``vm.listeners.Counts``)."""

    def host_read(self, reason: str) -> None: ...
    def fallback(
        self, span: Span | None, what: str, why: str, meant: Callable[[], bool]
    ) -> None: ...
    def one_by_one(self) -> None: ...
    def launch(self, number: int = 1) -> None: ...
    def trace(self, seconds: float) -> None: ...
    def cold(self) -> None: ...
    def waits(self, operations: int) -> None: ...
    @property
    def listens(self) -> bool:
        """Whether anyone is told of what it counts."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Check:
    """Rows in which ``evaluate(row)`` raises, found by a kernel and not yet seen by the host.

    What it raises is the thread's exception, or ``RowsFail`` that says where it arose too.
    ``operands`` are those of the operation, for the note. ``inside`` is a column of ints and a
    size: where each of them is an index into that many, no row fails.
    """

    failed: Tensor
    evaluate: Callable[[int], Any]
    span: Span | None = None
    operands: tuple[Cell, ...] = ()
    inside: tuple[Column, int] | None = None


class Handing(Protocol):
    """What keeps functions that host code calls from writing what existed before the call.

    ``span`` is the operation at work.
    """

    span: Span | None

    def twin(self, item: Any) -> Any:
        """What host code is given in the place of ``item``."""

    def refuse(self, callee: Any, receiver: object = None) -> None:
        """Raise where a function can be seen to write it."""

    def refuse_generator(self, function: FunctionType, given: Given) -> None:
        """Raise where a function that yields may do what others see, or what it is given."""

    def lasting(self, static: Static) -> Collection[str]:
        """The captured variables of a function that hold one of the program's, and no other."""

    def within(self, static: Static) -> Hashable:
        """A function of the program's, as it is known to what looks into it."""

    def runner(self) -> Callable[..., Any]:
        """Runs a program's function that Python calls."""


@dataclass(frozen=True, slots=True)
class Services:
    """What a run lends to all its block executions.

    ``invoke`` runs a program function for the group within an operation, ``inline`` one of a
    single block, in this very context, while a stretch is recorded; ``closure`` makes Python
    callables of a program's function, each of what a thread has captured, and ``is_pure`` says
    whether calls of that have no effects;
    ``has_effects`` says whether a method of an object that Python calls by itself may have some;
    ``foreign`` knows the objects that existed before the call, ``lent`` those whose memory tensors
    stand for as well.
    ``isolate`` is whether the threads that fail leave one by one; ``thread_offset`` is what a
    thread's index is short of that by which it draws; ``shows`` is told of visible
    effects; ``operated`` is told what the operands were of an operation that has failed; within
    ``moving`` rows keep their gradients, whatever mode the program is in. ``contributions`` takes
    what is written to tensors that all threads share, None where nothing may be;
    ``tensor_written`` is told before any other tensor is, and where. ``blind`` says whether the
    program cannot tell two names for one tensor from two tensors. ``handing`` is None while a
    stretch is recorded. ``alike`` says where each thread draws whose draws are to be the same;
    ``generators`` are those that are to come to their end.
    """

    device: torch.device
    counter: Counter
    randomness: str
    invoke: Callable[..., Cell]
    closure: Callable[[Any], Callable[[tuple[Any, ...]], Any]]
    inline: Callable[[Context, Any, list[Cell], dict[str, Cell]], Cell]
    is_pure: Callable[[Any], bool]
    has_effects: Callable[[FunctionType, Any], bool]
    foreign: Foreign = field(default_factory=Foreign)
    isolate: bool = False
    thread_offset: int = 0
    shows: Callable[[], None] = lambda: None
    moving: Callable[[], AbstractContextManager[None]] = nullcontext
    contributions: Contributions | None = None
    tensor_written: Callable[[Span | None], None] = lambda span: None
    operated: Callable[[BaseException, tuple[str, ...]], None] = lambda error, operands: None
    blind: Callable[[], bool] = lambda: False
    handing: Handing | None = None
    alike: Alike | None = None
    lent: Lent = field(default_factory=Lent)
    generators: Generators = field(default_factory=Generators)


class Context:
    """One block execution: ``k`` rows, ``threads[i]`` the thread index of row ``i``.

    Within a fork-join call a thread may have several rows. ``checks`` collects what the next
    host read must look at, in program order, at once where ``eager``: a manager's ``__exit__``
    is to see them; ``span`` is the operation at work; ``forecasts`` collects the operations on
    numbers while a stretch is recorded; ``policy`` is what to do about fallbacks, if anything;
    ``guard`` is called before a visible effect.

    ``after`` gives the variables that are read after an operation.
    ``escapes`` are results that may not fit, to be seen too, and ``checkpoint`` is how things were
    before the first of them, ``at`` the operation at work with its variables, ``before`` how these
    were each time that it was to change some. Where ``careful`` or
    ``eager``, or where no operation of a block is at work, such a result is looked at once.

    ``lost`` are the threads that have failed and are to leave after the operation at work, which
    goes on with other threads' values in their rows; None where a failure ends the operation. Where
    it runs ``ahead``, nothing may happen that cannot be taken back (``Irrevocable``). They
    go by ``keys``: their thread indices, or their rows in the frame where each goes to a handler.
    What an operation that fails has done ``stays`` done where the exception is caught: else it is
    taken back.
    ``paths`` are where the rows draw, None where they do from torch's own generator.
    ``contributions`` are those of the call, ``begins`` tells the operations that begin an update
    of what is then written (``passes.updates``).
    """

    __slots__ = (
        *("after", "ahead", "assumed", "at", "before", "begins", "careful", "checkpoint", "checks"),
        *("closure", "contributions"),
        *("counter", "device", "eager", "escapes", "forecasts", "foreign", "guard"),
        *("has_effects", "inline", "invoke", "is_pure", "k", "keys", "lost", "paths"),
        *("policy", "randomness", "services", "span", "stays", "threads", "twins"),
    )

    def __init__(
        self,
        services: Services,
        threads: np.ndarray,
        checks: list[Check] | None = None,
        policy: Policy | None = None,
        guard: Callable[[bool], None] | None = None,
        paths: Paths | None = None,
    ) -> None:
        self.paths = paths
        self.services = services
        self.device = services.device
        self.counter = services.counter
        self.randomness = services.randomness
        self.invoke = services.invoke
        self.closure = services.closure
        self.inline = services.inline
        self.is_pure = services.is_pure
        self.has_effects = services.has_effects
        self.foreign = services.foreign
        self.contributions = services.contributions
        self.begins: Callable[[Op], bool] | None = None
        self.k = len(threads)
        self.threads = self.keys = threads
        self.checks: list[Check] = [] if checks is None else checks
        self.policy = policy
        self.guard = guard
        self.span: Span | None = None
        self.eager = self.ahead = self.stays = False
        self.forecasts: list[Any] | None = None
        self.assumed: list[tuple[Callable[[], Any], Any]] = []
        self.twins: dict[int, Any] = {}
        self.escapes: list[Escape] = []
        self.checkpoint: Checkpoint | None = None
        self.careful = False
        self.at: tuple[Op, dict[str, Cell]] | None = None
        self.before: tuple[Snapshot, ...] = ()
        self.lost: Lost | None = {} if services.isolate else None
        self.after: Callable[[Op], frozenset[str]] | None = None

    def live(self) -> list[Cell] | None:
        """The variables that are still to be read after the operation at work, if known."""
        if self.at is None or self.after is None:
            return None
        op, env = self.at
        return [env[name] for name in self.after(op) if name in env]

    def lose(self, row: int, error: BaseException, span: Span | None = None) -> None:
        """The thread of a row fails: noted where threads leave one by one, else ``RowsFail``."""
        if self.lost is None:
            raise RowsFail(row, error, span=span) from error
        self.lost.setdefault(int(self.keys[row]), (error, span or self.span))

    def leave(self) -> None:
        """Let lost threads leave before the operation goes on, which then begins once more."""
        if self.lost:
            for row, key in enumerate(self.keys.tolist()):
                if key in self.lost:
                    raise RowsFail(row, self.lost[key][0])

    def check(
        self,
        failed: Tensor,
        evaluate: Callable[[int], Any],
        inside: tuple[Column, int] | None = None,
    ) -> None:
        """Note rows that fail, for the next host read to look at."""
        self.checks.append(Check(failed, evaluate, self.span, self.operands(), inside))
        if self.eager:
            self.flush()

    def operands(self) -> tuple[Cell, ...]:
        """Those of the operation at work."""
        return () if self.at is None else operands_of(*self.at)

    def tell(self, error: BaseException, cells: Iterable[Cell], row: int | None) -> None:
        """Say on what operands an error has arisen, unless that is known."""
        self.services.operated(error, tuple(operand(read(cell), row) for cell in cells))

    def order(self) -> list[int]:
        """Rows in the order of their threads, lowest first."""
        if self.k and (self.threads[1:] >= self.threads[:-1]).all():
            return list(range(self.k))
        return np.argsort(self.threads, kind="stable").tolist()  # type: ignore[no-any-return]

    def lowest(self) -> int:
        return int(np.argmin(self.threads)) if self.k else 0

    @property
    def may_look_later(self) -> bool:
        """Whether a result that may not fit can be seen later, and taken back then."""
        if self.careful or self.eager:
            return False
        return self.forecasts is not None or self.at is not None

    def note_escape(self, escape: Escape) -> None:
        """Note a result that may not fit, for the next host read to look at."""
        self.escapes.append(escape)
        if self.forecasts is None and self.checkpoint is None:
            assert self.at is not None
            self.checkpoint = Checkpoint(*self.at, len(self.checks))
            if self.before:
                self.checkpoint.snapshot = self.before[0]

    def begin(self, op: Op, env: dict[str, Cell]) -> None:
        """An operation of a block is at work from now on."""
        self.at, self.before = (op, env), ()

    def about_to_change(self, cell: Cell) -> None:
        """The operation at work is to change a cell that it reads, before it notes any escape."""
        self.before += (Snapshot({"": cell} if self.at is None else self.at[1]),)

    def put_back(self, since: int) -> None:
        """The operation at work goes on as if it had changed nothing since so many changes."""
        for snapshot in reversed(self.before[since:]):
            snapshot.put_back()

    def settle(self) -> None:
        """See the pending escapes now; ``Escaped`` if a row has left."""
        if self.checkpoint is None:
            return
        columns = [column for escape in self.escapes for column in escape.columns]
        self.counter.host_read("overflow")
        parts = on_one_device([any_left(self.escapes), *ends_of(columns)])
        left, *ends = on_host(torch.cat(parts)).tolist()
        self.take_in(bool(left))
        bind(columns, ends)

    def take_in(self, left: bool) -> None:
        """The pending escapes have been seen; ``Escaped`` if a row has left."""
        checkpoint = self.checkpoint
        self.escapes, self.checkpoint = [], None
        if left and checkpoint is not None:
            self.careful = True
            del self.checks[checkpoint.checks :]
            raise Escaped(checkpoint)

    def host(self, data: Tensor, reason: str) -> Any:
        """``data`` as nested lists: the one way by which device data reaches the host."""
        self.settle()
        self.counter.host_read(reason)
        return on_host(data).tolist()

    def restricted(self, rows: list[int]) -> Context:
        """The same for some of the rows, with checks of its own."""
        part = copy(self)
        part.k, part.checks, part.careful = len(rows), [], True
        part.escapes, part.checkpoint, part.at, part.before = [], None, None, ()
        part.threads, part.keys = self.threads[rows], self.keys[rows]
        if self.paths is not None:
            part.paths = self.paths.taken(np.array(rows, dtype=np.int64))
        return part

    def source(self) -> Threads | None:
        """Where the threads' random numbers come from; None for torch's own generator."""
        if self.paths is None:
            return None
        offset = self.services.thread_offset
        return Threads(self.paths, self.threads + offset if offset else self.threads)

    def visible(self, writes: bool) -> None:
        """What comes next has an effect that others can see, on its arguments if it ``writes``."""
        self.flush()
        if self.guard is not None:
            self.guard(writes)
        self.services.shows()

    def flush(self) -> None:
        """See the pending checks now: before a visible effect, or where rows are renumbered."""
        if self.ahead:
            raise Irrevocable
        self.settle()
        if not self.checks:
            return
        self.counter.host_read("check")
        if len(self.checks) == 1:
            masks = on_host(self.checks[0].failed)[None]
        else:
            failed = on_one_device([check.failed for check in self.checks])
            masks = on_host(torch.stack(failed))
        self.judge(masks)

    def judge(self, masks: np.ndarray) -> None:
        """Raise the failure of the lowest thread, its first in program order, if there is one.

        Where threads leave one by one, that of every other thread is noted too. ``masks`` say of
        each check, ``[checks, k]``, which rows fail.
        """
        checks, self.checks = self.checks, []
        if not masks.any():
            return
        failing = np.flatnonzero(masks.any(0)).tolist()
        first: RowsFail | None = None
        for row in sorted(failing, key=lambda row: int(self.threads[row])):
            failed = masks[:, row].tolist()
            pending = [check for check, fails in zip(checks, failed, strict=True) if fails]
            failure = self.first_failure(pending, row)
            if failure is not None:
                self.lose(row, failure.error, failure.span)
                first = first or failure
        if first is not None:
            raise first from first.error

    def first_failure(self, checks: Sequence[Check], row: int) -> RowsFail | None:
        """The first of a row's checks that it does fail, in program order."""
        for check in checks:
            try:
                check.evaluate(row)
            except RowsFail as failure:
                self.tell(failure.error, check.operands, None)
                return RowsFail(row, failure.error, span=failure.span)
            except Exception as error:
                self.tell(error, check.operands, None)
                return RowsFail(row, error, span=check.span)
        return None


def operands_of(op: Op, env: Mapping[str, Cell]) -> tuple[Cell, ...]:
    """The operands of an operation; of a call its arguments, and a tensor whose method it is."""
    cells = [env[name] for name in op.args if name in env]
    if op.does not in ("call", "fork"):
        return tuple(cells)
    callee = read(cells[0]) if cells else None
    bound = type(callee) is Container and callee.type is METHOD
    receiver = [cell for cell in callee.children() if is_tensor(read(cell))] if bound else []  # type: ignore[union-attr]
    return (*receiver, *cells[1:])


Lost = dict[int, tuple[BaseException, Span | None]]
"""What each of some threads has failed with, and where, by their keys."""

Handler = Callable[[Context, list[Cell], dict[str, Cell]], Cell | None]
"""A call with a batched meaning: its result, or None where it has none for these operands."""
