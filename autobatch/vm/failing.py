"""Failing threads: which leave when one fails, and what becomes of their exceptions.

The exception that the run raises is that of the lowest thread, and within a thread the first in
program order. So the failing thread and those above it are dropped, and those below go on, since
one of them may fail with an exception that the plain loop meets first. Where threads are isolated,
only those that fail leave, each with its own exception, and all others finish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from sys import getrefcount

import numpy as np

from autobatch.batching.context import Context, Lost, RowsFail
from autobatch.batching.raising import left_generators
from autobatch.errors import THREADS, AutobatchError, Diagnostic, EmptyBatchError, note_for
from autobatch.source import Span
from autobatch.vm.groups import Group, restricted
from autobatch.vm.state import Frame, Gone

Errors = dict[int, BaseException]
MOST_OPERANDS = 1024
"""Failures whose operands are kept until their notes are written: handlers may get them first."""
NOTE = "While running this program"


@dataclass(frozen=True, slots=True)
class From:
    """All threads from ``first`` on."""

    first: int

    def spares(self, threads: np.ndarray) -> np.ndarray:
        return threads < self.first


@dataclass(frozen=True, slots=True)
class Just:
    """The threads that ``failed``, by index."""

    failed: np.ndarray

    @classmethod
    def of(cls, threads: Iterable[int]) -> Just:
        return cls(np.fromiter(threads, dtype=np.int64))

    def spares(self, threads: np.ndarray) -> np.ndarray:
        return np.isin(threads, self.failed, invert=True)


@dataclass(slots=True, eq=False, repr=False)
class Failures:
    """``errors`` holds what threads have failed with so far, the lowest one's only unless they
    ``isolate``; it is replaced, never changed. ``frames`` are those at work, outermost first.
    ``origins`` are the places at which the exceptions arose that handlers have got, since one may
    be raised again: at least as many as are still around, ``most`` before others are let go.
    ``operands`` describe those of the operations that have failed, for the notes."""

    isolate: bool = False
    errors: Errors = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    origins: dict[int, tuple[BaseException, Span | None]] = field(default_factory=dict)
    most: int = 64
    operands: dict[int, tuple[BaseException, tuple[str, ...]]] = field(default_factory=dict)

    @property
    def failure(self) -> BaseException | None:
        """What the run is to raise, if anything."""
        return next(iter(self.errors.values()), None)

    def left_before(self) -> Gone | None:
        """The isolated threads that a frame that begins is to do without."""
        if not self.isolate or not self.errors:
            return None
        return self.frames[-1].gone if self.frames else Just.of(self.errors)

    def since(self, before: Errors) -> Errors:
        """The failures that are not among those before."""
        if self.errors is before:
            return {}
        return {t: error for t, error in self.errors.items() if before.get(t) is not error}

    def dropped(
        self, frame: Frame, group: Group, context: Context, failure: RowsFail | None
    ) -> Group:
        """Record what has failed in a block execution; the group without the threads that leave."""
        if failure is not None and not context.k:
            raise no_data(context.span) from failure.error
        self.gather(context, failure)
        group.checks = context.checks
        if context.lost is not None:
            self.add(context.lost)
        elif failure is not None:
            self.fail(int(context.threads[failure.row]), failure.error, failure.span)
        return self.remaining(frame, group)

    def take(self, context: Context) -> None:
        """Record the lost threads of a call that goes on; the frames go on without them."""
        if self.frames and self.frames[-1].catches:
            context.leave()
        elif context.lost:
            self.add(context.lost)

    def gather(self, context: Context, failure: RowsFail | None) -> None:
        """Add to the lost threads' failures those found but not yet seen, which come first."""
        if context.lost is None:
            return
        late: Lost = context.lost
        if failure is not None and not late:
            late[int(context.keys[failure.row])] = (failure.error, failure.span)
        context.lost = {}
        if context.checks:
            with suppress(RowsFail):  # they are lost too
                context.flush()
        context.lost = {**late, **context.lost}

    def caught(self, error: BaseException, span: Span | None) -> BaseException:
        """An exception as a handler gets it: without what the engine was about."""
        if isinstance(error.__context__, RowsFail):
            error.__context__ = None
        self.origins.setdefault(id(error), (error, span))
        if len(self.origins) > self.most:
            alone = 2  # references to an exception that nobody else holds: its origin's, and ours
            self.origins = {
                key: origin
                for key, origin in self.origins.items()
                if getrefcount(origin[0]) > alone
            }
            self.most = max(64, 2 * len(self.origins))
        return error.with_traceback(None)

    def origin(self, error: BaseException) -> Span | None:
        """Where an exception arose that a handler has had; None for another one."""
        return self.origins.get(id(error), (None, None))[1]

    def operated(self, error: BaseException, operands: tuple[str, ...]) -> None:
        """The operands of the operation in which an error has arisen; the innermost one's count."""
        if operands and not isinstance(error, AutobatchError):
            self.operands.setdefault(id(error), (error, operands))
        while len(self.operands) > MOST_OPERANDS:
            del self.operands[next(iter(self.operands))]

    def fail(self, thread: int, error: BaseException, span: Span | None = None) -> None:
        """Record a thread's failure in the frame at work, unless an earlier one precedes it."""
        if self.isolate:
            self.add({thread: (error, span)})
            return
        if not self.precede([thread])[0]:
            return
        for frame in self.frames:
            frame.gone = From(thread)
        error = self.outside(error, thread, span)
        self.errors = {thread: error}
        self.note(error, (thread,), span)

    def precede(self, threads: Sequence[int]) -> Sequence[bool]:
        """Whether failures of threads count: in the frame at work they have not left."""
        if not self.frames:
            return [t not in self.errors if self.isolate else not self.errors for t in threads]
        gone = self.frames[-1].gone
        return [True] * len(threads) if gone is None else gone.spares(np.array(threads)).tolist()

    def add(self, lost: Lost) -> None:
        """Record the failures of threads that leave one by one."""
        counts = self.precede(list(lost))
        new = {thread: lost[thread] for thread, is_new in zip(lost, counts, strict=True) if is_new}
        taken = {id(error) for error in self.errors.values()}
        errors_ = dict(self.errors)
        for thread, (error, span) in new.items():
            left = self.outside(error, thread, span)
            own = separate(left) if id(left) in taken or names_threads(left) else left
            taken.add(id(own))
            if own is not left and id(left) in self.operands:
                self.operated(own, self.operands[id(left)][1])
            self.note(own, (thread,), span)
            errors_[thread] = own.with_traceback(None)  # it holds on to what the group held
        self.put(errors_)

    def put(self, errors_: Errors) -> None:
        """Isolated threads' failures are now these; the frames at work go on without them."""
        self.errors = errors_
        if errors_:
            gone = Just.of(errors_)
            for frame in self.frames:
                frame.gone = gone

    def forgive(self, threads: np.ndarray) -> bool:
        """Forget that some threads have failed, within a call; whether any had."""
        found = self.errors.keys() & set(threads.tolist())
        if not found:
            return False
        self.errors = {t: error for t, error in self.errors.items() if t not in found}
        gone: Gone | None = From(max(found) + 1)
        if self.isolate:
            gone = Just.of(self.errors) if self.errors else None
        for frame in self.frames:
            frame.gone = gone
        return True

    def never_begin(self, threads: np.ndarray, failure: RowsFail) -> None:
        """A call of the function as a whole fails: for each of the threads alike."""
        if self.isolate:
            self.add(dict.fromkeys(threads.tolist(), (failure.error, failure.span)))
        else:
            self.fail(int(threads.min()), failure.error, failure.span)

    def handed_out(self) -> Errors:
        """The isolated threads' failures, which are forgotten: others may have their rows."""
        found, self.errors = self.errors, {}
        for frame in self.frames:
            frame.gone = None
        return found

    def stop(self, threads: np.ndarray, error_of: Callable[[int], AutobatchError]) -> None:
        """Threads have come to a limit of the run, an error of so many: theirs, or the run's."""
        indices = np.unique(threads).tolist()
        if self.isolate and indices:
            self.add({thread: (error_of(1), None) for thread in indices})
            return
        error = error_of(len(indices))
        self.note(error, indices, None)
        raise error

    def bound(self, threads: np.ndarray, error_of: Callable[[int], AutobatchError]) -> None:
        """Threads have come to a limit that each of them has for itself: they fail there."""
        indices = np.unique(threads).tolist()
        if self.isolate or not indices:
            self.stop(threads, error_of)
            return
        error = error_of(len(indices))
        self.note(error, indices, None)
        self.fail(indices[0], error)

    def note(self, error: BaseException, threads: Iterable[int], span: Span | None) -> None:
        """Add where an error arose and in which threads, or the threads alone if it says where."""
        threads = tuple(threads)
        if not threads or names_threads(error):
            return
        notes = getattr(error, "__notes__", [])
        for place, said in enumerate(notes):
            if said.startswith(NOTE):
                notes[place] = f"{said}\n{THREADS}{', '.join(map(str, threads))}"
                return
        whole = [place for span in self.places(threads[0], span) for place in span.chain()]
        _, operands = self.operands.pop(id(error), (error, ()))
        error.add_note(note_for(error, whole, operands, threads))

    def calls(self, thread: int) -> list[Span]:
        """The places at which a thread is, outermost first."""
        return [place for frame in self.frames for place in frame.calls(thread)]

    def places(self, thread: int, span: Span | None) -> list[Span]:
        """The calls that a thread is in, and what fails there, at ``span`` if that is known."""
        chain = self.calls(thread)
        if span is not None and chain:
            chain[-1] = span
        return chain

    def outside(self, error: BaseException, thread: int, span: Span | None) -> BaseException:
        """What an error is to the caller of the run."""
        if not isinstance(error, StopIteration):
            return error
        return self.became(error, self.places(thread, span))

    def became(self, error: BaseException, spans: Iterable[Span | None]) -> BaseException:
        """What an error is once it has left the code at some places; it arose where it did."""
        left = left_generators(error, spans)
        if left is not error and id(error) in self.origins:
            self.origins[id(left)] = (left, self.origins[id(error)][1])
        if left is not error and id(error) in self.operands:
            self.operands[id(left)] = (left, self.operands[id(error)][1])
        return left

    def remaining(self, frame: Frame, group: Group) -> Group:
        """The group without dropped rows."""
        if frame.gone is None:
            return group
        stay = frame.gone.spares(frame.threads[group.rows])
        return group if stay.all() else restricted(group, np.flatnonzero(stay), list(group.env))


