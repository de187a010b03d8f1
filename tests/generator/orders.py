"""Random programs of functions that write and read the same things, in an order that shows.

Closures of one code call each other and themselves, in sums, loops and lists, by ``partial``, a
lambda or another name; between the calls they write and read a list, a dict, a tensor, an instance
that they are given. ``program(n, given, t)`` gets a number, a list of the thread's own and a tensor
``[2]``; it returns what all of these are in the end.
"""

from __future__ import annotations

import random

GIVEN = "xs, d, t, o"
WRITES = (
    *("xs += [n]", "xs.append(n)", "xs.insert(0, n)", "xs.reverse()", "xs.extend([n, v % 5])"),
    *("xs *= 2 if len(xs) < 4 else 1", "ys = xs\nys += [v % 7]", "add = xs.append\nadd(n)"),
    *("xs.pop() if len(xs) > 2 else None", "del xs[:1]", "xs[-1:] = [n, 5]"),
    *("d[n] = len(xs)", "d[n] = d.get(n, 0) + 1", "d.update({n: v % 9})"),
    *("t += n", "t[0] += n", "t.mul_(2)", "t[n % 2] = n"),
    *("o.xs.append(n)", "o.add(n)", "o.count += 1", "setattr(o, 'last', n)", "o.xs += [n]"),
    *("ys = o.xs\nys += [n]", "if n % 2:\n    xs.append(v % 11)", "w = n\nw += 1\nv += w"),
)
READS = (
    *("v += len(xs)", "v += len(d)", "v += int(t[0]) % 13", "v += int(t.sum()) % 17"),
    *("v += o.count", "v += len(o.xs)", "v += o.last", "v += size(n, xs)", "v += size(n, o.xs)"),
    *("v += looks(n, xs, t)", "v += looks(n, o.xs, t) if n % 2 else 1"),
    *("v += size(n, xs) + size(n + 1, xs)", "v += sum([1 for x in xs if x == n])"),
    "zs = [size(n, xs)]\nzs.append(len(xs))\nzs.append(size(n, xs))\nv += sum(zs)",
)
CALLS = (
    *("v += F(K)", "v += F(K) + G(K)", "v = v + F(K) * len(xs) + F(K)", "v += partial(f, K)(A)"),
    *("v += (lambda m: F(m))(K)", "v += sum([F(n - 1 - i) for i in range(2)])"),
    *("rs = [F(K), G(K)]\nv += rs[0] - rs[1]", "p = G(K)\nv += p if p % 2 else F(K)"),
    *("for i in range(2):\n    v += F(n - 1 - i)", "for g in (f, h):\n    v += g(K, A)"),
    "for i in range(2):\n    F(n - 1 - i)\n    v += size(i, xs)",
    "for i in range(2):\n    v += size(i, xs)\n    xs.append(i)\n    v += size(n, xs)",
    "for i in range(2):\n    v += looks(i, xs, t)\n    t += 1\n    v += looks(i, xs, t)",
    "if n % 2:\n    v += F(K)\nelse:\n    v -= G(K)",
    "fs = [f, h]\nv += fs[n % 2](K, A) + fs[0](K, A)",
)
HEAD = """from functools import partial


class Acc:
    def __init__(self, xs):
        self.xs = xs
        self.count = 0
        self.last = 1

    def add(self, n):
        self.count += n
        self.xs.append(n)
        return self.count


def size(n, xs):
    if n < 0:
        return size(n + 1, xs)
    return len(xs) + n


def looks(n, xs, t):
    if n < 0:
        return looks(n + 1, xs, t)
    return len(xs) + int(t[0]) % 19 + n
"""


