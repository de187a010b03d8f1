"""Families of programs: what parameters and names they start with, and what they return.

A program declares its core names first, runs generated statements over them, and returns
a tuple of observations of every core name; an early return observes the same names, so
the structure is one. Each family stresses one part of the design.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from .record import GeneratedProgram
from .statements import control, statement, suite
from .writer import Features, Scope, Writer

PRELUDE = """import contextlib
import math

import torch


class Record:
    def __init__(self, value):
        self.value = value
        self.items = []

    def add(self, item):
        self.items.append(item)
        self.value += 0.5

    def total(self, start):
        return start + sum(self.items)


class Held:
    def __init__(self, tensor):
        self.tensor = tensor
        self.times = 0

    def write(self, other):
        self.times += 1
        self.tensor.add_(other * 1.0)
        return self.tensor


class Managed:
    def __init__(self, log, number, takes):
        self.log = log
        self.number = number
        self.takes = takes

    def __enter__(self):
        self.log.append(self.number)
        if self.number % 7 == 5:
            raise ValueError("entering")
        return self.number

    def __exit__(self, kind, error, trace):
        self.log.append(-1 if kind is None else len(str(error)))
        if self.number % 5 == 4:
            raise KeyError("leaving")
        return self.takes
"""

OBSERVATIONS = {
    "opt": "(-99 if {0} is None else {0})",
    "ints": "len({0}), sum({0}), ({0}[0] if {0} else -99)",
    "tensors": "len({0}), sum(float(t.sum()) for t in {0})",
    "counts": "{0}['a'], {0}['b'], len({0})",
    "record": "{0}.value, len({0}.items), sum({0}.items)",
    "fn": "{0}(1)",
    "table": "{0}['x'], {0}['y'], len({0})",
    "held": "{0}.tensor, {0}.times",
}
# A first int that differs between threads, whatever kind the first parameter has.
FIRST_INT = {
    "int": "a", "float": "int(a)", "i0": "int(a)", "f0": "int(a)", "d0": "int(a)", "b0": "int(a)",
    "f3": "int(a.sum())", "d3": "int(a.sum())", "text": "len(a)", "numbers": "sum(a)",
}  # fmt: skip
TYPE_OF_KIND = {"d0": "f0", "d3": "f3", "b0": "bool", "text": "str", "numbers": "ints"}

NUMBERS = frozenset({"int", "float", "bool", "opt", "ints", "fn"})
TENSORS = frozenset({"int", "float", "bool", "i0", "f0", "i3", "f3", "f2"})
ALIASES = frozenset({"int", "float", "bool", "f0", "f3", "f2", "i3", "ints", "tensors", "record"})
WRITTEN_TYPES = frozenset(
    {"int", "float", "bool", "f0", "f3", "f2", "i3", "m3", "b3", "ints", "counts", "tensors"}
) | {"table", "held", "fn"}
OBJECTS = frozenset({"int", "float", "bool", "opt", "str", "ints", "counts", "record", "fn"})

Core = tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """``core`` is (name, type, initial value) in order; an empty value stands for ``FIRST_INT``."""

    types: frozenset[str]
    params: tuple[tuple[str, ...], ...]
    core: Core
    observe: tuple[str, ...] = ()
    python_numbers: bool = True
    helpers: int = 2
    recursive: bool = False
    writes: bool = False
    budget: int = 22


SCALAR = Family(
    NUMBERS,
    (("int", "int"), ("int", "float"), ("int", "int", "bool"), ("float", "float", "int")),
    (("n", "int", ""), ("m", "int", "0"), ("s", "float", "0.0"), ("xs", "ints", "[]")),
)
TENSOR = Family(
    TENSORS,
    (("f3", "i0"), ("f3", "f0"), ("d3", "f0", "i3"), ("f3", "d3", "i0"), ("f0", "d0", "i0")),
    (
        ("n", "int", ""), ("s", "float", "0.0"), ("t", "f0", "torch.tensor(0.0)"),
        ("y", "f3", "torch.zeros(3)"), ("q", "i3", "torch.zeros(3, dtype=torch.int64)"),
    ),
    python_numbers=False,
    helpers=1,
)  # fmt: skip
ALIAS = Family(
    ALIASES,
    (("f3", "f3"), ("f3", "d3"), ("f3", "f3", "f0")),
    (
        ("y", "f3", "a"), ("v", "f2", "a[:2]"), ("e", "f0", "b[0]"), ("xs", "ints", "[1, 2]"),
        ("ys", "ints", "xs"), ("ts", "tensors", "[a, b, y]"), ("r", "record", "Record(0.0)"),
        ("other", "record", "r"), ("n", "int", ""),
    ),
    observe=("a is y", "xs is ys", "r is other", "r.items is xs", "any(t is a for t in ts)"),
    python_numbers=False,
    helpers=1,
)  # fmt: skip
OBJECT = Family(
    OBJECTS,
    (("text", "numbers"), ("numbers", "int"), ("text", "int", "float"), ("numbers", "numbers")),
    (
        ("w", "str", "'a'"), ("xs", "ints", "[1]"), ("n", "int", ""), ("s", "float", "0.5"),
        ("counts", "counts", "{'a': 0, 'b': 0}"), ("u", "opt", "None"),
        ("r", "record", "Record(1.5)"),
    ),
    observe=("str(xs)", "str(sorted(counts))", "w", "u is None"),
)  # fmt: skip
RECURSIVE = Family(
    NUMBERS | {"f3"},
    (("int", "int"), ("int", "float"), ("int", "f3")),
    (("n", "int", ""), ("s", "float", "0.0"), ("xs", "ints", "[]"), ("y", "f3", "torch.ones(3)")),
    recursive=True,
)
WRITING_PARAMS = (("f3", "f3"), ("f3", "d3"), ("f3", "f3", "f0"), ("d3", "i3"), ("f3", "i3", "f3"))
WRITTEN = Family(
    WRITTEN_TYPES,
    WRITING_PARAMS,
    (
        ("y", "f3", "torch.zeros(3)"), ("m", "m3", "torch.zeros(3, 3)"), ("v", "f3", "m[1]"),
        ("k", "i3", "torch.arange(3)"), ("n", "int", ""),
    ),
    observe=("torch.cos(y)", "v + 1"),
    python_numbers=False,
    helpers=1,
    budget=7,
    writes=True,
)  # fmt: skip
WRITTEN_VIEWS = replace(
    WRITTEN,
    core=(
        ("y", "f3", "a.new_zeros(3)"), ("w", "f2", "y[1:]"), ("m", "m3", "torch.eye(3)"),
        ("q", "m3", "m.t()"), ("n", "int", ""),
    ),
    observe=("torch.cos(m)", "w + 1"),
)  # fmt: skip
WRITTEN_PARTS = replace(
    WRITTEN,
    core=(
        ("y", "f3", "torch.ones(3)"), ("ts", "tensors", "[y, a]"), ("h", "held", "Held(y)"),
        ("t", "table", "{'x': y, 'y': torch.zeros_like(a)}"), ("n", "int", ""),
    ),
    observe=("torch.cos(y)", "any(e is y for e in ts)", "h.tensor is y"),
)  # fmt: skip
WRITTEN_LISTS = replace(
    WRITTEN,
    core=(
        ("xs", "ints", "[2, 1]"), ("counts", "counts", "{'a': 0, 'b': 1}"), ("n", "int", ""),
        ("ts", "tensors", "[]"), ("y", "f3", "torch.zeros(3)"),
    ),
    observe=("str(xs)", "str(counts)", "torch.cos(y)"),
)  # fmt: skip
WRITTEN_CALLS = replace(
    WRITTEN,
    core=(
        ("y", "f3", "torch.zeros(3)"), ("m", "m3", "torch.zeros(3, 3)"), ("ts", "tensors", "[a]"),
        ("h", "held", "Held(y)"), ("xs", "ints", "[1]"), ("n", "int", ""), ("s", "float", "0.0"),
    ),
    observe=("torch.cos(y)",),
    recursive=True,
)  # fmt: skip


class _ProgramWriter(Writer):
    """Writes helpers, then ``program``."""

    call = ""

    def module(self, family: Family, kinds: Sequence[str]) -> str:
        self.lines = PRELUDE.split("\n")
        if family.recursive:
            self._recursion()
        for _ in range(self.below(family.helpers + 1)):
            self._helper()
        self.scope = Scope()
        self.budget = family.budget
        params = [chr(ord("a") + place) for place in range(len(kinds))]
        with self.block(f"\ndef program({', '.join(params)}):"):
            for name, kind in zip(params, kinds, strict=True):
                self.scope.types[name] = TYPE_OF_KIND.get(kind, kind)
            self._body(family, params, kinds)
        return "\n".join(self.lines) + "\n"

    def _body(self, family: Family, params: list[str], kinds: Sequence[str]) -> None:
        for name, type_, value in family.core:
            self.declare(type_, value or FIRST_INT[kinds[0]], name)
        if self.call:
            self.line(self.fill(self.call, 1))
        self.scope.varied = (*params, "n")
        core = [*params, *(name for name, _, _ in family.core)]
        live = [name for name in core if self.chance(2)] if self.chance(2) else core
        seen = [OBSERVATIONS.get(self.scope.types[n], "{0}").format(n) for n in live or core[-1:]]
        text = f"({', '.join((*seen, *family.observe))},)"
        self.scope.result = f"{{'result': {text}}}" if self.chance(6) else text
        for _ in range((self.below(4) + 1) // 2):
            control(self)
            statement(self)
        for _ in range(self.below(4)):
            statement(self)
        self.line(f"return {self.scope.result}")

    def _signature(self) -> list[tuple[str, str]]:
        types = sorted(self.features.types - {"fn", "opt"})
        types.remove("int")
        return [
            (self.fresh("p"), t) for t in ("int", *(self.pick(types) for _ in range(self.below(3))))
        ]

    def _helper(self) -> None:
        """A function that may change its arguments: aliases reach across the call."""
        name, params = self.fresh("helper"), self._signature()
        result = self.pick(sorted(self.features.types - {"fn", "opt", "bool"}))
        self.scope = Scope(dict(params), result="{" + result + "}", max_loops=1)
        self.budget = 5
        with self.indented(f"\ndef {name}({', '.join(p for p, _ in params)}):"):
            suite(self, 2)
            self.line(f"return {self.expression(result, 2)}")
        holes = ", ".join("{" + t + "}" for _, t in params)
        self.helpers.setdefault(result, []).extend([f"{name}({holes})"] * 8)

    def _recursion(self) -> None:
        """One function that calls itself, or two that call each other, at most twice a level."""
        names = [self.fresh("walk") for _ in range(1 + self.below(2))]
        kinds = ("int", "float", "f3", "m3", "tensors", "held")
        type_ = self.pick([kind for kind in kinds if kind in self.features.types])
        for place, name in enumerate(names):
            self._level(name, names[(place + 1) % len(names)], type_)
        call = f"{names[0]}({{int}} % 5, {{{type_}}}, {{ints}})"
        self.call = f"{{var:{type_}}} = {names[0]}(n % 6, {{{type_}}}, {{ints$1}})"
        self.helpers.setdefault(type_, []).extend([call] * 12)

    def _level(self, name: str, following: str, type_: str) -> None:
        self.scope = Scope(
            {"n": "int", "x": type_, "acc": "ints"},
            readonly={"n"},
            varied=("n", "x"),
            result="{" + type_ + "}",
            max_loops=0,
        )
        self.budget = 4
        base = self.pick(("n <= 0", "n < 2", "not n"))
        with self.indented(f"\ndef {name}(n, x, acc):"):
            with self.block(f"if {base}:" if base != "not n" else "if n <= 0 or not n:"):
                self.line(f"return {self.expression(type_, 1)}")
            if self.chance(2):
                self.line("acc.append(n)")
            suite(self, 2)
            first = f"{following}(n - 1, {self.atom(type_)}, {self.pick(('acc', 'acc[:]', '[]'))})"
            if self.chance(3):
                with self.block(f"if {self.condition()}:"):
                    self.line(f"return {first}")
            self.declare(type_, first, "left")
            if self.chance(2):
                self.declare(type_, f"{following}(n - 2, {self.atom(type_)}, acc)", "right")
            self.line(f"return {self.expression(type_, 2)}")


FAMILIES = {
    "scalar": SCALAR,
    "tensor": TENSOR,
    "alias": ALIAS,
    "object": OBJECT,
    "recursive": RECURSIVE,
}
WRITING = {
    "written": WRITTEN,
    "written_views": WRITTEN_VIEWS,
    "written_parts": WRITTEN_PARTS,
    "written_lists": WRITTEN_LISTS,
    "written_calls": WRITTEN_CALLS,
}
_TENSOR_KINDS = {"int": "i0", "float": "d0", "bool": "b0"}
_FEATURES = {
    (name, raises, catches): Features(family.types, raises, catches, family.writes)
    for name, family in (FAMILIES | WRITING).items()
    for raises in (False, True)
    for catches in (False, True)
}


@st.composite
def programs(
    draw: Any, family: str = "scalar", raising: bool | None = None, catching: bool = False
) -> GeneratedProgram:
    """Programs of a family; one in eight may raise on some threads, unless ``raising`` says.

    Where they are ``catching``, they hold ``try`` statements.
    """
    record = (FAMILIES | WRITING)[family]
    raises = draw(st.integers(0, 7)) == 7 if raising is None else raising
    kinds = draw(st.sampled_from(record.params))
    numbers = record.python_numbers and draw(st.integers(0, 2)) < 2
    if not numbers:
        kinds = tuple(_TENSOR_KINDS.get(kind, kind) for kind in kinds)
    features = _FEATURES[family, raises, catching]
    source = _ProgramWriter(draw, _with_kinds(features, kinds)).module(record, kinds)
    large = family == "scalar" and draw(st.integers(0, 3)) == 3
    return GeneratedProgram(source, kinds, "python" if numbers else "tensor", large)


def _with_kinds(features: Features, kinds: Sequence[str]) -> Features:
    types = {TYPE_OF_KIND.get(kind, kind) for kind in kinds}
    return features if types <= features.types else replace(features, types=features.types | types)