@dataclass(frozen=True, slots=True)
class Failed:
    """What had failed at some time, to go back to."""

    errors: Errors
    gone: tuple[tuple[Frame, Gone | None], ...]

    @classmethod
    def of(cls, failures: Failures) -> Failed:
        return cls(failures.errors, tuple([(frame, frame.gone) for frame in failures.frames]))

    def restore(self, failures: Failures) -> None:
        failures.errors = self.errors
        for frame, gone in self.gone:
            frame.gone = gone


def names_threads(error: BaseException) -> bool:
    notes = getattr(error, "__notes__", ())
    return any(note.startswith(NOTE) and f"\n{THREADS}" in note for note in notes)


LEFT_OUT = ("name", "obj")
"""What a copy of a ``NameError`` or an ``AttributeError`` lacks before Python 3.12."""


def separate(error: BaseException) -> BaseException:
    """A thread's own copy of an exception that several raise; the same one if it has no copies."""
    try:
        own = copy(error)
        if isinstance(error, (NameError, AttributeError)):
            for name in LEFT_OUT:
                setattr(own, name, getattr(error, name, None))
    except Exception:
        return error
    if type(own) is not type(error):
        return error
    own.__cause__, own.__context__ = error.__cause__, error.__context__
    own.__suppress_context__ = error.__suppress_context__
    notes = [note for note in getattr(error, "__notes__", ()) if not note.startswith(NOTE)]
    own.__notes__ = notes
    return own


def no_data(span: Span | None) -> EmptyBatchError:
    return EmptyBatchError(
        Diagnostic(
            "A batch of size 0 has no threads to decide what happens here.",
            span,
            "depends on data",
            ("what the results of no threads look like does not follow without data.",),
            ("do not call the function for an empty batch.",),
            "empty-batch",
        )
    )
