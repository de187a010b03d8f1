"""What counts as a fallback, and what the option ``fallback`` does about it.

Whatever has no batched form runs thread by thread. A *fallback* is such a run where the program
could not be expected to mean it. These are meant, so they are explained, and counted apart, but
never warned of or refused:

- functions marked ``autobatch.per_thread``, and ``print``;
- reading Python objects, which live on the host: their attributes, items, length, iteration,
  identity and type, and pure operations whose per-thread operands are all such objects
  (neither tensors nor numbers);
- making strings (f-strings, ``str``, ``repr``, ``format``) and exceptions;
- whatever a block does that ends by raising an exception.

Calls of unknown functions, torch functions on what does not stack, and operations on tensors and
numbers that have become objects are fallbacks.
"""

from __future__ import annotations

import linecache
import operator
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from autobatch.batching.effects import BUILTIN_TYPES, MUTATING_METHODS, belongs_to_torch
from autobatch.errors import Diagnostic, FallbackError
from autobatch.source import Span, is_of_library
from autobatch.structure import own_attribute
from autobatch.values.cells import PACKED, Cell, Column, Container, Objects, Value, read
from autobatch.values.heap import walks

HINTS = (
    "autobatch.per_thread(fn) marks a function that is meant to run thread by thread.",
    "autobatch.primitive(fn) runs a pure function of tensors as one operation.",
)
WORTH_IT = 16
"""Operations thread by thread from which a program of Python objects alone is better told so."""
ON_OBJECTS = (
    "operations of {0} ran thread by thread, and no tensor did: its time goes into keeping the "
    "threads together. autobatch.per_thread({0}) runs it as plain Python, one example at a time."
)
BESIDE_TENSORS = (
    "much of {0} works on objects, thread by thread: its time goes into keeping the threads "
    "together. What works on objects alone (a parser, a search) is faster in a function of its own "
    "that is marked autobatch.per_thread and gives what the tensors need; autobatch.explain says "
    "which lines."
)
ONE_BY_ONE = (
    "{0} runs as plain Python, one example after the other, and nothing in it is batched: that "
    "takes less time than keeping the threads together, which part often, or work on objects and "
    "lists. autobatch.explain says which lines."
)
MOST_TOLD = 5
"""Places that one call warns of; what runs there least is only counted."""
OTHERS = (
    "{1} other places of {0} run thread by thread, too, for fewer examples in all; "
    "autobatch.explain lists them."
)
RECORDING = (
    "{1:.1f} s of this call of {0}, which took {2:.1f} s, went to recording {3} stretches of "
    "operations: later calls replay them. The first recording in a process loads torch's tracing, "
    "too. It pays in calls that come again; trace_after puts it off, and "
    'executor="vmap" does without.'
)
WORTH_TELLING = 1.0
"""Seconds of recording from which a call tells of it, where they are a quarter of its own."""
OF_IDENTITY = frozenset({operator.is_, operator.is_not, isinstance, type, id, callable})
OF_STRINGS = frozenset({str, repr, ascii, format})
READS = frozenset({operator.getitem, operator.contains, len, iter, next, getattr, hasattr})
REDUCTIONS = frozenset({sum, min, max, sorted, any, all})
STRINGS = "strings are made on the host"
OBJECTS = "each example has a Python object there, or a tensor of a shape of its own"
ONE_NUMBER = "it takes one number for all, and each example has one of its own"
ATTRIBUTE = "an attribute of objects"
EXCEPTION = "each thread has an exception of its own"


class FallbackWarning(UserWarning):
    """An operation runs thread by thread under ``fallback="warn"``."""


@dataclass(frozen=True, slots=True)
class Met:
    """What runs thread by thread at ``span``, and the line of the user's own from which it does."""

    own: Span | None
    span: Span | None
    what: str


