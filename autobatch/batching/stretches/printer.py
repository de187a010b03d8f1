"""A ``Printer`` collects the lines of a driver, and ``told_apart`` those that change in a loop.

It knows of each variable the expression of its cell, and of a uniform one that of its object. What
it cannot print is ``Undrivable``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Any

from autobatch.batching.stretches.driver_names import NAMES
from autobatch.values.cells import Cell, Uniform, is_mutable

MENTIONED = re.compile(r"env\['([^']*)'\]|\b(env|context|k|looks|outs|roots|[a-z]\d+)\b")
"""What a line reads or assigns: a variable of the program's, or a local name."""
UNUSED = re.compile(r" *(m\d+) = env\['%[^']*'\]")
"""A cell of a temporary that is looked up; where nothing is done with it, for nothing.

A user's variable may have none, which is an error also where it is not used.
"""
OTHERS = frozenset(("env", "context", "k"))
OF_KIND = "  # kind"
"""Ends the lines that check of a variable's column what the replay that makes it settles."""

ANEW = "  # for k"
"""Ends the lines that make what can be written: a line that mentions ``k`` runs in each round."""


class Undrivable(Exception):
    """The plan is not plain."""


class Printer:
    """Collects the lines of a driver and the objects that they refer to.

    ``env`` has an example of each variable, ``cells`` the expressions of the cells that the
    driver makes, ``objs`` those of uniform variables' objects; ``inputs`` are the operands of the
    replay with the expressions of their cells, ``whole`` the containers among them, ``given`` the
    variables that are in the environment before. ``asks_context``: the driver needs the context.
    ``own`` are the cells of inputs that can be written, ``columns`` the columns of operands that
    can; ``views`` are views among the inputs, in which what is written may show.
    ``picks``: the input at work is an index. ``places`` are the instances that are stored to.
    ``computed`` are the objects of tensors that the driver computes, which no result may show.
    ``columns_of`` are the variables that are checked to be columns of a kind.
    """

    def __init__(self, env: Mapping[str, Cell]) -> None:
        self.env = env
        self.lines: list[str] = []
        self.names: dict[str, Any] = dict(NAMES)
        self.cells: dict[str, str] = {}
        self.objs: dict[str, str] = {}
        self.inputs: list[tuple[str, str]] = []
        self.whole: list[str] = []
        self.seen: set[int] = set()
        self.given: frozenset[str] = frozenset()
        self.asks_context = False
        self.own: list[str] = []
        self.columns: dict[str, str] = {}
        self.views: list[str] = []
        self.picks = False
        self.places: dict[str, str] = {}
        self.parts: dict[tuple[str, str], str] = {}
        self.computed: set[str] = set()
        self.columns_of: set[str] = set()

    def line(self, text: str) -> None:
        self.lines.append(f"    {text}")

    def check(self, condition: str, note: str = "") -> None:
        self.line(f"if {condition}: return False{note}")

    def fresh(self, expression: str, letter: str) -> str:
        """A local name for what an expression gives."""
        name = f"{letter}{len(self.lines)}"
        self.line(f"{name} = {expression}")
        return name

    def anew(self, expression: str) -> str:
        """The same of the cell of what can be written, of which each round has one of its own."""
        return self.fresh(f"{expression}{ANEW}", "m")

    def refer(self, obj: Any) -> str:
        name = f"_{len(self.names)}"
        self.names[name] = obj
        return name

    def spare(self) -> None:
        """Without the cells that no line has a use for."""
        uses = Counter(local for line in self.lines for _, local in MENTIONED.findall(line))
        taken = [UNUSED.fullmatch(line) for line in self.lines]
        self.lines = [
            line
            for line, match in zip(self.lines, taken, strict=True)
            if match is None or uses[match[1]] > 1
        ]

    def cell(self, name: str) -> str:
        """The cell of a variable."""
        known = self.cells.get(name)
        if known is None and name in self.objs and name not in self.given:
            shared = self.env[name].value.shared  # type: ignore[union-attr]
            known = self.fresh(f"Cell(Uniform({self.objs[name]}, {shared}))", "m")
            self.cells[name] = known
        return known or f"env[{name!r}]"

    def obj(self, name: str) -> str:
        """The object of a uniform variable."""
        known = self.objs.get(name)
        if known is None:
            value = self.env[name].value
            if type(value) is not Uniform:
                raise Undrivable
            u = self.fresh(f"{self.cell(name)}.value", "u")
            self.check(f"{u}.__class__ is not Uniform or {u}.shared is not {value.shared}")
            known = self.objs[name] = self.fresh(f"{u}.obj", "o")
        return known


def told_apart(
    lines: Iterable[str], moving: Set[str]
) -> tuple[list[str], list[str], frozenset[str]]:
    """Lines that do the same each time while only ``moving`` variables change, and the others.

    And the local names that these assign.
    """
    steady: list[str] = []
    others: list[str] = []
    changing: set[str] = set(OTHERS)
    for line in lines:
        mentioned = MENTIONED.findall(line)
        if any(name in moving if name else local in changing for name, local in mentioned):
            changing.update(assigned for assigned in [line.strip().partition(" = ")[0]])
            others.append(line)
        else:
            steady.append(line)
    return steady, others, frozenset(changing)


def named(lines: Iterable[str]) -> frozenset[str]:
    """The variables that some lines read or assign."""
    return frozenset(name for line in lines for name, _ in MENTIONED.findall(line) if name)


def unmoved(cell: Cell) -> bool:
    """Whether a variable's cell is the same for some of its threads as for all of them."""
    return type(cell.value) is Uniform and not is_mutable(cell.value)
