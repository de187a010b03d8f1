"""Functions that a program made, as Python callables of one thread."""

from __future__ import annotations

from typing import Any


class Handed:
    """A function that a program made, as a Python callable of one thread.

    ``made`` has the ``static`` part of its container, and what that held for the thread: boxes,
    then defaults; None where no container is left.
    """

    __slots__ = ("made",)
    made: tuple[Any, tuple[Any, ...]] | None

    def held(self) -> list[Any]:
        """What the program can reach by it: boxes, defaults, attributes; not the engine."""
        raise NotImplementedError
