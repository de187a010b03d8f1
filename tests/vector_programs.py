"""Generated programs of vectors ``[3]`` and matrices ``[3, 3]`` that view and write each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

HEAD = """import torch


def handed_on(v):
    return v


def second(a, b):
    return b if a.sum() > 0 else b + a


def program(x, m):
"""
VECTORS = (
    *("{v} + 1", "{v} * 2", "{v}.clone()", "{v}", "{m}[0]", "{m}[:, 1]", "{m}.sum(0)", "{m} @ {v}"),
    *("torch.where({v} > 0, {v}, {w})", "{v} + {w}", "handed_on({v})", "{v}.view(3)", "{v}[:]"),
    *("torch.diagonal({m})", "{m}.t()[1]", "{v}.flip(0)", "{m}.reshape(9)[2:5]", "{v}.abs()"),
    *("{m}.t().reshape(9)[:3]", "torch.stack(({v}[0], {w}[1], {v}[2]))", "second({v}, {w})"),
    *("torch.zeros(3, dtype=torch.float64)", "{m}[int({v}.sum() > 0)]"),
    *("{v}[({w} > 0).long()]", "{m}[1][({v} > 0).long() - 1]", "{v}.gather(0, ({w} > 1).long())"),
)
MATRICES = (
    *("{m} + 1", "{m}.clone()", "{m}", "{m}.t()", "{m} * {v}", "torch.outer({v}, {w})", "{m}[:]"),
    *("{m}.contiguous()", "{m}.t().contiguous()", "torch.stack(({v}, {v}, {w}))", "{m} @ {n}"),
    *("{m}.view(9).view(3, 3)", "handed_on({m})", "{m}.reshape(3, 3)"),
    *("{m}[:, ({v} > 0).long()]", "{m}.t()[({w} > 0).long() - 2]", "{v}[({m} > 0).long()]"),
)
SCALARS = (
    *("{v}[0]", "{v}.sum()", "{m}[1, 2]", "{v}[-1] * 2", "{v} @ {w}", "{m}[0][1].clone()"),
    *("{s}", "{s} + 1", "{s}.clone()"),
)
WRITES = (
    *("{v}[0] = 5.0", "{v}[1] = {w}[2]", "{v}[0] += 1", "{v} += 1", "{v}[1:] *= 2", "{m}[0] = {v}"),
    *("{m}[1, 2] = 7.0", "{m}[:, 0] += 1", "{v} *= {w}", "{v}[int({v}[0] > 0)] = -1.0", "{s} += 1"),
    *("{m} += {n}", "{v}[-2:] = 0.5", "{m}[0, 1] += {v}[1]", "{v}[2] = {s}"),
    *(
        "{v}[({w} > 0).long()] = {s}",
        "{m}[({v} > 0).long(), 1] += 1",
        "{m}[({v} > 0).long()] = {n}",
    ),
)
MADE = {"v": VECTORS, "m": MATRICES, "s": SCALARS}


@dataclass(slots=True)
class Writing:
    """Lines that are drawn one after the other; ``names`` are of a kind each."""

    random: Random
    names: dict[str, str] = field(default_factory=lambda: {"x": "v", "m": "m", "s": "s"})
    lines: list[str] = field(default_factory=lambda: ["    s = x[0] * 2"])

    def one(self, kind: str) -> str:
        return self.random.choice([name for name, its in self.names.items() if its == kind])

    def filled(self, text: str) -> str:
        picked = {"v": "v", "w": "v", "m": "m", "n": "m", "s": "s"}
        return text.format(**{slot: self.one(kind) for slot, kind in picked.items()})

    def statement(self, depth: int) -> None:
        indent, chance = "    " * (depth + 1), self.random.random()
        if chance < 0.45:
            kind = self.random.choice("vvvmms")
            made = self.filled(self.random.choice(MADE[kind]))
            name = self.one(kind)
            if depth == 0 and self.random.random() < 0.6:
                name = f"t{len(self.names)}"
                self.names[name] = kind
            self.lines.append(f"{indent}{name} = {made}")
        elif chance < 0.78 or depth > 1:
            self.lines.append(indent + self.filled(self.random.choice(WRITES)))
        elif chance < 0.93:
            loop = f"for i{depth} in range(int(x.sum() > 0) + 1):"
            heads = ("if {v}.sum() > 0:", "if {v}.sum() > 1:", loop)
            self.lines.append(indent + self.filled(self.random.choice(heads)))
            for _ in range(self.random.randint(1, 3)):
                self.statement(depth + 1)
        else:
            a, b = self.one("v"), self.one("v")
            self.lines.append(f"{indent}{a}, {b} = {b}, {a}")


def vector_program(random: Random) -> str:
    writing = Writing(random)
    for _ in range(random.randint(3, 9)):
        writing.statement(0)
    return HEAD + "\n".join([*writing.lines, f"    return ({', '.join(writing.names)})", ""])
