"""Programs that mix the parts of the language: structures, effects, functions, modules."""

# ruff: noqa
# What users write, idiomatic or not, is what the corpus is for.

from __future__ import annotations

import functools
import itertools
import math
import random
from dataclasses import dataclass, field

import torch
from torch import nn

from tests.language.common import Node, case, seen

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
ROWS = [(x, n) for x, n in zip(X, (0, 1, 2, 3))]


class Halting(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        with torch.no_grad():
            self.lin.weight.copy_(torch.eye(3) * 0.5)
            self.lin.bias.zero_()

    def forward(self, x):
        while x.abs().max() > 0.3:
            x = self.lin(x)
        return x


HALTING = Halting()
CHAIN = nn.Sequential(Halting(), nn.ReLU(inplace=True), nn.Sequential(nn.Tanh(), Halting()))
HOOKED = Halting()
HOOKED.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
HOOKED.register_forward_hook(lambda module, args, out: out + 1 if out.sum() > 0 else None)
PLAIN = nn.Sequential(nn.ReLU(inplace=True), nn.Tanh())


@case(*ROWS)
def module_chains(x, n):
    y = x * 1.0
    z = PLAIN(y)
    return HALTING(x), CHAIN(x), HOOKED(x), y, z, CHAIN[0](x), len(CHAIN)


@case(*ROWS)
def layers_by_thread(x, n):
    layers = [HALTING, nn.functional.relu, torch.tanh, lambda t: t * n]
    out = layers[n](x)
    for f in layers[: n + 1]:
        out = f(out)
    return out


@case((0,), (1,), (3,))
def lazy_maps(n):
    doubled = map(lambda v: v * 2, [1, 2, n])
    kept = filter(lambda v: v > n, range(5))
    first = next(doubled)
    total = 0
    for v in kept:
        total += v
        if total > 4:
            break
    rest = list(kept)
    names = [s for s in map(str, [1, 2])]
    pairs = zip([1, 2, 3], "abc")
    a, b = next(pairs)
    return first, list(doubled), total, rest, names, a, b, list(pairs), list(map(abs, [-n, n]))


@case((0,), (1,), (3,))
def consumed_iterators(n):
    it = iter([1, 2, 3, n])
    a = next(it)
    s = sum(it)
    left = list(it)
    e = enumerate([n, n + 1])
    i, v = next(e)
    r = reversed([1, 2, n])
    x, *y = r
    z = iter(range(n))
    out = []
    for q in z:
        out.append(q)
        if q == 1:
            break
    return a, s, left, i, v, list(e), x, y, out, list(z), 5 in iter([n, 5])


@case(([1],), ([1, 2],), ([],))
def stars(xs):
    def count(*args, **kwargs):
        return len(args), sorted(kwargs)

    top = max(*xs, 0, -1)
    joined = [*xs, *[9], *range(len(xs))]
    merged = {**{"a": 1}, **{str(x): x for x in xs}}
    return top, joined, merged, count(*[1, 2], **{"k": 1}), print(*xs, sep="-")


@case((1, 2), (3, 4))
def star_calls(a, b):
    def add(x, y, *rest, scale=1, **more):
        return (x + y + sum(rest)) * scale + sum(more.values())

    pair = (a, b)
    options = {"scale": a, "extra": b}
    return add(*pair), add(*pair, 5, 6), add(1, *[2, b], **options), add(**{"x": a, "y": b})


@dataclass
class State:
    total: float = 0.0
    history: list = field(default_factory=list)
    best: dict = field(default_factory=dict)


def step(state, v):
    state.total += v
    state.history.append(v)
    if v not in state.best or state.best[v] < state.total:
        state.best[v] = state.total
    return state


@case((3, 1.5), (0, 2.0), (6, -1.0))
def states(n, x):
    s = State()
    t = s
    for i in range(n):
        s = step(s, x * i)
        if s.total > 5:
            t = State(total=-1.0)
            s.history = []
    return s.total, s.history, s.best, t is s, t.total


@case((3,), (0,), (6,))
def grids(n):
    grid = [[0] * 3 for _ in range(3)]
    for i in range(n):
        grid[i % 3][(i * i) % 3] += i
    rows = [sum(r) for r in grid]
    shared = [[0] * 2] * 2
    shared[0][n % 2] = 7
    flips = list(map(list, zip(*grid)))
    return grid, rows, shared, flips, [c for r in grid for c in r if c], max(max(r) for r in grid)


@case((3,), (0,), (5,))
def aliases(n):
    a = [1, 2]
    b = a
    c = {"x": a}
    if n > 2:
        b.append(n)
    else:
        b = b + [n]
    c["x"].append(0)
    d = (a, b)
    d[0].append(n)
    return a, b, c, a is b, d[0] is c["x"]


@case((3,), (0,), (5,))
def tensors_in_structures(n):
    t = torch.zeros(2)
    d = {"t": t, "l": [t]}
    d["l"][0] += n
    if n:
        d["t"] = d["t"] + 1
    t[0] = -1
    return d["t"], d["l"][0], t, d["t"] is t, d["l"][0] is t


@case((None,), (Node(1, [Node(2), Node(3)]),), (Node(5),))
def optional_objects(node):
    if node is None:
        return 0, None
    total = 0
    for child in node.children:
        total += child.value
    first = node.children[0] if node.children else None
    return total, first.value if first else None, node.total(), node.double, node is not None


@case(("abc", 1), ("xy", 2), ("", 0))
def text_loops(s, n):
    out, vowels = "", 0
    for i, ch in enumerate(s):
        out = ch + out
        if ch in "aeiou":
            vowels += 1
    while len(out) < 4:
        out += "."
    table = {"a": 1, "x": 2}
    return (
        out,
        vowels,
        [table.get(c, 0) for c in s],
        s[n:] if n < len(s) else s,
        s or "empty",
        f"{s!r:>8}",
    )


@case((1,), (2,), (7,))
def printed(n):
    print("start", n)
    if n > 1:
        print("big", n, sep=":", end="\n")
    for i in range(min(n, 2)):
        print(i)
    return n


@case((2, 1), (0, 3), (5, 5))
def short_circuits(n, k):
    xs = [1, 2, 3]
    a = n < 3 and xs[n] > 1
    b = n >= 3 or xs[n]
    i = 0
    while i < len(xs) and xs[i] != k:
        i += 1
    c = xs[i] if i < 3 else None
    d = 10 // (n or 1)
    e = None if n == 0 else 10 // n
    return a, b, i, c, d, e, not a, n and k, n or k, (n > 1) & (k > 1), 0 < n <= k < 6


@case((3,), (0,), (4,))
def loop_else(n):
    for i in range(2, n):
        if n % i == 0:
            found = i
            break
    else:
        found = -1
    k = n
    while k > 0:
        k -= 1
        if k == 2:
            continue
        if k == 1:
            break
    else:
        k = 100
    return found, k


@case((3,), (0,), (2,))
def scopes(n):
    import math as m
    from math import floor, sqrt as root

    x = 10
    f = lambda y, x=x: x + y
    x = n

    def g():
        return x * 2

    def h(k):
        return g() + k if k else h(k + 1)

    del f
    return g(), h(0), m.sqrt(n), root(4), [x for x in range(2)], x, floor(n + 0.5)


@case((3,), (0,), (2,))
def deleted(n):
    x = n
    if n > 1:
        del x
    return x


@case((30,), (5,), (0,))
def ackermann_like(n):
    def even(k):
        return True if k == 0 else odd(k - 1)

    def odd(k):
        return False if k == 0 else even(k - 1)

    def collatz(k, steps=0):
        if k <= 1:
            return steps
        return collatz(k // 2 if k % 2 == 0 else 3 * k + 1, steps + 1)

    def hanoi(k, a="a", b="b", c="c"):
        if k == 0:
            return []
        return hanoi(k - 1, a, c, b) + [(a, c)] + hanoi(k - 1, b, a, c)

    return even(n), collatz(n), len(hanoi(n % 4)), hanoi(n % 3)


@case((12, 18), (7, 3), (0, 5))
def big_numbers(a, b):
    x, y = a, b
    while y:
        x, y = y, x % y
    f = 1
    for i in range(1, a + b):
        f *= i
    return (
        x,
        f,
        f % 1000007,
        f // 3,
        2 ** (a * b),
        -(2**70) + a,
        len(str(f)),
        math.isqrt(f),
        f > 10**12,
    )


@case((0.5, 2), (float("inf"), 1), (-2.0, 0))
def float_edges(x, n):
    return (
        x * n,
        x + n,
        -x,
        x == x,
        x > n,
        math.floor(x) if math.isfinite(x) else None,
        abs(x),
        max(x, n),
        min(n, x),
        bool(x),
        int(n),
        round(x, 1),
        x // (n or 1),
        f"{x:.2f}",
        math.isinf(x),
        sum([x, n]),
        divmod(x, 2) if math.isfinite(x) else 0,
        x**2,
        sorted([x, n, 0]),
        [x, n].index(n),
        (x, n) < (n, x),
    )


@case((0,), (1,), (2,))
def zero_division(n):
    return 10 / n + 10 % (n - 1 or 1)


@case(([3, 1, 2],), ([],), ([5, 5],))
def quicksort(xs):
    def sort(v):
        if len(v) <= 1:
            return v
        pivot, *rest = v
        return (
            sort([x for x in rest if x < pivot]) + [pivot] + sort([x for x in rest if x >= pivot])
        )

    def merge(a, b):
        out, i, j = [], 0, 0
        while i < len(a) and j < len(b):
            if a[i] <= b[j]:
                out.append(a[i])
                i += 1
            else:
                out.append(b[j])
                j += 1
        return out + a[i:] + b[j:]

    return sort(xs), merge(sorted(xs), [2, 4]), xs


@case((4,), (1,), (6,))
def dynamic_programs(n):
    memo = {}

    def ways(k):
        if k < 2:
            return 1
        if k not in memo:
            memo[k] = ways(k - 1) + ways(k - 2)
        return memo[k]

    table = [0] * (n + 1)
    table[0] = 1
    for coin in (1, 2, 5):
        for v in range(coin, n + 1):
            table[v] += table[v - coin]
    sieve = [True] * (n + 2)
    for p in range(2, n + 2):
        if sieve[p]:
            for q in range(p * p, n + 2, p):
                sieve[q] = False
    return ways(n), memo, table, [i for i, s in enumerate(sieve) if s and i > 1]


@case((3, 2), (1, 5), (4, 4))
def unpackings(a, b):
    (x, y), *rest = [(a, b), a, b]
    x, y = y, x
    first, *_, last = range(a + 2)
    [p, [q, r]] = [1, (a, b)]
    m = n = [a]
    m += [b]
    k: int = a
    k **= 2
    z = w = a
    w -= 1
    s, t = {"u": a, "v": b}.items()
    c, d = "xy"
    return x, y, rest, first, last, p, q, r, m is n, n, k, z, w, s, t, c + d


@case((3,), (0,), (5,))
def exceptions_in_helpers(n):
    def check(k):
        if k > 4:
            raise ValueError(f"bad {k}")
        return k

    return [check(i) for i in range(n + 1)]


@case(({"a": 1, "b": [1, 2]}, "b"), ({"a": 5}, "a"), ({}, "z"))
def json_like(d, key):
    def size(v):
        if isinstance(v, dict):
            return 1 + sum(size(x) for x in v.values())
        elif isinstance(v, (list, tuple)):
            return 1 + sum(map(size, v))
        return 1

    d["new"] = {"k": [key]}
    copy = {k: v for k, v in d.items() if k != key}
    return size(d), d.get(key, "none"), copy, key in d, list(d), {**d, "x": 0} == d, d | {"y": 1}


@case((0,), (1,), (2,), (3,))
def unlike_types(n):
    if n == 0:
        x = 1
    elif n == 1:
        x = 2.5
    elif n == 2:
        x = "s"
    else:
        x = [n]
    y = x * 2
    kind = type(x).__name__
    return y, kind, isinstance(x, (int, float)), x if n < 2 else None, str(x)
