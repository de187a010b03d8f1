"""Random programs that change things just before what may have to be looked at again.

A number that leaves its type, or a thread that fails, is seen later than it arises, and what came
after is then done again: nothing that was done before may be done twice. So each level of a
recursion, of one function or of two that call each other, changes a list, a dict, an object or an
iterator, or prints, and then computes what may leave int64, be of another type, or fail. Functions
are called with literals too, and threads are alike in part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from tests.generator.record import load_module

HEAD = """import math


class Record:
    def __init__(self, value):
        self.value = value
        self.items = []

    def add(self, item):
        self.items.append(item)
        self.value += 0.5
"""
PARAMS = "n, x, acc, other, log, record, it"
EFFECTS = (
    "acc += [n]",
    "acc.append(n)",
    "acc += [1]",
    "acc.insert(0, n)",
    "acc.extend([n, x])",
    "if acc:\n    acc[0] += 1",
    "if acc:\n    acc[-1] = n",
    "acc[1:2] = [n]",
    "if len(acc) > 2:\n    acc.pop()",
    "acc += acc[:1]",
    "acc.append(min(n, 2.0))",
    "acc += [n * 2 ** 61]",
    "other += [n]",
    "acc, other = other, acc",
    "log['a'] += n",
    "log[n % 3] = n",
    "record.value += n",
    "record.items += [n]",
    "record.add(n)",
    "acc.append(next(it, n))",
    "acc += [sum(it)]",
    "print(n)",
)
CONDITIONS = (
    "x > math.exp(min(n, 2.0)) * 0.31 + 0.057",
    "x > min(n, 2.0)",
    "max(n, 2.5) > x",
    "n * 2 ** 62 > x",
    "x + n * 3037000500 * 3037000500 > 4",
    "x / (n + 7) > 0.25",
    "x * 2 ** 60 > 5",
    "int(x * 1e18) % 2 == 0",
    "max(x, n, 2) > 2.5",
    "(n << 61) > x",
    "abs(n - 2 ** 63) % 3 == 0",
    "n % 2 == 0",
    "sum(acc[:2]) > x",
    "n > 1 and min(n, 2.0) > x",
)
VALUES = (
    "min(n, 2.0)",
    "min(0.25, n)",
    "x + 1",
    "n * 2 ** 61",
    "x * 0.5",
    "n",
    "max(x, n)",
    "int(x * 1e18)",
    "n + len(acc)",
    "(x if n % 2 else n)",
    "n * n * n",
    "math.exp(min(n, 2.0)) * 0.31",
)
FAILING = ("1 // (n - 2)", "acc[n]", "math.sqrt(x - 2)", "math.exp(x * 400)", "[1, 2][n - 1]")
RESULTS = ("left + right", "min(left, right)", "left", "max(left, 2.0)", "left * 0.5 + right")


@dataclass(frozen=True, slots=True)
class EffectProgram:
    """``source`` defines ``program(a, y)``, of an int and a number."""

    source: str

    def function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = load_module(self.source).program
        return function

    def __repr__(self) -> str:
        return f"<\n{self.source}>"


class Lines:
    """Draws choices and collects lines."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.lines = HEAD.split("\n")
        self.fails = self.chance(4)

    def chance(self, one_in: int) -> bool:
        number: int = self.draw(st.integers(0, one_in - 1))
        return number == one_in - 1

    def pick(self, options: Sequence[str]) -> str:
        picked: str = self.draw(st.sampled_from(options))
        return picked

    def add(self, depth: int, text: str) -> None:
        self.lines += ["    " * depth + line for line in text.split("\n")]

    def step(self) -> None:
        """An effect, a number, or either behind a condition."""
        kind = self.draw(st.integers(0, 5))
        if kind < 3:
            self.add(1, self.pick(EFFECTS))
            if kind < 2:
                self.add(1, f"x = {self.pick(VALUES)}" if kind else f"k = {self.pick(VALUES)}")
        elif kind == 3:
            self.add(1, f"k = {self.pick(VALUES)}")
            self.add(1, self.pick(("acc.append(k)", "acc += [k]")))
        else:
            self.add(1, f"if {self.pick(CONDITIONS)}:")
            self.add(2, self.pick(EFFECTS) if kind == 4 else f"x = {self.pick(VALUES)}")

    def call(self, name: str, less: int) -> str:
        lists = self.pick(("acc, other", "acc, other", "other, acc", "acc[:], acc", "[], acc"))
        value, log = self.pick(VALUES), self.pick(("log", "log", "dict(log)"))
        record = self.pick(("record", "record", "Record(n)"))
        return f"{name}(n - {less}, {value}, {lists}, {log}, {record}, it)"

    def level(self, name: str, following: str) -> None:
        self.add(0, f"\ndef {name}({PARAMS}):")
        self.add(1, f"if {self.pick(('n <= 0', 'n < 2', 'n <= 0 or not n'))}:")
        self.add(2, f"return {self.pick(VALUES)}")
        for _ in range(self.draw(st.integers(1, 3))):
            self.step()
        if self.fails and self.chance(2):
            self.add(1, f"x += {self.pick(FAILING)}")
        if self.chance(3):
            self.add(1, f"if {self.pick(CONDITIONS)}:")
            self.add(2, f"return {self.call(following, 1)}")
        self.add(1, f"left = {self.call(following, 1)}")
        again = self.call(self.pick((name, following)), 2)
        self.add(1, f"right = {again if self.chance(2) else 1}")
        if self.chance(3):
            self.add(1, self.pick((*EFFECTS, "acc += [left]", "other += [min(right, 2.0)]")))
        self.add(1, f"return {self.pick(RESULTS)}")

    def program(self) -> str:
        names = self.pick(("walk", "walk back", "walk back")).split()
        for place, name in enumerate(names):
            self.level(name, names[(place + 1) % len(names)])
        self.add(0, "\ndef program(a, y):")
        start = self.pick(("[], [1]", "[a], [2, 3]", "[1] * (a % 3), []"))
        self.add(1, f"acc, other = {start}")
        self.add(1, "log, record, it = {'a': a, 'b': y}, Record(y), iter([a, 5, y])")
        if self.chance(3):
            self.add(1, "other = acc")
        self.add(1, "t = 0")
        for _ in range(self.draw(st.integers(1, 3))):
            n = self.pick(("a % 5", "a % 4", "(a + 1) % 5", "1", "3"))
            value = self.pick(("y", "y", "0.5", "2"))
            self.add(1, f"t = t + walk({n}, {value}, acc, other, log, record, it)")
        self.add(1, "return str((t, acc, other, log, record.value, record.items, next(it, -9)))")
        return "\n".join(self.lines) + "\n"


@st.composite
def effect_programs(draw: Any) -> EffectProgram:
    return EffectProgram(Lines(draw).program())


@st.composite
def rows(draw: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What ``program`` is given: rows of which some may be alike, or all."""
    size = draw(st.sampled_from((2, 2, 1, 7, 3)))
    ints = draw(st.sampled_from(([4], [4, 3], [0, 1, 2, 3, 4, 5, 7, 9, -1])))
    numbers = draw(st.sampled_from(([4.0], [0.5, 2.25, 6.5], [3, 1], [0.5, 1e3, -2.0])))
    a = [draw(st.sampled_from(ints)) for _ in range(size)]
    y = [draw(st.sampled_from(numbers)) for _ in range(size)]
    exact = torch.int64 if type(numbers[0]) is int else torch.float64
    return torch.tensor(a), torch.tensor(y, dtype=exact)