@dataclass(slots=True, eq=False, repr=False)
class Policy:
    """``fallback="warn"`` or ``"error"`` for one run.

    ``runs`` counts what has run thread by thread, whether it was meant to or not; ``places`` are
    those to be warned of, with why and for how many examples in all they have run so; ``waits``
    whether they are told of at the end, by ``tell``, what ran most first. ``calls`` gives the
    places at which a thread is, outermost first.
    """

    action: str
    runs: int = 0
    places: dict[Met, tuple[str, int]] = field(default_factory=dict)
    waits: bool = False
    calls: Callable[[int], list[Span]] | None = None

    def met(self, span: Span | None, what: str, why: str, threads: Sequence[int]) -> None:
        """A fallback is about to run: note it, to be warned of once a place, or refuse it."""
        if self.action == "error":
            raise refused(span, what, why)
        place = Met(self.users(span, int(threads[0])), span, what)
        first, total = self.places.get(place, (why, 0))
        self.places[place] = first, total + len(threads)
        if not total and not self.waits:
            self.warn(place, why)

    def users(self, span: Span | None, thread: int) -> Span | None:
        """The innermost place of the user's own from which that is run."""
        if span is None or not is_of_library(span.file) or self.calls is None:
            return span
        chain = [place for call in (*self.calls(thread), span) for place in call.chain()]
        own = [place for place in chain if not is_of_library(place.file)]
        return own[-1] if own else span

    def tell(self, name: str, place: tuple[str, int]) -> None:
        """Warn of the places where most ran thread by thread, and say how many others there are."""
        ordered = sorted(self.places.items(), key=lambda noted: -noted[1][1])
        self.places = {}
        for noted, (why, _) in ordered[:MOST_TOLD]:
            self.warn(noted, why)
        if len(ordered) > MOST_TOLD:
            self.lost(place, OTHERS.format(name, len(ordered) - MOST_TOLD))

    def warn(self, place: Met, why: str) -> None:
        try:
            warn(place, why)
        except FallbackWarning as warning:
            # Warnings are errors here. An operation's own exceptions are the user's, and are
            # looked for in single threads; this one is not.
            raise refused(place.span, place.what, why) from warning

    def recorded(
        self, name: str, place: tuple[str, int], recording: float, seconds: float, traces: int
    ) -> None:
        """Warn of a call that has spent a good part of its time on recordings."""
        if recording >= max(WORTH_TELLING, seconds / 4):
            self.lost(place, RECORDING.format(name, recording, seconds, traces))

    def spent(
        self,
        name: str,
        place: tuple[str, int],
        tensors: bool,
        often: bool,
        objection: Callable[[], str],
    ) -> None:
        """Warn of a program that has spent its time thread by thread, though it was meant to.

        ``tensors``: it computes with some; ``often``: much of what it did was on objects all the
        same; ``objection`` tells what keeps it from being run as plain Python, if anything.
        """
        if self.action != "warn" or self.runs < WORTH_IT:
            return
        if not tensors:
            told = f"{self.runs} {ON_OBJECTS.format(name)}"
        elif often:
            told = BESIDE_TENSORS.format(name)
        else:
            return
        warned(place, "\n".join(filter(None, (told, objection()))))

    def lost(self, place: tuple[str, int], told: str, objection: Callable[[], str] = str) -> None:
        """Warn of a run that keeping threads together has made slower than the plain loop.

        ``objection`` tells what keeps it from being run as plain Python, if anything.
        """
        if self.action == "warn":
            warned(place, "\n".join(filter(None, (told, objection()))))


def is_often(meant: int, launches: int) -> bool:
    """Whether a run does more on objects than on tensors."""
    return meant >= max(WORTH_IT, launches)


def policy_of(option: str) -> Policy | None:
    return None if option == "allow" else Policy(option)


def warn(met: Met, why: str) -> None:
    """A warning that stands at the program's own line, not at autobatch's or a library's."""
    own, span = met.own, met.span
    place = (own.file, own.line) if own is not None else ("<program>", 0)
    told = f"{quoted(own) or met.what} runs thread by thread"
    if span is not None and span is not own:
        told += f", in {span.file}, line {span.line}, at {quoted(span) or met.what}"
    warned(place, f"{told}: {reason(met.what, why)}.")