class Orders:
    """Such programs, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def source(self) -> str:
        chance, parts = self.random, [HEAD]
        for name, known in (("leaf", ["leaf"]), ("twig", ["leaf"])):
            parts.append(self.function(name, known, chance.randint(0, 1)))
        names = ["leaf", "twig", "a", "b"]
        if chance.random() < 0.7:
            inner = self.function("inner", ["f1", "f2", "inner", "inner"], chance.randint(1, 2))
            parts.append(f"def made(f1, f2):\n{indented(inner)}\n    return inner")
            parts.append("a = made(leaf, twig)\nb = made(a, twig)\nc = made(b, a)")
            names.append("c")
        else:
            parts += [self.function(name, names, chance.randint(1, 2)) for name in "ab"]
        return "\n\n".join([*parts, self.program(names)]) + "\n"

    def program(self, names: list[str]) -> str:
        chance = self.random
        xs = chance.choice(["[0]", "given", "given", "[0] * (n % 2 + 1)"])
        o = chance.choice(["Acc([])", "Acc(xs)", "Acc(given)"])
        lines = [f"xs, d, v = {xs}, {{}}, n", f"o = {o}", *self.body(names, 2)]
        if chance.random() < 0.3:
            calls = f"local(n - 1, {GIVEN}) + {chance.choice(names)}(n - 1, {GIVEN})"
            local = ["if n <= 0:\n    return 1", "xs.append(n)\ngiven.append(3)", f"return {calls}"]
            lines.append(f"def local(n, {GIVEN}):\n{indented(*local)}")
            lines.append(f"v += local(n, {GIVEN}) + local(n - 1, {GIVEN})")
        ends = "v, str(xs), str(given), str(sorted(d.items())), t, str(o.xs), o.count, o.last"
        return f"def program(n, given, t):\n{indented(*lines, 'return ' + ends)}"

    def function(self, name: str, names: list[str], calls: int) -> str:
        begin = ["if n <= 0:\n    return 1", "v = n"]
        lines = indented(*begin, *self.body(names, calls), "return v % 997")
        return f"def {name}(n, {GIVEN}):\n{lines}"

    def body(self, names: list[str], calls: int) -> list[str]:
        """Statements, of which so many call functions of these names."""
        chance = self.random
        found = [self.looking() for _ in range(chance.randint(1, 2))]
        for _ in range(calls):
            found.append(self.calling(names))
            if chance.random() < 0.5:
                found.append(self.looking())
        return found

    def looking(self) -> str:
        return self.random.choice(self.random.choice((WRITES, READS)))

    def calling(self, names: list[str]) -> str:
        chance = self.random
        if chance.random() < 0.15:  # the same again, after something else
            text = self.called("p = F(K)\nBETWEEN\nq = F(K)\nv += p + 2 * q", names)
            return text.replace("BETWEEN", self.looking())
        return self.called(chance.choice(CALLS), names)

    def called(self, text: str, names: list[str]) -> str:
        """The text with functions and arguments in the places of ``F``, ``G``, ``f``, ``h``."""
        chance = self.random
        own = chance.choice(["xs", "xs", "xs", "o.xs", "[v % 3]"])
        lower, given = chance.choice(["n - 1", "n - 1", "n - 2"]), f"{own}, d, t, o"
        first, second = chance.choice(names), chance.choice(names)
        for mark, name in (("F(", first), ("G(", second)):
            pieces = text.split(mark)
            text = pieces[0] + "".join(
                f"{name}({piece[: closing(piece)]}, {given}){piece[closing(piece) + 1 :]}"
                for piece in pieces[1:]
            )
        text = text.replace("(f, h)", f"({first}, {second})").replace(
            "[f, h]", f"[{first}, {second}]"
        )
        text = text.replace("partial(f,", f"partial({first},")
        return text.replace("K", lower).replace("A)", f"{given})")


def closing(text: str) -> int:
    """Where the parenthesis ends that is open before a text without others."""
    return text.index(")")


def indented(*statements: str) -> str:
    lines = [line for statement in statements for line in statement.split("\n")]
    return "\n".join(f"    {line}" if line else line for line in lines)
