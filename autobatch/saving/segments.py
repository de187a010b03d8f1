"""``save="recompute"``: what a run saves for its backward is computed once more, by segments.

A run's kernels are calls of functions of tensors: replays of recorded stretches, and the moves of
rows that part and meet. A ``Tape`` writes them down in the order in which they run, some steps to a
``Segment``, and autograd saves a number in the place of each tensor. When a backward asks for the
first of a segment's tensors, its calls run again, from what went into it; so what lives across the
ends of segments is kept, and all that is saved within one is there while that is differentiated.

Segments grow by a step each, since nobody knows how many steps there will be: after ``T`` of them
there are about ``sqrt(2 T)`` segments, of as many steps at most (Chen et al., 2016, "Training deep
nets with sublinear memory cost").

Invariants: a function that is written down is pure, and refers to tensors by its arguments alone. A
segment holds no tensor that autograd's graph hangs on: the graph holds the segment. What runs by
itself, within a functorch transform among others, is saved as ever.

What is kept for each saved tensor is an ``int``, which Python's garbage collector does not look at:
with an object for each, one of its rounds took a fifth of a loop of 4,096 steps.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from autobatch.compat import pop_hooks, push_hooks
from autobatch.saving.savers import CHANGED, again, results, version

Function = Callable[..., Any]
Note = Callable[[int], None]


class Place(int):
    """Stands for a tensor among the arguments of a call: its number in the segment."""

    __slots__ = ()


@dataclass(slots=True, eq=False, repr=False)
class Written:
    """A call of ``function``, whose results are tensors with these numbers.

    It has saved ``saves`` tensors, those from ``begin`` on; ``grad`` is the mode that it ran in,
    ``answers`` what it has decided, up to the last yes.
    """

    function: Function
    args: tuple[Any, ...]
    results: range
    begin: int
    saves: int
    grad: bool
    answers: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Given:
    """A tensor that came into a segment, with the version that it had."""

    tensor: Tensor
    version: int

    @classmethod
    def of(cls, tensor: Tensor) -> Given:
        return cls(tensor.detach().requires_grad_(tensor.requires_grad), version(tensor))


@dataclass(slots=True, eq=False, repr=False)
class Desk:
    """Where the segments of a run are run again: one at a time; ``note`` hears of how many calls.

    What the last one has found and nobody has asked for goes when another one is at work.
    """

    note: Note
    lock: threading.Lock = field(default_factory=threading.Lock)
    last: weakref.ref[Segment] | None = None

    def tensor(self, segment: Segment, number: int) -> Tensor:
        """A tensor that a segment has saved; it is handed out once."""
        with self.lock:
            if number not in segment.found:
                self.clear()
                segment.found = recomputed(segment, self.note)
                self.last = weakref.ref(segment)
            return segment.found.pop(number)

    def clear(self) -> None:
        segment = None if self.last is None else self.last()
        if segment is not None:
            segment.found = {}


@dataclass(slots=True, eq=False, repr=False, weakref_slot=True)
class Segment:
    """Calls that run again together; ``found`` is what they save, once they have."""

    desk: Desk
    calls: list[Written] = field(default_factory=list)
    given: dict[int, Given] = field(default_factory=dict)
    size: int = 0
    saved: int = 0
    steps: int = 0
    found: dict[int, Tensor] = field(default_factory=dict)

    def hold(self, tensor: Tensor) -> int:
        """What autograd saves in the place of a tensor."""
        number = self.saved
        self.saved = number + 1
        return number

    def tensor(self, number: int) -> Tensor:
        found = self.found.pop(number, None)
        return self.desk.tensor(self, number) if found is None else found


class Tape:
    """Writes down the calls of one run; ``known`` are the tensors of the segment at work.

    ``hooks`` are those of its segment, the same two for all of its calls. ``steady`` is how many
    steps have run on end, without a move of rows between two of them.
    """

    __slots__ = ("answers", "desk", "hooks", "known", "length", "segment", "steady")

    def __init__(self, note: Note) -> None:
        self.desk = Desk(note)
        self.length = 1
        self.steady = 0
        self.answers: list[bool] = []
        self.begin()

    def begin(self) -> None:
        """Another segment."""
        self.segment = Segment(self.desk)
        self.hooks = self.segment.hold, self.segment.tensor
        self.known: dict[int, tuple[weakref.ref[Tensor], int, int]] = {}

    def call(self, function: Function, args: Sequence[Any], is_step: bool) -> Any:
        segment, begin, grad = self.segment, self.segment.saved, torch.is_grad_enabled()
        self.answers = []  # what has run by itself since the last call has decided, too
        places = tuple(self.place(arg) if isinstance(arg, Tensor) else arg for arg in args)
        if grad:
            push_hooks(*self.hooks)  # what ``saved_tensors_hooks`` does, without an object a call
            try:
                made = function(*args)
            finally:
                pop_hooks()
        else:
            made = function(*args)
        numbers = [self.know(out) for out in results(made)]
        written = range(numbers[0], numbers[-1] + 1) if numbers else range(0)
        saves, answers = segment.saved - begin, self.taken_answers()
        segment.calls.append(Written(function, places, written, begin, saves, grad, answers))
        segment.steps += is_step
        self.steady = self.steady + 1 if is_step else 0
        if segment.steps >= self.length:
            self.length += 1
            self.begin()
        return made

    @property
    def room(self) -> int:
        """How many steps to come may be a segment of their own (``bundles``): as many as have run
        on end, since a bundle that rows leave is one all the same.
        """
        return self.length if self.steady >= self.length else 0

    def bundled(self, steps: int) -> None:
        """So many steps have been one."""
        if self.segment.calls:
            self.begin()
        self.steady += steps
        self.length += steps >= self.length

    def decide(self, answer: bool) -> None:
        self.answers.append(answer)

    def taken_answers(self) -> tuple[bool, ...]:
        """What the call at work has decided; that it ends with a no goes without saying."""
        found, self.answers = self.answers, []
        while found and not found[-1]:
            found.pop()
        return tuple(found)

    def rest(self) -> None:
        """Nothing is under way."""

    def place(self, tensor: Tensor) -> Place:
        """The number of an argument; what no call of the segment has made comes into it."""
        known = self.known.get(id(tensor))
        if known is not None and known[0]() is tensor and known[1] == version(tensor):
            return Place(known[2])
        number = self.know(tensor)
        self.segment.given[number] = Given.of(tensor)
        return Place(number)

    def know(self, tensor: Tensor) -> int:
        segment, number = self.segment, self.segment.size
        self.known[id(tensor)] = (weakref.ref(tensor), version(tensor), number)
        segment.size += 1
        return number


# Running again.


def recomputed(segment: Segment, note: Note) -> dict[int, Tensor]:
    """All that the calls of a segment save, by their numbers."""
    refuse_changed(segment.given.values())
    values = {number: given.tensor for number, given in segment.given.items()}
    kept: list[Tensor] = []
    calls = needed(segment)
    last = last_reads(calls)
    with as_before(), saved_tensors_hooks(lambda tensor: kept.append(tensor.detach()), nothing):
        for at, call in enumerate(calls):
            if torch.is_grad_enabled() is not call.grad:
                torch.set_grad_enabled(call.grad)
            args = [values[arg] if type(arg) is Place else arg for arg in call.args]
            if call.answers:
                with again(call.answers):
                    made = call.function(*args)
            else:
                made = call.function(*args)
            values.update(zip(call.results, results(made), strict=True))
            if len(kept) != call.begin + call.saves:
                raise AssertionError("a call saves another number of tensors when it runs again")
            for number in last.get(at, ()):
                del values[number]
    note(len(calls))
    return dict(enumerate(kept))


def refuse_changed(given: Iterable[Given]) -> None:
    if any(version(each.tensor) != each.version for each in given):
        raise RuntimeError(CHANGED)


def nothing(packed: Any) -> Tensor:
    raise AssertionError("nobody differentiates what runs again")


def needed(segment: Segment) -> list[Written]:
    """The calls that save something, and those whose results these need, in order."""
    wanted: set[int] = set()
    found: list[Written] = []
    for call in reversed(segment.calls):
        if call.saves or not wanted.isdisjoint(call.results):
            found.append(call)
            wanted.update(reads(call))
    return found[::-1]


def reads(call: Written) -> Iterator[int]:
    return (arg for arg in call.args if type(arg) is Place)


def last_reads(calls: Sequence[Written]) -> dict[int, list[int]]:
    """By place among the calls, the tensors that none reads after it."""
    last = {n: at for at, call in enumerate(calls) for n in (*call.results, *reads(call))}
    found: dict[int, list[int]] = {}
    for number, at in last.items():
        found.setdefault(at, []).append(number)
    return found


@contextmanager
def as_before() -> Iterator[None]:
    """No mode of whoever runs the backward: replays have in them what the call's modes did.

    Nor has a call decided anything but no, if it does not say so.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        stack.enter_context(again(()))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield
