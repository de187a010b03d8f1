"""Lists that a program writes, as machine code: they grow, and are known by one address."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from autobatch.compiled import kernel
from tests.generator.record import load_module
from tests.of_its_own import of_its_own
from tests.oracle import assert_matches_loop
from tests.test_compiled import why_not
from tests.test_compiled_rules import hold_each, outcome, text

pytest.importorskip("llvmlite")

COMPILED = {"executor": "compiled", "scalars": "python"}
SIZES = (0, 1, 2, 7, 64, 1000)
N = torch.arange(1000) % 23 - 3
F = (N.double() * 0.37).masked_fill(N == 5, -0.0)
X = torch.randn(1000, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

SEEN = """
def seen(items):
    kinds, total = 0, 0.0
    for v in items:
        kind = 4 if v is None else 1 if isinstance(v, bool) else 2 if isinstance(v, int) else 3
        kinds = kinds * 5 + kind
        total = total * 1.25 + (7 if v is None else v)
        kinds %= 1000003
    return len(items), kinds, total, bool(items)
"""


def program_of(body: str, names: str = "a, b") -> Callable[..., Any]:
    """A program of some statements; ``seen`` tells what a list holds."""
    source = (
        f"import bisect\nimport heapq\nimport math\nimport torch\n{SEEN}\ndef program({names}):\n"
    )
    found: Callable[..., Any] = load_module(source + textwrap.indent(body, "    ")).program
    return found


def held(function: Callable[..., Any], *columns: Any, exact: bool = True) -> autobatch.Counts:
    """Hold a program to the loop for batches of any size, bit by bit; its counts."""
    places = {"rtol": 0.0, "atol": 0.0} if exact else {}
    sizes = [size for size in SIZES if size <= len(columns[0])]
    assert_matches_loop(
        function, columns, batch_sizes=[*sizes, None], configurations=(COMPILED,),
        scalars="python", **places,
    )  # fmt: skip
    with autobatch.counts() as found:
        autobatch.vmap(function, **COMPILED)(*columns)
    return found


ROWS = 23
EACH = [N[:ROWS], F[:ROWS]]

STATEMENTS = (
    "s = []\nfor i in range(a):\n    s.append(i * b)\nreturn seen(s)",
    "s = [a]\ns.append(a + 1)\nt = s\nt.append(5)\nreturn seen(s), seen(t), s[-1]",
    "s = [a, b]\ns.append(True)\nreturn seen(s)",
    "s = [None] * 4\ns[1] = a\ns[a % 4] = b\nreturn seen(s)",
    "s = [0.5] * a\ns += (a, b)\nreturn seen(s)",
    "s = [a, 2] * 3\nt = s + [b]\ns[0] = 9\nreturn seen(s), seen(t)",
    "s = [1, a, 3]\nx = s.pop()\ny = s.pop(0)\nz = s.pop(-1)\nreturn x, y, z, seen(s)",
    "s = list(range(a))\nreturn s.pop(3), s.pop(-2), seen(s)",
    "s = [i for i in range(6)]\ndel s[a]\nreturn seen(s)",
    "s = [i for i in range(6)]\ndel s[-1]\ndel s[0]\nreturn seen(s)",
    "s = [i for i in range(4)]\ns.insert(a, b)\ns.insert(-a, a)\nreturn seen(s)",
    "s = [i for i in range(9)]\ns[a] = -1\nreturn s[a], seen(s)",
    "s = [i for i in range(9)]\ns[a] += 5\ns[-a] *= 2\nreturn seen(s)",
    "s = [i * b for i in range(9)]\nreturn s[a], s[True], s[-1]",
    "s = [i * i for i in range(12)]\nreturn seen(s[a:]), seen(s[:a]), seen(s[-a:a]), seen(s[::2])",
    "s = [i * i for i in range(12)]\nreturn seen(s[a::-1]), seen(s[::-1]), seen(s[:a:-3])",
    "s = [i * i for i in range(12)]\nreturn seen(s[1:a:a])",
    "s = [3, a, 3, b]\ns.append(3)\nreturn s.index(3), s.count(3), s.index(a), 3 in s, 4 not in s",
    "s = [3, a, b]\ns.append(1)\nreturn s.index(7)",
    "s = [3, a, b]\ns.append(1)\ns.remove(3)\ns.remove(a)\nreturn seen(s)",
    "s = [3, a, b]\ns.append(1)\ns.reverse()\nreturn seen(s)",
    "s = [3, a, b, -0.0, 0.0, 0, True, 1.0, 1]\ns.sort()\nreturn seen(s)",
    "s = [3, a, b, -0.0, 0.0, 0, True, 1.0, 1]\ns.sort(reverse=True)\nreturn seen(s)",
    "s = [i * a % 7 for i in range(40)]\nreturn seen(sorted(s)), seen(sorted(s, reverse=a > 4))",
    (
        "s = sorted([a, 3, -1])\nt = sorted((b, 1.5, -0.0, 0.0), reverse=True)\n"
        "return s, t, s[1], t[a % 4]"
    ),
    "s = []\ns.extend(range(a))\ns.extend(s)\ns.extend([b, 1])\ns.extend((2,))\nreturn seen(s)",
    (
        "s = [1, 2]\nt = s.copy()\nt.append(a)\nu = list(s)\nu.append(b)\n"
        "return seen(s), seen(t), seen(u)"
    ),
    "s = [1, a]\ns.append(2)\ns.clear()\nreturn seen(s), (s == None), s is None, not s",
    (
        "s = [[0] * 3 for _ in range(4)]\ns[a % 4][a % 3] = a\n"
        "return seen(s[0]), seen(s[1]), seen(s[2])"
    ),
    "row = [0] * 3\ns = [row] * 2\ns[0][1] = a\nreturn seen(s[1]), seen(row)",
    "s = [(a, b)]\ns.append((1, 2.5))\nt, u = s.pop()\nv = s[0][0]\nreturn t, u, v, len(s)",
    "s = [a, b, 3]\ns.append(1)\nx, y, _ = (1, 2, 3)\np, q, r, t = s\nreturn p, q, r, t, x, y",
    "s = [a, b, 3]\ns.append(1)\np, q = s\nreturn p, q",
    "s = []\ntry:\n    s.pop()\nexcept IndexError:\n    s.append(a)\nreturn seen(s)",
    "s = [1]\ns.append(2)\ntry:\n    x = s[a]\nexcept IndexError:\n    x = -1\nreturn x",
    "s = [1]\ns.append(2)\ntry:\n    s[a] = 5\nexcept IndexError:\n    s.append(7)\nreturn seen(s)",
    "s = [1]\ns.append(2)\nreturn s[a]",
    "s = [1]\ns.append(2)\ns[a] = 3\nreturn s[0]",
    "s = []\nreturn s.pop() if a > 3 else len(s)",
    "s = []\nfor i in range(a):\n    s.append(i)\nreturn s.pop(b > 1)",
    "s = [a]\nfor v in s:\n    if v > 0:\n        s.append(v - 1)\nreturn seen(s)",
    "s = [i for i in range(a)]\nfor v in s:\n    s.pop()\nreturn seen(s)",
    (
        "s = [i for i in range(a)]\nt = 0\nfor v in reversed(s):\n    s.append(v)\n"
        "    t = t * 3 + v\nreturn t, len(s)"
    ),
    (
        "s = [i for i in range(a)]\nt = 0\nfor v in reversed(s):\n    s.pop(0)\n"
        "    t = t * 3 + v\nreturn t, len(s)"
    ),
    (
        "s = [i for i in range(a)]\nt = 0\nfor i, v in enumerate(s):\n    t += i * v\n"
        "for v, w in zip(s, s[1:]):\n    t = t * 2 + v * w\nreturn t"
    ),
    "s = [i - 3 for i in range(a)]\nreturn sum(s), any(s), all(s), math.prod(s), max(s), min(s)",
    "s = [i - 3 for i in range(a)]\nreturn max(s, default=b), sum(s, b), max(v * v for v in s)",
    "s = [b, a, 2]\ns.append(True)\nreturn max(s), min(s) + 0.5, sum(s) + 0.5, math.prod(s) * 1.0",
    "s = [b, math.nan]\ns.append(1.0)\nreturn b in s, s.count(1.0), max(s), sum(s)",
    "s = [math.nan]\ns.append(b)\nx = s[0]\nreturn x in s, sorted(s)[0]",
    "s = [a]\nf = lambda v: s.append(v)\nf(b)\nf(3)\nreturn seen(s)",
    "def push(items, v):\n    items.append(v)\n    return items\nreturn seen(push(push([], a), b))",
    (
        "s = []\ndef walk(k):\n    s.append(k)\n    for j in range(k):\n"
        "        if len(s) < 50:\n            walk(j)\nwalk(a % 6)\nreturn seen(s)"
    ),
    (
        "s = [1, 2, 3]\nt = [4, 5, 6]\nfor _ in range(a):\n    s, t = t, s\n    s[0] += t[1]\n"
        "return seen(s), seen(t)"
    ),
    "s = [1, 2, 3, a]\ns[0], s[-1] = s[-1], s[0]\nreturn seen(s)",
    "s = [9223372036854775807]\ns.append(a)\nreturn s[0] + s[1]",
    "s = [2 ** 62]\ns.append(a)\ns.append(s[0] + s[0] + a)\nreturn len(s)",
    "s = [v for v in (a, b, True)]\nreturn seen(s)",
    "s = [v * w for v in range(a) for w in range(v) if v != w + 1]\nv = 5\nreturn seen(s), v",
    (
        "s = [[v + w for w in range(3)] for v in range(a)]\nt = 0\nfor r in s:\n"
        "    for v in r:\n        t = t * 2 + v\nreturn t"
    ),
    "s = [a, *range(2), *(b, 1)]\ns.append(2)\nreturn seen(s)",
    "s = (1, a) + (b,)\ns += (True,)\nreturn s, s * 2, s[1:], s[::-1], s.index(a), len(s)",
    "s = tuple([a, b])\nt = list(s)\nt[0] = 5\nreturn s, seen(t)",
)  # fmt: skip


@pytest.mark.sampled(32)
@pytest.mark.parametrize("body", STATEMENTS)
def test_what_is_done_with_lists(body: str) -> None:
    hold_each(program_of(body), EACH, "python")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("body", STATEMENTS[::3])
def test_what_is_done_with_lists_at_any_size(body: str) -> None:
    program = program_of(body)
    rows = [outcome(program, row) for row in zip(*(c.tolist() for c in EACH), strict=True)]
    good = torch.tensor([at for at, (_, error) in enumerate(rows) if not error])
    for size in (1, 2, 7, 1000):
        columns = [column[good[torch.arange(size) % len(good)]] for column in EACH]
        results = autobatch.vmap(program, on_error="isolate", **COMPILED)(*columns)
        for at, result in enumerate(results):
            value = program(*(column[at].item() for column in columns))
            assert text(result.value) == text(value)


TENSORS = (
    "s = []\ns.append(a)\ns[0] += 1\nreturn a, s[0]",
    "s = []\ns.append(a)\na += 1\nreturn a, s[0]",
    "s = []\ns.append(a + 1)\nv = s[0]\nv += 1\nreturn v, s[0]",
    "s = []\ns.append(a + 1)\nt = s[0]\ns[0] += 1\nreturn t, s[0]",
    "z = torch.zeros(3)\ns = []\ns.append(z[0])\nz[0] = 5.0\nreturn s[0], z",
    "z = torch.zeros(3)\ns = [z[0]]\ns.append(z[1])\nz += 5.0\nreturn s[0], s[1], z",
    "def f(items, v):\n    items.append(v)\ns = []\nx = a + 1\nf(s, x)\nx += 5\nreturn s[0], x",
    "s = [a, a]\ns.append(b)\nfor v in s:\n    v += 1\nreturn s[0], a",
    "s = [(a + 1, 2)]\ns.append((b, 3))\nt, u = s[0]\nt += 1\nreturn s[0][0], t",
    "s = [a + 1]\ns.append(b)\nt = s.pop()\nt += 1\nreturn t, b",
    "s = [a, 1]\ns.append(b)\nt = sum(s)\nt += 1\nreturn t, s[0], s[2]",
)


@pytest.mark.parametrize("body", TENSORS)
def test_tensors_in_lists_have_other_names(body: str) -> None:
    assert_matches_loop(
        program_of(body), [column.double() for column in EACH], batch_sizes=(1, 2, 7, ROWS),
        configurations=({"executor": "compiled"},), rtol=0.0, atol=0.0,
    )  # fmt: skip


# Programs of textbooks


def sieve(n: int) -> int:
    prime = [True] * (n + 1)
    count = 0
    for i in range(2, n + 1):
        if prime[i]:
            count += 1
            for j in range(i * i, n + 1, i):
                prime[j] = False
    return count


def sieve_by_slices(n: int) -> Any:
    primes = []
    for k in range(2, n):
        if all(k % p for p in primes):
            primes.append(k)
    return len(primes), primes[-1] if primes else 0, sum(primes[::2])


def depth_first(edges: Any, start: int) -> Any:
    seen = [False] * len(edges)
    stack, order = [start], 0
    while stack:
        v = stack.pop()
        if seen[v]:
            continue
        seen[v] = True
        order = order * 7 + v
        for w in range(len(edges)):
            if edges[v, w] and not seen[w]:
                stack.append(w)
    return order, sum(seen)


def breadth_first(edges: Any, start: int) -> Any:
    far: list[Any] = [None] * len(edges)
    far[start] = 0
    queue = [(start, 0)]
    while queue:
        v, d = queue.pop(0)
        for w in range(len(edges)):
            if edges[v][w] and far[w] is None:
                far[w] = d + 1
                queue.append((w, d + 1))
    return sum(d for d in far if d is not None), far.count(None)


def bellman_ford(weights: Any, start: int) -> Any:
    n = len(weights)
    dist = [float("inf")] * n
    dist[start] = 0
    for _ in range(n - 1):
        for u in range(n):
            for v in range(n):
                w = weights[u][v].item()
                if dist[u] + w < dist[v]:
                    dist[v] = dist[u] + w
    return max(dist) + 0.5, dist[0] + 0.0, sum(dist) * 1.0


def levenshtein(s: Any, t: Any) -> int:
    before = list(range(len(t) + 1))
    for i, c in enumerate(s):
        row = [i + 1]
        for j, d in enumerate(t):
            row.append(min(before[j] + (c.item() != d.item()), before[j + 1] + 1, row[j] + 1))
        before = row
    return before[-1]


def longest_rising(x: Any) -> int:
    best = [1 for _ in x]
    for i in range(len(x)):
        for j in range(i):
            if x[j] < x[i]:
                best[i] = max(best[i], best[j] + 1)
    return max(best)


def knapsack(n: int, room: int) -> int:
    table = [[0] * (room + 1) for _ in range(n + 1)]
    for i in range(1, n + 1):
        weight, worth = i % 5 + 1, i * 7 % 11
        for r in range(room + 1):
            table[i][r] = table[i - 1][r]
            if r >= weight:
                table[i][r] = max(table[i][r], table[i - 1][r - weight] + worth)
    return table[n][room]


def merge_sorted(items: Any) -> Any:
    if len(items) < 2:
        return items
    half = len(items) // 2
    left, right = merge_sorted(items[:half]), merge_sorted(items[half:])
    made, i, j = [], 0, 0
    while i < len(left) or j < len(right):
        if j == len(right) or (i < len(left) and left[i] <= right[j]):
            made.append(left[i])
            i += 1
        else:
            made.append(right[j])
            j += 1
    return made


def median(x: Any) -> Any:
    ordered = merge_sorted(x.tolist())
    return ordered[len(ordered) // 2], ordered[0], sorted(x.tolist())[-1]


def postfix(n: int) -> Any:
    stack: list[Any] = []
    for token in (n, 2, "+", 3, "*", n, "-", 2.5, "*"):
        if token == "+":
            stack.append(stack.pop() + stack.pop())
        elif token == "*":
            stack.append(stack.pop() * stack.pop())
        elif token == "-":
            top = stack.pop()
            stack.append(stack.pop() - top)
        else:
            stack.append(token)
    (made,) = stack
    return made


def permutations(n: int) -> Any:
    items, found = list(range(n)), 0

    def go(k: int) -> None:
        nonlocal_free = len(items)
        for i in range(k, nonlocal_free):
            items[k], items[i] = items[i], items[k]
            go(k + 1)
            items[k], items[i] = items[i], items[k]

    go(0)
    for v in items:
        found = found * 10 + v
    return found


def collatz_trail(n: int) -> Any:
    trail = [n]
    while trail[-1] > 1:
        trail.append(trail[-1] // 2 if trail[-1] % 2 == 0 else 3 * trail[-1] + 1)
    return len(trail), max(trail), trail.index(max(trail)), sorted(trail)[len(trail) // 2]


EDGES = torch.rand(1000, 7, 7, generator=torch.Generator().manual_seed(1)) < 0.2
WEIGHTS = torch.randint(1, 9, (1000, 5, 5), generator=torch.Generator().manual_seed(2)).double()
WEIGHTS = WEIGHTS.masked_fill(WEIGHTS > 5, math.inf)
S = torch.randint(0, 3, (1000, 9), generator=torch.Generator().manual_seed(3))
T = torch.randint(0, 3, (1000, 7), generator=torch.Generator().manual_seed(4))
K = torch.arange(1000)
TEXTBOOK: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sieve": (sieve, (K % 120,)),
    "sieve by slices": (sieve_by_slices, (K % 60,)),
    "depth first": (depth_first, (EDGES, K % 7)),
    "breadth first": (breadth_first, (EDGES, K % 7)),
    "Bellman-Ford": (bellman_ford, (WEIGHTS, K % 5)),
    "Levenshtein": (levenshtein, (S, T)),
    "longest rising": (longest_rising, (X,)),
    "knapsack": (knapsack, (K % 6, K % 11)),
    "median": (median, (X,)),
    "postfix": (postfix, (K,)),
    "permutations": (permutations, (K % 4,)),
    "trail": (collatz_trail, (K % 40 + 1,)),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", TEXTBOOK)
def test_programs_of_textbooks(name: str) -> None:
    function, columns = TEXTBOOK[name]
    found = held(function, *columns)
    assert (found.launches, found.given_up) == (1, 0)


# Memory


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of 4 KiB: the blocks take long with lists of a MiB."""
    monkeypatch.setattr(kernel, "HEAP", 2**12)


def filled(n: int) -> int:
    items: list[int] = []
    for i in range(n):
        items.extend([i] * 10)
    return items[-1] + len(items) if items else -1


@pytest.mark.usefixtures("few_bytes")
def test_a_list_beyond_a_threads_memory_gives_up() -> None:
    assert held(of_its_own(filled), torch.tensor([0, 1, 20, 60, 2])).given_up == 1


def of_any_count(n: int) -> int:
    return len([0] * n) if n < 10 else len([0, 1] * n)


@pytest.mark.usefixtures("few_bytes")
def test_counts_that_fit_no_memory_give_up() -> None:
    counts = torch.tensor([-(2**63), -5, 0, 9, 11, 2000])
    assert held(of_its_own(of_any_count), counts).given_up == 1


def forgotten(n: int) -> int:
    total = 0
    for i in range(n):
        row = [i] * 50
        row[3] = 0
        total += row[4] + len(row)
    return total


@pytest.mark.usefixtures("few_bytes")
def test_lists_that_are_forgotten_take_memory_all_the_same() -> None:
    assert held(of_its_own(forgotten), torch.tensor([3, 5, 20])).given_up == 1


def test_a_thread_has_a_mebibyte() -> None:
    found = held(of_its_own(filled), torch.tensor([0, 6000]))
    assert (found.launches, found.given_up) == (1, 0)


# What has no machine code


def test_lists_that_come_from_outside_are_not_written() -> None:
    def program(items: list[Any], n: int) -> Any:
        items.append(n)
        return len(items)

    said = why_not(program, [N[:3], N[:3]], N[:3], scalars="python")
    assert "is written that the program has not made" in said


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("s = [torch.zeros(2)]\ns.append(a)\nreturn len(s)", "a list is written with a tensor of"),
    ],
)
def test_what_has_no_machine_code_is_told(body: str, why: str) -> None:
    said = why_not(program_of(body), N[5:9], F[5:9], scalars="python")
    assert why in said and "line 1" in said
