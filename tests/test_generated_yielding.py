"""Random programs of functions that yield: of a module and within the program, kept, read late.

Each thread gives, or raises, what the loop does, whatever engine and executor.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch
from tests.generator.record import load_module
from tests.oracle import assert_matches_loop
from tests.test_generated_expressions import WAYS, rows
from tests.test_properties import QUICK

BODIES = (
    "for i in range(p % 4):\n    yield i * q + @",
    "i = p\nwhile True:\n    yield i\n    i = i + @ % 3 + 1",
    "if p % 5 > 0:\n    yield from F(p % 5 - 1, q)\n    yield p + @",
    "t = 0\nfor i in range(3):\n    x = yield t\n    t = t + (q if x is None else x)",
    "found = [p, q]\nfor i in range(p % 3):\n    found.append(found[-1] + found[-2])\n"
    "    yield found[-1]\nyield len(found)",
    "for i in range(3):\n    try:\n        yield 6 // (q - i)\n    except ZeroDivisionError:\n"
    "        yield @",
    "for i in range(3):\n    if i == p % 3:\n        continue\n    if @ > 9:\n        return\n"
    "    yield @",
    "r = yield from [p, @]\nyield q\nif r is None:\n    yield 6 // (q - 2)",
)
"""``@`` is an expression of what the function sees, ``F`` its own name."""
SEEN = ("p", "q", "p + q", "p * 2 - q", "abs(p) % 4")
AROUND = (*SEEN, "k", "k * p + a", "s % 5", "len(out)", "xs[0] if xs else q", "k - b")
USES = (
    *("s += sum(T)", "s += max(T, default=k)", "s += next(T, k)", "out.extend(T)", "out += [*T]"),
    *("s += sum(v * i for i, v in enumerate(T))", "s += total(T)", "s += len(set(T)) + (a in T)"),
    "for v in T:\n    s += v\n    k += 1",
    "for v in T:\n    s += v\n    if s > 20:\n        break",
    "g = G\ns += next(g, 1)\nk += a\ns += next(g, b)",
    "g = G\nif a > 1:\n    s += next(g, 7)",
    "g = G\nk = b\nfor v, w in zip(g, range(3)):\n    s += v - w\nelse:\n    s -= next(g, k)",
    "made = [G, G]\nfor each in made:\n    s += next(each, k)\n    k += 1",
    "try:\n    s += sum(T)\nexcept ZeroDivisionError:\n    s -= k",
    "s = s + next(G)",
    "for v in T:\n    if v == a:\n        return v, s, k, 0\n    out.append(v)",
    "g = G\ns += sum(cut(g, 2))",
    "for _ in range(a % 3):\n    for v in T:\n        k = k + v % 3\n    s += k",
    "if a > b:\n    g = G\nelse:\n    g = iter(xs)\n    k += 2\ns += next(g, k)",
)
"""``G`` is a call, ``T`` some of what it gives."""
HEAD = """
from itertools import islice as cut


def total(items):
    t = 0
    for each in items:
        t = t * 2 + each
    return t
"""


def indented(text: str, depth: int) -> str:
    return "\n".join("    " * depth + line for line in text.split("\n"))


@st.composite
def sources(draw: Any) -> str:
    def function(name: str, seen: tuple[str, ...], depth: int) -> str:
        body = draw(st.sampled_from(BODIES)).replace("F(", f"{name}(")
        while "@" in body:
            body = body.replace("@", f"({draw(st.sampled_from(seen))})", 1)
        default = draw(st.sampled_from(("2", "k" if depth else "3")))
        return indented(f"def {name}(p, q={default}):\n{indented(body, 1)}", depth)

    names = ["of_module", "within"]
    lines = [HEAD, function("of_module", SEEN, 0), "\n\ndef program(a, b, xs):"]
    lines += ["    s, k, out = 0, 2, []", function("within", AROUND, 1)]
    for number in range(draw(st.integers(2, 4))):
        call = f"{draw(st.sampled_from(names))}({draw(st.sampled_from(('a', 'b', 'k', 's % 7')))})"
        use = draw(st.sampled_from(USES))
        use = use.replace("G", call).replace("T", f"cut({call}, {draw(st.integers(1, 4))})")
        lines.append(indented(use, 1))
        if number == 0 and draw(st.booleans()):
            names.append("later")
            lines.append(function("later", AROUND, 1))
    return "\n".join([*lines, "    return s, k, len(out), sum(out)", ""])


def check(data: st.DataObject, sizes: tuple[int, ...], some: int) -> None:
    source = data.draw(sources(), label="program")
    first, second, lists = rows(max(sizes), data.draw(st.integers(0, 99), label="seed"))
    program = load_module(source).program
    at = data.draw(st.integers(0, len(WAYS) - 1), label="ways")
    ways = [*WAYS, *WAYS][at : at + some]
    args = (first, second, autobatch.objects(lists))
    assert_matches_loop(
        program, args, batch_sizes=sizes, configurations=ways, scalars="python", ragged_out="list"
    )


@settings(QUICK, max_examples=10)
@given(data=st.data())
def test_random_functions_that_yield(data: st.DataObject) -> None:
    check(data, (3,), 2)


@pytest.mark.slow
@settings(QUICK, max_examples=300, derandomize=False)
@given(data=st.data())
def test_many_random_functions_that_yield(data: st.DataObject) -> None:
    check(data, (1, 2, 7, 33), len(WAYS))
