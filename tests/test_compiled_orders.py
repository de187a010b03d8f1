"""Comparisons of tuples and lists, sorts by a key, heaps and bisections, as machine code."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autobatch
from tests.test_compiled_lists import COMPILED, EACH, program_of
from tests.test_compiled_rules import hold_each

pytest.importorskip("llvmlite")

STATEMENTS = (
    (
        "return (a, b) < (4, 1.0), (a, b) == (4, b), (a,) != (4,), (a, 1) >= (a, 2), (a, (b, "
        "1)) > (a, (b, a)), [a] == (a,), (a,) < (3, 1), () == (), (1, a) == (2,)"
    ),
    (
        "s = [(a, 1), (2, b), (a, -1)]\ns.append((2, 1))\ns.sort()\nreturn s, (2, 1) in s, "
        "s.index((a, 1)), (a, b) in ((1, 2.0), (4, b))"
    ),
    (
        "s = [1, a]\ns.append(3)\nt = [1, a, 2]\nt.append(b)\nreturn s < t, s == t, "
        "s[:] == s, s != [1, a, 3], s >= t, s > t, s <= [1], s is t, s is s, s is not t"
    ),
    (
        "s = [i * a % 7 for i in range(20)]\nreturn sorted(s, key=lambda v: -v), sorted(s, "
        "key=lambda v: v % 3, reverse=True), sorted((a, b, 1), key=abs)"
    ),
    (
        "s = [(i * a % 7, i) for i in range(9)]\ns.sort(key=lambda p: p[0], reverse=a > 3)\n"
        "t = sorted(s, key=None)\nreturn s, t, max(s), min(s, key=lambda p: (p[1], -p[0]))"
    ),
    "s = [3, 1, 2]\ns.append(a)\ns.sort(key=s.count)\nreturn s",
    (
        "s = [3, a]\ns.append(1)\nt = 0\nfor i, v in enumerate(s, 1):\n"
        "    t = t * 7 + i * v\nfor i, v in enumerate((a, b), start=a):\n    t = t + i * v\n"
        "return t, max(enumerate(s), key=lambda p: p[1]), max(zip(s, s))"
    ),
    "return sorted([(a, b), (3, 0.5), (a, 0.25)]), max((a, b), (3, 1.5)), min([a, 1], [3, b])",
    "s = [(a, 1)]\ns.append((math.nan, 2))\nreturn len(s), (math.nan, 1) == (b, 1), s[0] < (b, 1)",
    "s = [a, math.nan]\ns.append(1)\nt = [a, b, 1]\nt.append(2)\nreturn s < t, s == t, s >= t",
    (
        "h = []\nfor i in range(12):\n    heapq.heappush(h, (i * a % 7, i))\n"
        "x = heapq.heappop(h)\nreturn x, h[0], h[-1], h, len(h)"
    ),
    "h = [i * a % 11 for i in range(9)]\nheapq.heapify(h)\nreturn h, heapq.heappop(h), h",
    "h = []\nreturn heapq.heappop(h) if a > 3 else len(h)",
    (
        "s = []\nfor i in range(9):\n    bisect.insort(s, i * a % 5 + b * 0)\nreturn s, "
        "bisect.bisect_left(s, a), bisect.bisect(s, a), bisect.bisect_left((1, 4, 9), a)"
    ),
    "s = []\nfor i in range(6):\n    bisect.insort_left(s, (i * a % 3, i))\nreturn s",
)  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize("body", STATEMENTS)
def test_comparisons_and_orders_are_those_of_python(body: str) -> None:
    hold_each(program_of(body), EACH, "python")


def test_a_loop_over_tuples_ends_where_they_do() -> None:
    def program(n: int) -> Any:
        points = sorted((i * n % 7, i) for i in range(6))
        found: list[Any] = []
        for point in points:
            while len(found) > 1 and found[-1] < point and point[0] == 3:
                found.pop()
            found.append(point)
        return len(found)

    n = torch.arange(40)
    with autobatch.counts() as seen:
        results = autobatch.vmap(program, **COMPILED)(n)
    assert results.tolist() == [program(each) for each in range(40)]
    assert (seen.launches, seen.given_up) == (1, 0)
