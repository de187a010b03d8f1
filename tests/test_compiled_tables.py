"""Dicts and sets that a program makes and writes, as machine code."""

from __future__ import annotations

import pytest

import autobatch
from tests.test_compiled import why_not
from tests.test_compiled_lists import COMPILED, EACH, N, program_of
from tests.test_compiled_rules import hold_each

pytest.importorskip("llvmlite")

STATEMENTS = (
    (
        "c = {}\nfor i in range(9):\n    c[i * a % 4] = c.get(i * a % 4, 0) + 1\n"
        "best = None\nfor k, v in c.items():\n    if best is None or v > best[1]:\n"
        "        best = (k, v)\nreturn best, len(c), sorted(c), max(c.values())"
    ),
    "m = {1: a, 5: b}\nm[a] = 2\ndel m[1]\nreturn m.get(77), 5 in m, 6 not in m, list(m), len(m)",
    (
        "m = {0: 1, 4: 2}\ntry:\n    x = m[a]\nexcept KeyError:\n    x = -1\nreturn x, "
        "m.pop(4), m.pop(4, b), m.setdefault(a, 9)"
    ),
    (
        "s = set()\nfor i in range(a):\n    s.add(i * i % 7)\ns.discard(1)\nreturn len(s), "
        "4 in s, sorted(s), sum(s), max(s, default=-5), bool(s)"
    ),
    (
        "s = {a, 3}\ns.add(5)\ns.remove(a)\nreturn len(s), a in s, min(s), "
        "len({x % 2 for x in (a, 1, 2)})"
    ),
    "s = {(a, 1), (2, 3)}\ns.add((a, 2))\nreturn len(s), (2, 3) in s, (a, 4) in s",
    (
        "m = {}\ndef fib(n):\n    if n < 2:\n        return n\n    if n not in m:\n"
        "        m[n] = fib(n - 1) + fib(n - 2)\n    return m[n]\nreturn fib(30 + a % 5), "
        "len(m)"
    ),
    (
        "m = {i: [] for i in range(4)}\nfor i in range(9):\n    m[i * a % 4].append(i)\n"
        "return [len(v) for v in m.values()], m[a % 4]"
    ),
    "m = {'x': 0, 'y': 1}\nm['x'] += a\nm['z'] = 3\nreturn m['x'], m['y'], len(m), m.get('w', 9)",
    (
        "m = {}\nfor i in range(50):\n    m[i * 1000003 * a] = i\nfor i in range(0, 50, 3):\n"
        "    m.pop(i * 1000003 * a, None)\nreturn len(m), sum(m.values()), sum(m), "
        "list(m)[-1] if m else 0"
    ),
    "m = {a: 1}\nm[3] = 2\nt = m\nt[4] = 5\nm.clear()\nreturn len(t), a in t",
    "m = {}\nfor k in (5, 3, a, 3):\n    m[k] = b\nreturn list(m.items()), sum(m.values())",
    "m = {3: 0}\nm[a] = 1\nreturn [k for k in m], sum(k * v for k, v in m.items()), len({})",
    "s = {i for i in range(30)}\nfor i in range(a):\n    s.discard(2 * i)\nreturn sorted(s)",
    "s = set()\nreturn sum(s), len(s)",
    "m = {}\nt = sum(m.values())\nfor k in m:\n    t += k\nreturn t, len(m.items())",
    "s = set()\nif a > 99:\n    s.add(a)\nreturn max(s, default=b), sum(s)",
)  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize("body", STATEMENTS)
def test_dicts_and_sets_are_those_of_python(body: str) -> None:
    program = program_of(body)
    hold_each(program, EACH, "python")
    with autobatch.counts() as found:
        autobatch.vmap(program, on_error="isolate", **COMPILED)(*EACH)
    assert (found.launches, found.given_up) == (1, 0)


RAISES = (
    "m = {}\nreturn m[a] if b > 1 else len(m)",
    (
        "m = {i: i for i in range(a)}\nfor k in m:\n    m[k] = 5\nfor k in m:\n"
        "    if k == 3:\n        m[100] = 1\nreturn len(m)"
    ),
    (
        "m = {i: i for i in range(a)}\nfor k in m:\n    if k == 3:\n        del m[k]\n"
        "        m[k] = 1\nreturn list(m)"
    ),
    "s = {3}\ns.remove(a)\nreturn len(s)",
    "m = {3: 1}\nm.pop(a)\ndel m[b > 5]\nreturn len(m)",
)  # fmt: skip


@pytest.mark.parametrize("body", RAISES)
def test_what_a_key_raises_is_as_in_python(body: str) -> None:
    hold_each(program_of(body), EACH, "python", is_compiled="b > 5" not in body)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("s = {a, 3}\nt = 0\nfor v in s:\n    t += v\nreturn t", "the order of a set"),
        ("m = {}\nm[b] = a\nreturn len(m)", "not with a Python float"),
        ("m = {}\nm[a] = 1\nreturn 1 if m == {} else 2", "the comparison eq"),
    ],
)
def test_what_has_no_machine_code_is_told(body: str, why: str) -> None:
    said = why_not(program_of(body), N[5:9], EACH[1][5:9], scalars="python")
    assert why in said and "line 1" in said


@pytest.mark.parametrize("total", ["sum(s, 0.0)", "math.prod(s, start=0.1)"])
def test_floats_are_not_added_up_in_an_order_of_their_own(total: str) -> None:
    body = f"s = {{2**53, 1, a, 3, 2**53 + 2}}\nreturn {total}"
    assert "the order of a set" in why_not(program_of(body), *EACH, scalars="python")
    hold_each(program_of(body), EACH, "python", is_compiled=False)
