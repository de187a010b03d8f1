"""What is mapped and is no Python to be lowered, a module say: each has sites of its own.

They run by the same lowered function, a stand-in that calls them, as an operation or as a program.
In: what a stand-in stands for, and the code of stand-ins. Out: a code of that lowering for this
object alone, so that what is recorded for one neither uses up the budget of another nor displaces
its drivers.

Recordings and judgements hold what they are of, so an object is held until ``MOST_SUBJECTS`` others
have been mapped after it; its sites go with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

from autobatch.ir.program import Function

MOST_SUBJECTS = 128


class Lowered(Protocol):
    """The code of a function."""

    function: Function

    @classmethod
    def of(cls, function: Function, /) -> Self: ...


C = TypeVar("C", bound=Lowered)


@dataclass(slots=True, eq=False, repr=False)
class Subjects(Generic[C]):
    """The codes by the identity of what is called, that of the latest last."""

    codes: dict[int, tuple[object, C]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def code(self, subject: object, shared: Callable[[], C]) -> C:
        """The code for one object; when it is new, one of its own of what ``shared`` gives."""
        with self.lock:
            known, code = self.codes.pop(id(subject), (None, None))
            if code is not None and known is subject:
                self.codes[id(subject)] = known, code
                return code
        lowered = shared()  # it may ask for others' codes
        with self.lock:
            made = type(lowered).of(lowered.function)
            _, code = self.codes.setdefault(id(subject), (subject, made))
            while len(self.codes) > MOST_SUBJECTS:
                del self.codes[next(iter(self.codes))]
            return code
