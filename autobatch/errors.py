"""What autobatch raises, and the one renderer of its messages.

Every error takes a ``Diagnostic`` (or a bare headline) and prints as ``render`` lays it out:

    headline
      File "walk.py", line 12
        12 |         return x, y
           |                ^^^^ label
      Note: ...
      Hint: ...

A failure of the user's own code keeps its exception type; ``note_for`` makes the note it gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autobatch.source import Span, excerpt, users_place


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message to the user; ``code`` is its stable name for tests and tools.

    ``text`` is what the span is a part of, where that is in no file.
    """

    headline: str
    span: Span | None = None
    label: str = ""
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    code: str = ""
    text: str | None = None


def render(diagnostic: Diagnostic) -> str:
    """The text of a diagnostic, without a newline at its end."""
    parts = [diagnostic.headline]
    if diagnostic.span is not None:
        parts.append(excerpt(diagnostic.span, diagnostic.label, diagnostic.text))
    parts += [f"  Note: {note}" for note in diagnostic.notes]
    parts += [f"  Hint: {hint}" for hint in diagnostic.hints]
    return "\n".join(parts)


class AutobatchError(Exception):
    """What every error of autobatch's own derives from."""

    def __init__(self, diagnostic: Diagnostic | str) -> None:
        if isinstance(diagnostic, str):
            diagnostic = Diagnostic(diagnostic)
        if diagnostic.span is not None:
            diagnostic = replace(diagnostic, span=users_place(diagnostic.span))
        super().__init__(diagnostic)
        self.diagnostic = diagnostic

    def __str__(self) -> str:
        return render(self.diagnostic)

    @property
    def span(self) -> Span | None:
        """Where in the user's source, if known."""
        return self.diagnostic.span


class UnsupportedError(AutobatchError):
    """A construct that programs cannot hold; like ``SyntaxError``, it says where it stands."""

    @property
    def filename(self) -> str | None:
        return self.span.file if self.span else None

    @property
    def lineno(self) -> int | None:
        return self.span.line if self.span else None

    @property
    def offset(self) -> int | None:
        """The first column, counted from 1 as in ``SyntaxError``."""
        return self.span.column + 1 if self.span else None


class ParseError(UnsupportedError, ValueError):
    """Text that is no program's, with the place where it is not."""


class SharedWriteError(UnsupportedError):
    """A write to an object that existed before the call, which all threads share."""


def placed(error: UnsupportedError, span: Span | None) -> UnsupportedError:
    """The error with the place of the call that it is about, where it has none."""
    told = error.diagnostic
    if told.span is not None or span is None:
        return error
    return type(error)(replace(told, span=span, label="called here"))


class StackingError(AutobatchError):
    """The threads' results do not stack."""


class EmptyBatchError(AutobatchError):
    """A batch of size 0 whose results do not follow without data."""


class StepLimitError(AutobatchError):
    """More block executions than ``max_steps`` allows."""


class DepthLimitError(AutobatchError, RecursionError):
    """Calls nested deeper than ``max_depth`` allows."""


class FallbackError(AutobatchError):
    """An operation would run thread by thread under ``fallback="error"``."""


class ConverterError(AutobatchError):
    """A rule of ``register_converter`` fails, or its result is not what it must be."""


class ExecutorError(AutobatchError):
    """An executor of the user's own fails, or gives what is not the result of a stretch."""


class OptionError(AutobatchError, ValueError):
    """An option or argument has a value that it cannot have; the message names it."""


class UnknownOptionError(OptionError, TypeError):
    """There is no option or argument of that name, or it has the wrong type."""


class VerifierError(AutobatchError):
    """A program breaks a rule of the intermediate representation: a fault of autobatch's."""


LIMITS = (StepLimitError, DepthLimitError)
"""The errors of this module that single threads run into."""

AMBIGUOUS = "Boolean value of Tensor with more than one value"
ADVICE = {
    AMBIGUOUS: "write `.any()` or `.all()` for a decision of the whole, `torch.where` for one of "
    "each element.",
}
"""What to write instead, where an error of torch's begins so and does not say it."""
THREADS = "  Example index: "
"""What stands in a note before the input indices that failed."""
WITHIN_VMAP = "vmap: It looks like you're"
"""How ``torch.vmap`` begins to say that control flow goes by what it maps."""
IN_ITS_PLACE = (
    "Hint: put autobatch.vmap in the place of the torch.vmap that is around; it takes the same "
    "arguments."
)
CALLS_SHOWN = 20
"""How many of a failure's calls a note shows: the outermost and the innermost ones."""
LONGEST_CYCLE = 4
"""Calls that a note folds where they repeat."""


def note_for(
    error: BaseException, chain: Sequence[Span], operands: Sequence[str], threads: Sequence[int]
) -> str:
    """The note on a failure of the user's own code.

    ``chain`` runs from the outermost call to the operation that failed, ``operands`` describe
    its operands (``"float32 [3]"``), ``threads`` are the input indices that failed.
    """
    chain = [users_place(span) for span in chain]
    lines = ["While running this program in a batch:"]
    lines += _calls(chain[:-1])
    lines += [excerpt(span) for span in chain[-1:]]
    if operands:
        lines.append(f"  Operands: {', '.join(operands)}")
    if type(error) is RuntimeError:  # the text of others may be code of the user's
        lines += [f"  Hint: {hint}" for text, hint in ADVICE.items() if str(error).startswith(text)]
    if threads:
        lines.append(f"{THREADS}{_enumerated(threads)}")
    return "\n".join(lines)


def note_within_vmap(error: RuntimeError) -> None:
    """Say what to write, where a function of ours runs one example within ``torch.vmap``."""
    told = IN_ITS_PLACE in getattr(error, "__notes__", ())
    if type(error) is RuntimeError and str(error).startswith(WITHIN_VMAP) and not told:
        error.add_note(IN_ITS_PLACE)


def _calls(spans: Sequence[Span]) -> list[str]:
    """The calls on the way to a failure: repeated ones once, the middle of a long way counted."""
    parts = _folded(spans)
    half, more = CALLS_SHOWN // 2, len(parts) - CALLS_SHOWN
    if more <= 0:
        return [part.text() for part in parts]
    left_out = sum(part.calls for part in parts[half:-half])
    shown = [part.text() for part in (*parts[:half], *parts[-half:])]
    return [*shown[:half], f"  … {left_out:,} more calls …", *shown[half:]]


@dataclass(frozen=True, slots=True)
class _Cycle:
    """Calls that are made ``times`` times in a row, as a recursion does."""

    spans: tuple[Span, ...]
    times: int = 1

    @property
    def calls(self) -> int:
        return len(self.spans) * self.times

    def text(self) -> str:
        lines = [excerpt(span, "called here") for span in self.spans]
        if self.times > 1:
            what = "line" if len(lines) == 1 else f"{len(lines)} lines"
            lines.append(f"  … the same {what} {self.times - 1:,} more times …")
        return "\n".join(lines)


def _folded(spans: Sequence[Span]) -> list[_Cycle]:
    """The calls in order, those that repeat as one part, if that leaves out more than one."""
    found: list[_Cycle] = []
    place = 0
    while place < len(spans):
        cycles = (_cycle_at(spans, place, length) for length in range(1, LONGEST_CYCLE + 1))
        best = max(cycles, key=lambda cycle: cycle.calls - len(cycle.spans))
        if best.calls - len(best.spans) < 2:
            best = _Cycle((spans[place],))
        found.append(best)
        place += best.calls
    return found


def _cycle_at(spans: Sequence[Span], place: int, length: int) -> _Cycle:
    first, times = tuple(spans[place : place + length]), 1
    while tuple(spans[place + times * length : place + (times + 1) * length]) == first:
        times += 1
    return _Cycle(first, times)


def _enumerated(threads: Sequence[int], shown: int = 8) -> str:
    text = ", ".join(str(thread) for thread in threads[:shown])
    return text if len(threads) <= shown else f"{text}, … ({len(threads)} in all)"
