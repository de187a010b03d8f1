"""The generators that a run has made by itself, and that do something at their end.

Which do is in ``host.left_early``. Invariant: at the end of a run each has come to its own end, or
has not begun; else the run is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import CO_GENERATOR
from types import FunctionType
from typing import Any

from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.source import Span

MOST = 1024
"""Generators after which those that have ended are forgotten: a stream makes ever more."""


def is_generator(function: object) -> bool:
    """Whether it is a function whose call makes a generator."""
    return type(function) is FunctionType and bool(function.__code__.co_flags & CO_GENERATOR)


class Going:
    """What stands in a program for a generator, made at a place; ``of``: a class or function.

    It is known whether that has begun, and has come to its end.
    """

    __slots__ = ("begun", "ended", "generator", "of", "span")

    def __init__(self, generator: Any, of: type | FunctionType, span: Span | None) -> None:
        self.generator, self.of, self.span = generator, of, span
        self.begun = self.ended = False

    def __iter__(self) -> Going:
        return self

    def __next__(self) -> Any:
        self.begun = True
        try:
            return next(self.generator)
        except BaseException:
            self.ended = True
            raise

    def __getattr__(self, name: str) -> Any:
        if name == "close":
            self.ended = True
        return getattr(self.generator, name)


@dataclass(slots=True, eq=False, repr=False)
class Generators:
    """Those of a run that do something at their end."""

    going: list[Going] = field(default_factory=list)

    def add(self, of: type | FunctionType, generator: Any, span: Span | None) -> Going:
        """What stands for a generator."""
        if len(self.going) >= MOST:
            self.going = [each for each in self.going if not each.ended]
        found = Going(generator, of, span)
        self.going.append(found)
        return found

    def check(self) -> None:
        """Refuse what has been left; of all that a run has made, once it has ended."""
        for each in self.going:
            if each.begun and not each.ended:
                raise left(each.of, each.span)


def left(kind: type | FunctionType, span: Span | None) -> UnsupportedError:
    return UnsupportedError(
        Diagnostic(
            f"A generator of {kind.__name__}'s is left before its end.",
            span,
            "made here",
            (
                "it yields within a try or with statement. What that does at its end is to be "
                "done where the generator is left, and a batch goes on with other threads there.",
            ),
            ("take all that it gives: go through list(...) of it.",),
            "generator-left",
        )
    )
