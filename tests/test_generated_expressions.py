"""Random programs of generator expressions: kept and taken apart, nested, read late, that raise.

Each thread gives, or raises, what the loop does, whatever engine and executor.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch
from tests.generator.record import load_module
from tests.oracle import assert_matches_loop
from tests.test_properties import QUICK

WAYS = (
    {"engine": "sequential"},
    {"executor": "compiled"},
    {"executor": "auto", "plain": "never"},
    {"executor": "traced"},
    {"executor": "traced", "trace_after": 0, "plain": "never"},
    {"engine": "program_counter", "executor": "compiled"},
)
SOURCES = (
    *("range(a % 5)", "range(b % 3, 6)", "xs", "reversed(xs)", "[a, b, 1]", "range(4, a % 3, -1)"),
    *("(x + 1 for x in xs)", "(x for x in range(a % 4) if x != b)", "sorted(xs)", "xs[a % 2 :]"),
)
ITEMS = (
    *("v", "v + a", "v * b", "v * v - a", "k - v", "v if v % 2 == 0 else b", "12 // (v + a)"),
    *("(v, a)[0]", "twice(v)", "xs[v % 3]", "[v, b][v % 2]", "abs(v) % 4", "-v", "v // 2 + v % 3"),
)
TESTS = (
    *("", "", "", " if v > a", " if v % 2 == 0", " if v", " if v != b", " if 12 // v > 1"),
    *(" if (w := v * 2) > a and w < 20", " if not v == k", " if 0 <= v < 4", " if v in xs"),
)
USES = (
    *(
        "s += sum(E)",
        "s += sum(E, a)",
        "s += any(E)",
        "s += all(E)",
        "out.extend(E)",
        "s += len([*E])",
    ),
    *(
        "out += list(E)",
        "out += tuple(E)",
        "out += sorted(E)",
        "s += max(E, default=-1)",
        "s += min(E)",
    ),
    *("s += next(E, -1)", "s += next(E)", "s += a in (E)", "s += sum(twice(u) for u in E)"),
    *("s += sum(u * i for i, u in enumerate(E))", "s += sum(u * t for u, t in zip(E, range(3)))"),
    *("s += total(E)", "s += sum(map(twice, E))", "s += len({u: 1 for u in E if u > 0})"),
    *("for u in E:\n        s += u\n        if s > 30:\n            break",),
    *("for u in E:\n        k = k + 1\n        s += u * k", "k = sum(E)"),
    *("s += sum(E) if a > b else max(E, default=0)", "first, *rest = [*E, 0]\n    s += first"),
    *("g = E\n    s += next(g, -1)\n    k = a + 1\n    s += sum(g)",),
    *("g = E\n    k = b - 1\n    out += [*g]", "g = E\n    s += sum(g) + sum(g)"),
    *("g = E\n    if a > 1:\n        s += next(g, 7)\n    s += sum(g)",),
    *("try: s += sum(E)\n    except ZeroDivisionError: s -= 1",),
    *("try: out.extend(E)\n    except (ZeroDivisionError, IndexError): out.append(k)",),
    *("try: s += next(E)\n    except StopIteration: s -= 2\n    finally: k += 1",),
)
HEAD = """
def twice(n):
    if n > 3:
        return n
    return n * 2


def total(items):
    t = 0
    for each in items:
        t = t * 2 + each
    return t


def program(a, b, xs):
    s, k, out = 0, 2, []
"""
TAIL = """
    return s, k, len(out), sum(out)
"""


@st.composite
def sources(draw: Any) -> str:
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        item, of, test = (draw(st.sampled_from(some)) for some in (ITEMS, SOURCES, TESTS))
        use = draw(st.sampled_from(USES))
        if ":=" in test and ("for " in use[1:] or "g =" in use):  # Python, or we, do not take it
            test = ""
        made = f"({item} for v in {of}{test})"
        lines.append("    " + use.replace("E", made, 1).replace(" E", made))
    return HEAD + "\n".join(lines) + TAIL


def rows(batch: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, list[list[int]]]:
    draw = random.Random(seed)
    numbers = [[draw.randrange(-3, 8) for _ in range(batch)] for _ in range(2)]
    lists = [[draw.randrange(-2, 7) for _ in range(draw.randrange(5))] for _ in range(batch)]
    return torch.tensor(numbers[0]), torch.tensor(numbers[1]), lists


def check(data: st.DataObject, scalars: str, sizes: tuple[int, ...], some: int) -> None:
    source = data.draw(sources(), label="program")
    first, second, lists = rows(max(sizes), data.draw(st.integers(0, 99), label="seed"))
    program = load_module(source).program
    at = data.draw(st.integers(0, len(WAYS) - 1), label="ways")
    ways = [*WAYS, *WAYS][at : at + some]
    args = (first, second, autobatch.objects(lists))
    assert_matches_loop(program, args, batch_sizes=sizes, configurations=ways, scalars=scalars)


@pytest.mark.parametrize("scalars", ["python", "tensor"])
@settings(QUICK, max_examples=5)
@given(data=st.data())
def test_random_generator_expressions(data: st.DataObject, scalars: str) -> None:
    check(data, scalars, (3,), 2)


@pytest.mark.slow
@pytest.mark.parametrize("scalars", ["python", "tensor"])
@settings(QUICK, max_examples=300, derandomize=False)
@given(data=st.data())
def test_many_random_generator_expressions(data: st.DataObject, scalars: str) -> None:
    check(data, scalars, (1, 2, 7, 33), len(WAYS))
