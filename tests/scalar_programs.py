"""Random programs of numbers and 0-d tensors: what ``executor="compiled"`` makes machine code of.

``scalar_program(seed)`` writes a helper, perhaps a recursion, and a ``program`` of typed variables:
loops of either kind, branches, early returns, raises. Ints grow, so some threads leave int64; some
divide by zero. What a variable is called says its type (``i…``, ``f…``), so programs are well typed
but where an assignment is drawn that is meant not to be.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.generator.record import GeneratedProgram

NUMBERS = (("int", "int"), ("int", "float"), ("float", "float", "int"), ("int", "bool"))
TENSORS = (("i0", "i0"), ("i0", "f0"), ("f0", "d0", "i0"), ("f0", "f0"))

INTS = (
    "{i} + {i}", "{i} - {i}", "{i} * {i}", "{i} // {c}", "{i} % {c}", "-{i}", "abs({i})",
    "{i} // {i}", "{i} % {i}", "{i} ** 2", "{i} & 7", "{i} | {i}", "{i} ^ {i}", "~{i}",
    "min({i}, {i})", "max({i}, {i})", "({i} if {b} else {i})", "helper({i})", "{i} + ({b})",
    "int({f})", "{i} * 4611686018427387904",
)  # fmt: skip
NUMBER_INTS = (
    "{i} << 2", "{i} >> 1", "round({f})", "math.floor({f})", "divmod({i}, {c})[1]", "int({b})",
    "{i} ** ({i} % 4)", "{i} >> {i}",
)  # fmt: skip
FLOATS = (
    "{f} + {f}", "{f} - {f}", "{f} * {f}", "{f} / {c}", "{f} % {c}", "{f} // {c}", "-{f}",
    "abs({f})", "{f} / {f}", "{f} * 0.5", "{i} / {c}", "({f} if {b} else {f})", "{f} + {i}",
    "{f} % {f}", "{f} // {f}", "{f} ** 2",
)  # fmt: skip
NUMBER_FLOATS = (
    "math.sqrt({f})", "math.sin({f})", "math.exp({f})", "math.log({f})", "float({i})",
    "min({f}, {f})", "max({f}, {f})", "math.atan2({f}, {f})", "math.fmod({f}, {f})", "{f} ** {f}",
    "math.copysign({f}, {f})", "math.tanh({f})", "{i} / {i}",
)  # fmt: skip
TENSOR_FLOATS = (
    "torch.sqrt({f})", "{f}.abs()", "torch.minimum({f}, {f})", "torch.where({b}, {f}, {f})",
    "torch.maximum({f}, {i})",
)  # fmt: skip
BOOLS = (
    "{i} < {i}", "{i} == {i}", "{f} > {f}", "{i} % 2 == 0", "{f} <= {i}", "{i} != {c}",
    "{f} >= 0.5",
)  # fmt: skip
NUMBER_BOOLS = ("not {b}", "({b} and {b})", "({b} or {b})", "math.isnan({f})", "{i} in (1, 2, 5)")
TENSOR_BOOLS = ("({b}) & ({b})", "~({b})")
CONSTANTS = ("2", "3", "-3", "7", "-1", "1", "0")


@dataclass(slots=True)
class Writer:
    random: random.Random
    numbers: bool
    lines: list[str] = field(default_factory=list)
    names: dict[str, list[str]] = field(default_factory=lambda: {"i": [], "f": []})
    depth: int = 1
    taken: int = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def pick(self, kind: str) -> str:
        own = {
            "i": INTS + (NUMBER_INTS if self.numbers else ()),
            "f": FLOATS + (NUMBER_FLOATS if self.numbers else TENSOR_FLOATS),
            "b": BOOLS + (NUMBER_BOOLS if self.numbers else TENSOR_BOOLS),
        }
        return self.random.choice(own[kind])

    def atom(self, kind: str) -> str:
        if kind == "c" or not self.names[kind] or self.random.random() < 0.15:
            return self.random.choice(CONSTANTS if kind != "f" else ("0.5", "1.5", "-2.0", "0.0"))
        return self.random.choice(self.names[kind])

    def expression(self, kind: str, depth: int = 2) -> str:
        if kind == "c" or (kind != "b" and (depth == 0 or self.random.random() < 0.3)):
            return self.atom(kind)
        text = self.pick(kind)
        while "{" in text:
            at = text.index("{")
            inner = self.expression(text[at + 1], depth - 1) if depth else self.flat(text[at + 1])
            text = f"{text[:at]}({inner}){text[at + 3 :]}"
        return text

    def flat(self, kind: str) -> str:
        return f"{self.atom('i')} < {self.atom('c')}" if kind == "b" else self.atom(kind)

    def fresh(self, kind: str) -> str:
        self.taken += 1
        return f"{kind}{self.taken}"

    def statement(self, budget: int) -> None:
        roll = self.random.random()
        if budget <= 0 or roll < 0.45:
            self.assignment()
        elif roll < 0.65:
            self.branch(budget)
        elif roll < 0.8:
            self.while_loop(budget)
        elif roll < 0.92:
            self.for_loop(budget)
        elif roll < 0.96:
            self.line(f"if {self.expression('b')}:")
            self.line("    return " + self.result())
        else:
            self.line(f"if {self.expression('b')}:")
            self.line("    raise ValueError('stop')")

    def assignment(self) -> None:
        kind = self.random.choice("if")
        name = self.random.choice(self.names[kind])
        if self.random.random() < 0.3:
            self.line(f"{name} {self.random.choice('+-*')}= {self.expression(kind, 1)}")
        elif self.random.random() < 0.1:
            self.line(f"{name} = {self.random.choice(self.names[kind])}")
        else:
            self.line(f"{name} = {self.expression(kind)}")

    def suite(self, budget: int) -> None:
        self.depth += 1
        for _ in range(self.random.randint(1, 2)):
            self.statement(budget - 1)
        self.depth -= 1

    def branch(self, budget: int) -> None:
        self.line(f"if {self.expression('b')}:")
        self.suite(budget)
        if self.random.random() < 0.6:
            self.line("else:")
            self.suite(budget)

    def while_loop(self, budget: int) -> None:
        count = self.fresh("k")
        self.line(f"{count} = 0")
        self.line(f"while {count} < 5 and {self.expression('b', 1)}:")
        self.suite(budget)
        self.line(f"    {count} += 1")
        if self.random.random() < 0.3:
            self.line(f"    if {self.expression('b', 1)}:")
            self.line("        break")

    def for_loop(self, budget: int) -> None:
        step = self.random.choice(("", "", ", 2", ", -1"))
        item = self.fresh("k")
        start = "0, " if step else ""
        self.line(f"for {item} in range({start}int({self.atom('i')}) % 6{step}):")
        self.suite(budget)

    def result(self) -> str:
        return f"({', '.join([*self.names['i'], *self.names['f']])},)"


def scalar_program(seed: int) -> GeneratedProgram:
    """A program, its parameters' kinds, and whether threads get Python's numbers."""
    draw = random.Random(seed)
    numbers = draw.random() < 0.6
    kinds = draw.choice(NUMBERS if numbers else TENSORS)
    w = Writer(draw, numbers)
    w.lines = ["import math", "import torch", "", "def helper(n):", "    if n > 3:"]
    w.lines += [
        "        return helper(n % 50 - 2) + 1" if draw.random() < 0.5 else "        return n"
    ]
    w.lines += ["    return n * 2", ""]
    names = "abc"[: len(kinds)]
    w.lines.append(f"def program({', '.join(names)}):")
    for kind, name in zip(kinds, names, strict=True):
        start, own = ("f" if kind[0] in "fd" else "i"), name
        w.line(f"{start}{name} = {own}" if kind != "bool" else f"i{name} = int({own})")
        w.names[start].append(f"{start}{name}")
    for kind in "if":
        if not w.names[kind]:
            other = w.names["f" if kind == "i" else "i"][0]
            w.line(f"{kind}z = {other} * 1.5" if kind == "f" else "iz = 1")
            w.names[kind].append(f"{kind}z")
    for _ in range(draw.randint(2, 5)):
        w.statement(2)
    w.line("return " + w.result())
    return GeneratedProgram(
        "\n".join(w.lines) + "\n", kinds, "python" if numbers else "tensor", True
    )
