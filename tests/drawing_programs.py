"""Random programs that draw: loops, branches, calls and recursions whose way depends on draws.

The source text of a module with ``program(x)``, ``x`` a tensor ``[3]``; it gives one number.
"""

from __future__ import annotations

import random

DRAWS = (
    "torch.rand(())",
    "torch.randn(2).sum()",
    "torch.randint(0, 9, ()).float()",
    "torch.bernoulli(x.abs().clamp(max=1.0)).sum()",
    "torch.normal(x, 1.0).mean()",
    "torch.zeros(3).uniform_(-1.0, 1.0)[1]",
    "F.dropout(x, 0.5).sum()",
    "torch.multinomial(x.abs() + 0.1, 1)[0].float()",
    "torch.randperm(4)[0].float()",
    "random.random()",
    "random.randint(1, 6)",
    "random.gauss(0.0, 1.0)",
)
WITHOUT = ("uniform_", "multinomial", "randperm")
MACHINE = (
    *(each for each in DRAWS if not any(name in each for name in WITHOUT)),
    *("torch.randint(int(x.sum() * 3), 9, (5,)).sum() * 0.5", "random.uniform(-1, 2.5)"),
    *("torch.rand(7)[int(x[0] * 7)]", "torch.rand(5, dtype=torch.float64)[4].float()"),
    *("random.expovariate(2.0)", "random.normalvariate(0.0, 1.0)", "float(random.getrandbits(3))"),
)
"""Draws that have machine code; of lists it has none."""
KINDS = ("add", "add", "if", "while", "for", "list")
HEAD = "import random\nimport torch\nimport torch.nn.functional as F\n"


class Writer:
    """Writes statements; ``names`` are the functions that may be called there."""

    def __init__(
        self, choose: random.Random, draws: tuple[str, ...] = DRAWS, kinds: tuple[str, ...] = KINDS
    ) -> None:
        self.choose, self.draws, self.kinds = choose, draws, kinds

    def draw(self) -> str:
        return self.choose.choice(self.draws)

    def value(self, names: list[str]) -> str:
        if names and self.choose.random() < 0.5:
            calls = [f"{self.choose.choice(names)}(x, depth - 1)" for _ in range(2)]
            return f"({calls[0]} + 0.5 * {calls[1]})" if self.choose.random() < 0.5 else calls[0]
        return self.draw()

    def block(self, names: list[str], level: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.choose.randint(1, 3)):
            lines += self.statement(names, level)
        return lines

    def statement(self, names: list[str], level: int) -> list[str]:
        kind = self.choose.choice(self.kinds) if level else "add"
        value = self.value(names)
        match kind:
            case "if":
                body, other = self.block(names, level - 1), self.block(names, level - 1)
                return [f"if {self.draw()} > 0.5:", *inner(body), "else:", *inner(other)]
            case "while":
                head = f"while total < 4.0 and {self.draw()} < 0.6:"
                return [head, *inner(self.block(names, level - 1)), "    total = total + 0.25"]
            case "for":
                return ["for _ in range(2):", *inner(self.block(names, level - 1))]
            case "list":
                return [f"total = total + sum([{value} for _ in range(2)])"]
        return [f"total = total + {value}"]

    def function(self, name: str, names: list[str], level: int) -> str:
        lines = ["total = torch.zeros(())", "if depth < 0:", "    return total"]
        lines += [*self.block(names, level), "return total"]
        return "\n".join([f"def {name}(x, depth):", *inner(lines)])

    def module(self, depth: int) -> str:
        helper = self.function("helper", [], 0)
        branching = self.function("branching", ["helper"], 1)
        tree = self.function("tree", ["tree", "branching", "helper"], 1)
        main = self.function("main", ["tree", "branching", "helper"], 2)
        program = f"def program(x):\n    return torch.as_tensor(main(x, {depth}))"
        return "\n\n".join([HEAD, helper, branching, tree, main, program])


def inner(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def source(seed: int, depth: int) -> str:
    """``depth`` is how deep calls nest below ``main``."""
    return Writer(random.Random(seed)).module(depth)


def machine_source(seed: int, depth: int) -> str:
    """The same, of what has machine code."""
    return Writer(random.Random(seed), MACHINE, KINDS[:-1]).module(depth)
