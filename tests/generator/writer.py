"""Writes one function: indented lines, the typed names in scope, filled templates.

Every choice is drawn as a small integer whose 0 is the simplest option (a name in scope,
a literal, no further statement), so that hypothesis shrinks programs towards short ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from . import writing
from .grammar import (
    CONDITIONS,
    EXPRESSIONS,
    RISKY_EXPRESSIONS,
    RISKY_STATEMENTS,
    STATEMENTS,
)
from .grammar import LITERALS as OWN_LITERALS

T = TypeVar("T")
LITERALS = OWN_LITERALS | writing.LITERALS
TYPES = frozenset({*LITERALS, "fn"})
HOLE = re.compile(r"\{(var:)?(new|" + "|".join(sorted(TYPES)) + r")(\$\d)?\}")
ENCLOSED = re.compile(r"(?:[(\[]|(?:^|[^=<>!])= )$")
ATOM = re.compile(r"[\w.]+|\[[^()\[\]]*\]|\((?:[^()]|\([^()]*\))*\)")


@lru_cache(maxsize=64)
def _below(n: int) -> st.SearchStrategy[int]:
    return st.integers(0, n - 1)


@dataclass(frozen=True, slots=True)
class Features:
    """What the programs of a family hold: types, whether threads may raise and catch.

    ``writes``: they write in place in all ways that there are, see ``writing``.
    """

    types: frozenset[str]
    raises: bool = False
    catches: bool = False
    writes: bool = False

    @lru_cache(maxsize=256)  # noqa: B019  (a family is small and lives for the session)
    def expressions(self, type_: str) -> tuple[str, ...]:
        extra = RISKY_EXPRESSIONS.get(type_, ()) if self.raises else ()
        written = writing.EXPRESSIONS.get(type_, ()) if self.writes else ()
        own = EXPRESSIONS.get(type_, ())
        return tuple(t for t in (*own, *written, *extra) if self._holds(t))

    @lru_cache(maxsize=4)  # noqa: B019
    def conditions(self) -> tuple[str, ...]:
        written = writing.CONDITIONS if self.writes else ()
        return tuple(t for t in (*CONDITIONS, *written) if self._holds(t))

    @lru_cache(maxsize=4)  # noqa: B019
    def statements(self) -> tuple[str, ...]:
        extra = RISKY_STATEMENTS if self.raises else ()
        written = writing.STATEMENTS if self.writes else ()
        return tuple(t for t in (*STATEMENTS, *written, *extra) if self._holds(t))

    def _holds(self, template: str) -> bool:
        return {hole[1] for hole in HOLE.findall(template)} <= self.types | {"new"}


@dataclass(slots=True)
class Scope:
    """The names of one function: their types, those not to assign, those that differ by thread."""

    types: dict[str, str] = field(default_factory=dict)
    readonly: set[str] = field(default_factory=set)
    varied: tuple[str, ...] = ()
    result: str = ""
    loops: int = 0
    nesting: int = 0
    max_loops: int = 2
    jumps: bool = False


class Writer:
    """Draws choices and collects the lines of a module."""

    def __init__(self, draw: Any, features: Features) -> None:
        self.draw = draw
        self.features = features
        self.lines: list[str] = []
        self.level = 0
        self.scope = Scope()
        self.helpers: dict[str, list[str]] = {}
        self.budget = 24
        self._count = 0

    def below(self, n: int) -> int:
        number: int = self.draw(_below(n))
        return number

    def chance(self, one_in: int) -> bool:
        return self.below(one_in) == one_in - 1

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._count}"

    def line(self, text: str) -> None:
        self.lines += ["    " * self.level + part for part in text.split("\n")]

    @contextmanager
    def indented(self, header: str) -> Iterator[None]:
        self.line(header)
        self.level += 1
        yield
        self.level -= 1

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """An indented suite; the names that it defines are out of scope behind it."""
        before = dict(self.scope.types), set(self.scope.readonly)
        self.scope.nesting += 1
        with self.indented(header):
            yield
        self.scope.nesting -= 1
        self.scope.types, self.scope.readonly = before

    def names(self, type_: str, assignable: bool = False) -> list[str]:
        hidden = self.scope.readonly if assignable else ()
        wanted = {"float": ("float", "int"), "opt": ("opt", "int")}
        types = (type_,) if assignable else wanted.get(type_, (type_,))
        found = [
            n for t in types for n, u in self.scope.types.items() if u == t and n not in hidden
        ]
        return found + [n for n in found if n in self.scope.varied] * 2

    def declare(self, type_: str, value: str, name: str = "") -> str:
        name = name or self.fresh(type_)
        self.line(f"{name} = {value}")
        self.scope.types[name] = type_
        return name

    def atom(self, type_: str) -> str:
        """A name in scope, or (one time in four where there is a name) a literal."""
        names = self.names(type_)
        literals = LITERALS.get(type_, ())
        return self.pick(literals if literals and (not names or self.chance(4)) else names)

    def expression(self, type_: str, depth: int) -> str:
        templates = [*self.features.expressions(type_), *self.helpers.get(type_, ())]
        choice = self.below(len(templates) + 3) if depth > 0 else 0
        if choice >= 3 and self.fits(templates[choice - 3]):
            return self.fill(templates[choice - 3], depth - 1)
        return self.atom(type_)

    def condition(self) -> str:
        templates = [t for t in self.features.conditions() if self.fits(t)]
        return self.fill(self.pick(templates), 1)

    def statement(self) -> None:
        """One statement of the table, or none where a hole has no name to fill it."""
        templates = self.features.statements()
        choice = self.below(len(templates) + 1)
        if choice and self.fits(templates[choice - 1]):
            self.line(self.fill(templates[choice - 1], 2))

    def fits(self, template: str) -> bool:
        return all(
            type_ == "new" or self.names(type_, bool(var)) or not (var or label)
            for var, type_, label in HOLE.findall(template)
        )

    def fill(self, template: str, depth: int) -> str:
        chosen: dict[str, str] = {}

        def text(match: re.Match[str]) -> str:
            var, type_, label = match.groups()
            if label and label in chosen:
                return chosen[label]
            if type_ == "new":
                filled = self.fresh("new")
            elif var or label:
                filled = self.pick(self.names(type_, bool(var)))
            else:
                filled = self.expression(type_, depth)
                bare = ATOM.fullmatch(filled) or _enclosed(template, match)
                return filled if bare else f"({filled})"
            return chosen.setdefault(label, filled) if label else filled

        return HOLE.sub(text, template)


def _enclosed(template: str, hole: re.Match[str]) -> bool:
    """The hole is a whole argument, element or assigned value: no parentheses are needed."""
    end = template[hole.end() : hole.end() + 1]
    return end in ("", ")", "]", ",", "\n") and bool(ENCLOSED.search(template[: hole.start()]))
