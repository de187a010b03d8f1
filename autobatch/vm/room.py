"""Room on Python's stack: its recursion limit, while runs are at work.

In: how deep calls of programs nest. Out: a limit that is as high as they need, and ``SLACK`` above,
never one for calls that have not been made: what recurses without an end in Python or C code (a
list that holds itself is compared, a method that calls itself) is to end with a ``RecursionError``,
as in the loop, before the stack of the thread does. The limit is the whole process's.

And room of one piece: CPython keeps the frames of Python functions in pieces of 16 KB, and gives a
piece back to the system as soon as its first frame ends. Calls that go over the end of a piece time
after time ask the system for a new one each time, which took a tenth of a recursive program's time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import ParamSpec, TypeVar

FRAMES_PER_CALL = 16
"""Python frames that one nested call of a program takes, at most."""
SLACK = 9_000
"""Python frames for what runs at one depth of calls; with C code between them 4 MB or so."""
STRIDE = 64
"""Calls for which room is made at once."""
SLOTS = 65_000
"""Of eight bytes, that a frame asks for: a piece of 1 MB, half of which is left for the frames of
``STRIDE`` calls. It is address space: nobody touches what is not used."""

P = ParamSpec("P")
R = TypeVar("R")


class RecursionRoom:
    """Python's recursion limit, raised while runs are at work."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runs = 0
        self.before = 0
        self.own = threading.local()

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Room for the calls of a run, which says how deep it is (``at``), until the last ends."""
        with self.lock:
            if self.runs == 0:
                self.before = sys.getrecursionlimit()
            self.runs += 1
            outer = getattr(self.own, "frames", 0)
            self.own.base = self.own.frames = outer
            self.fit(outer)
        try:
            yield
        finally:
            with self.lock:
                self.own.base = self.own.frames = outer
                self.runs -= 1
                if self.runs == 0:
                    sys.setrecursionlimit(self.before)

    def at(self, depth: int) -> None:
        """A run is so many calls deep, a multiple of ``STRIDE``."""
        with self.lock:
            self.own.frames = self.own.base + depth * FRAMES_PER_CALL
            self.fit(self.own.frames)

    def fit(self, frames: int) -> None:
        """Set the limit; other runs may need the one that there is."""
        limit = self.before + frames + STRIDE * FRAMES_PER_CALL + SLACK
        if self.runs == 1 or limit > sys.getrecursionlimit():
            sys.setrecursionlimit(limit)


ROOM = RecursionRoom()


def _called(run: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function, whose frame and those of what it calls lie in one piece of memory."""
    return run(*args, **kwargs)


in_one_piece = FunctionType(_called.__code__.replace(co_stacksize=SLOTS), globals(), "in_one_piece")


def with_room(run: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call what runs programs; the first ``STRIDE`` calls of these lie in one piece with it."""
    with ROOM.raised():
        result: R = in_one_piece(run, *args, **kwargs)
    return result
