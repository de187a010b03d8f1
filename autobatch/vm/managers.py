"""Managers that are entered once for each thread: how they are left, and what is refused.

In: what ``modes`` has entered, for the rows of one block execution. ``__exit__`` gets the failure
of the thread that fails, and nothing for the others; one that swallows it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autobatch.batching.context import Context, RowsFail
from autobatch.batching.truths import truth
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.ir.program import Block
from autobatch.source import Span
from autobatch.vm import heap
from autobatch.vm.failing import Errors, Failures
from autobatch.vm.groups import Group
from autobatch.vm.state import Frame, RunState
from autobatch.vm.values import Cell, read, uniform

GIVEN = "%given"


@dataclass(slots=True, eq=False)
class Body:
    """A block at work within its managers: ``group`` and ``context`` are of the rows that are left.

    ``before`` are the run's failures on entry: others are of threads of this block. ``is_own``:
    it has managers that are entered once for each thread, so what follows within them runs now.
    """

    run: RunState
    failures: Failures
    frame: Frame
    block: Block
    group: Group
    context: Context
    before: Errors
    refused: bool = False
    is_own: bool = False
    stack: ExitStack = field(default_factory=ExitStack)

    def attempt(self, work: Callable[[], Cell | None]) -> Cell:
        """The result for the rows that are left, if some fail."""
        lost: RowsFail | None = None
        try:
            given = work() or uniform(None)
        except RowsFail as failure:
            lost, given = failure, failure.partial or uniform(None)
            if not self.context.lost and failure.partial is None:
                self.everyone(failure)
        if lost is None and not self.context.lost:
            return given
        if lost is None:
            self.group.env[GIVEN] = given
        self.group = self.failures.dropped(self.frame, self.group, self.context, lost)
        span = self.context.span
        self.context = self.run.context(self.frame, self.group)
        self.context.span = span
        self.context.eager = True
        return self.group.env.pop(GIVEN, given)

    def everyone(self, failure: RowsFail) -> None:
        """Where threads leave one by one, all rows fail alike."""
        if self.context.lost is not None:
            for row in self.context.order():
                self.context.lose(row, failure.error, failure.span)

    def failed(self) -> Errors:
        """The failures of the block's threads."""
        return self.failures.since(self.before)

    def failure(self) -> BaseException | None:
        """That of the lowest thread, if any fails."""
        found = self.failed()
        return found[min(found)] if found else None

    def replace(self, error: Exception, context: Context, row: int) -> None:
        """``__exit__`` raises: that is its thread's failure now."""
        thread = int(context.threads[row])
        if thread in self.failed():
            self.failures.errors = {**self.failures.errors, thread: error}
            self.failures.note(error, (thread,), None)
        else:
            self.failures.fail(thread, error)

    def judge(self, swallowed: bool) -> None:
        if swallowed and not self.refused:
            why = "its manager swallows the exception that the body raises"
            raise refused(self.block, why, "test with `if` before the operation that may fail")


@dataclass(slots=True, eq=False)
class Program:
    """A manager whose methods are lowered: they run for the group, the failing thread by itself."""

    body: Body
    name: str
    cell: Cell
    kind: type
    context: Context = field(init=False)

    def __post_init__(self) -> None:
        self.context = self.body.context

    def leave(self) -> None:
        body = self.body
        if body.refused:
            return
        if body.group.k:
            self.exit(body.context, body.group.env[self.name], (None, None, None))
        for thread, error in sorted(body.failed().items()):
            (rows,) = np.nonzero(self.context.threads == thread)
            if len(rows):
                self.leave_failed(rows[:1], error)

    def leave_failed(self, rows: np.ndarray, error: BaseException) -> None:
        """``__exit__`` for a thread that fails, which has left its frame."""
        body = self.body
        (cell,) = heap.select([self.cell], rows)
        part = self.context.restricted(rows.tolist())
        gone, body.frame.gone = body.frame.gone, None
        result = self.exit(part, cell, (type(error), error, error.__traceback__))
        swallowed = result is not None and bool(getattr(read(truth(part, result)), "obj", True))
        body.frame.gone = gone
        body.judge(swallowed)

    def exit(self, context: Context, cell: Cell, given: tuple[Any, ...]) -> Cell | None:
        cells = [cell, *(uniform(part, shared=True) for part in given)]
        try:
            return context.invoke(context, self.kind.__exit__, cells, {})  # type: ignore[attr-defined]
        except RowsFail as failure:
            self.body.replace(failure.error, context, failure.row)  # type: ignore[arg-type]
            return None


@dataclass(slots=True, eq=False)
class Once:
    """A manager that all threads share and that is no program: entered once for the group."""

    body: Body
    manager: Any

    def leave(self) -> None:
        error = self.body.failure()
        given = (None, None, None) if error is None else (type(error), error, error.__traceback__)
        swallowed = type(self.manager).__exit__(self.manager, *given)
        self.body.judge(error is not None and bool(swallowed))


@dataclass(slots=True, eq=False)
class Each:
    """A manager for each thread, left in the opposite order of entering."""

    body: Body
    context: Context
    entered: list[Any] = field(default_factory=list)

    def enter(self, manager: Any) -> Any:
        given = type(manager).__enter__(manager)
        self.entered.append(manager)
        return given

    def leave(self) -> None:
        """Leave all, whatever becomes of some."""
        pairs = list(zip(self.context.order(), self.entered, strict=False))
        failed = self.body.failed()
        swallowed = False
        for row, manager in reversed(pairs):
            given: tuple[Any, ...] = (None, None, None)
            error = failed.get(int(self.context.threads[row]))
            if error is not None:
                given = (type(error), error, error.__traceback__)
            try:
                kept = type(manager).__exit__(manager, *given)
            except Exception as raised:
                if raised is not error:
                    self.body.replace(raised, self.context, row)
            else:
                swallowed = swallowed or (given[0] is not None and bool(kept))
        self.body.judge(swallowed)


def span_of(block: Block) -> Span:
    return block.ops[0].span if block.ops else block.terminator.span


def refused(block: Block, why: str, hint: str = "") -> UnsupportedError:
    return UnsupportedError(
        Diagnostic(
            "This `with` statement cannot run in a batch.",
            span_of(block),
            "inside it",
            (f"{why}; only torch's modes (no_grad, autocast, …) can be entered again and again.",)
            if not hint
            else (f"{why}.",),
            (hint or "keep branches and loops out of its body, or use autobatch.per_thread.",),
            "with-manager",
        )
    )