def warned(place: tuple[str, int], told: str) -> None:
    file, line = place
    text = f"{file}, line {line}: {told}"
    warnings.warn_explicit(text, FallbackWarning, file, line, registry=registry_of(file))


def registry_of(file: str) -> dict[Any, Any] | None:
    """Where Python notes what a module has warned of: by default it says each thing once.

    So a ``map_fn`` that is called for each thread, or in a loop, does not say it each time. What is
    of no module's file (a cell of a notebook) is of the main module, as for Python's own.
    """
    modules = list(sys.modules.values())
    own = [module for module in modules if getattr(module, "__file__", None) == file]
    for module in [*own, sys.modules.get("__main__")]:
        if module is not None:
            found: dict[Any, Any] = vars(module).setdefault("__warningregistry__", {})
            return found
    return None


def refused(span: Span | None, what: str, why: str) -> FallbackError:
    return FallbackError(
        Diagnostic(
            'An operation would run thread by thread, which fallback="error" refuses.',
            span,
            reason(what, why),
            hints=HINTS,
            code="fallback",
        )
    )


def reason(what: str, why: str) -> str:
    """Why, in one sentence, and what, if that is a name that the user knows."""
    why = why.partition("\n")[0].partition(". ")[0].rstrip(".")
    if why == "objects":
        why = OBJECTS
    elif "calling .item() on a Tensor" in why:
        why = ONE_NUMBER
    return why if "<" in what or why.startswith(what) else f"{what}: {why}"


def quoted(span: Span | None, width: int = 40) -> str:
    """The source text of a span in backquotes, shortened; empty if it is not known."""
    if span is None:
        return ""
    line = linecache.getline(span.file, span.line).rstrip()
    end = span.end_column if span.end_line == span.line else len(line)
    text = line[span.column : end].strip()
    if not text:
        return ""
    return f"`{text}`" if len(text) <= width else f"`{text[: width - 1]}…`"


def is_meant(
    function: Callable[..., Any], cells: Iterable[Cell], why: str, effect: bool = False
) -> bool:
    """Whether the program can be expected to mean that this runs thread by thread."""
    if own_attribute(function, "__autobatch__") == "unknown" or function is print:
        return True
    if effect or why in (STRINGS, EXCEPTION) or is_in(function, OF_STRINGS | OF_IDENTITY):
        return not effect
    operands = list(cells)
    if is_read(function, why):
        return bool(operands) and is_host(operands[0])
    if belongs_to_torch(function):
        return False
    deep = is_in(function, REDUCTIONS)
    return all(is_host(operand, deep) for operand in operands)


def is_read(function: Callable[..., Any], why: str) -> bool:
    if why == ATTRIBUTE or is_in(function, READS):
        return True
    owner = own_attribute(function, "__objclass__")
    return (
        owner in BUILTIN_TYPES and own_attribute(function, "__name__", "") not in MUTATING_METHODS
    )


def is_in(function: Any, known: frozenset[Any]) -> bool:
    try:
        return function in known
    except TypeError:  # unhashable
        return False


def is_host(cell: Cell, deep: bool = False) -> bool:
    """Whether what differs by thread in a cell are Python objects, not tensors or numbers.

    ``deep``: neither may their lists, tuples and dicts hold any.
    """
    return all(is_host_part(read(part), deep) for part in walks.parts(cell))


def is_host_part(value: Value, deep: bool) -> bool:
    match value:
        case Column():
            return False
        case Objects(lists=found) if found is not None:
            return not deep
        case Objects(items=items):
            return not any(is_data(item, deep) for item in items)
        case Container(type=kind):
            return kind is not PACKED
    return True


def is_data(item: Any, deep: bool) -> bool:
    if deep and type(item) in (list, tuple, set, frozenset):
        return any(is_data(part, deep) for part in item)
    if deep and type(item) is dict:
        return any(is_data(part, deep) for part in item.values())
    return isinstance(item, Tensor | int | float | complex)
