"""The standard library and builtins on what differs by thread."""

# ruff: noqa
# What users write, idiomatic or not, is what the corpus is for.

from __future__ import annotations

import bisect
import collections
import copy
import functools
import heapq
import itertools
import math
import operator
import re
import string
from collections import Counter, OrderedDict, defaultdict, deque
from fractions import Fraction

import numpy as np
import torch

from tests.language.common import case, seen


@case((5, 3), (2, 2), (9, 7))
def heaps(n, k):
    heap = []
    for i in range(n):
        heapq.heappush(heap, (i * k) % 7)
    out = [heapq.heappop(heap) for _ in range(2)]
    rest = [4, n, k]
    heapq.heapify(rest)
    return out, rest[0], heapq.nsmallest(2, [n, k, 5]), heapq.heappushpop(rest, 0), len(heap)


@case((0, 3), (1, 3), (0, 1))
def dijkstra(source, target):
    graph = {0: [(1, 4), (2, 1)], 1: [(3, 1)], 2: [(1, 2), (3, 5)], 3: []}
    distance = {source: 0}
    queue = [(0, source)]
    while queue:
        d, node = heapq.heappop(queue)
        if node == target:
            return d, distance
        for neighbor, cost in graph[node]:
            new = d + cost
            if neighbor not in distance or new < distance[neighbor]:
                distance[neighbor] = new
                heapq.heappush(queue, (new, neighbor))
    return None, distance


@case((4.0, 2), (0.5, 3), (9.0, 1), (-1.0, 2))
def maths(x, n):
    return (
        math.sqrt(x),
        math.exp(x),
        math.floor(x),
        math.ceil(x),
        math.pi * x,
        math.gcd(n, 6),
        math.factorial(n),
        math.isclose(x, 4),
        math.log(x),
        math.hypot(x, n),
        math.inf > x,
        math.comb(5, n),
        math.copysign(1, x),
        math.prod([x, n]),
        math.fsum([x, x]),
        math.trunc(x),
    )


@case((3,), (1,), (4,))
def iteration_tools(n):
    pairs = list(itertools.product(range(2), range(n)))
    chained = list(itertools.chain([1, 2], range(n)))
    sums = list(itertools.accumulate([1, 2, n]))
    grouped = [(k, list(g)) for k, g in itertools.groupby([1, 1, 2, n])]
    taken = list(itertools.islice(itertools.count(n), 3))
    longest = list(itertools.zip_longest([1, 2, 3], range(n), fillvalue=None))
    combos = [a * b for a, b in itertools.combinations([n, 2, 3], 2)]
    total = 0
    for a, b in itertools.pairwise([1, n, 3]):
        total += a * b
    star = list(itertools.starmap(pow, [(n, 2), (2, n)]))
    return pairs, chained, sums, grouped, taken, longest, combos, total, star


@case((3, 2), (1, 5))
def function_tools(n, k):
    def scale(a, b, c=1):
        return a * b + c

    double = functools.partial(scale, 2)
    with_c = functools.partial(scale, c=n)
    red = functools.reduce(lambda a, b: a * k + b, [1, 2, n], 0)
    plus = functools.reduce(operator.add, [n, k, 1])
    return double(k), double(k, c=n), with_c(1, 2), red, plus, operator.itemgetter(1)([n, k])


@functools.lru_cache(maxsize=None)
def cached_fib(n):
    return n if n < 2 else cached_fib(n - 1) + cached_fib(n - 2)


@functools.cache
def cached_square(x):
    return x * x


@case((5,), (0,), (10,))
def caches(n):
    return cached_fib(n), cached_square(n) + cached_square(3)


@case((3, 1, 2), (5, 5, 4), (-1, 0, 1))
def sorting(a, b, c):
    xs = [a, b, c]
    ys = sorted(xs)
    zs = sorted(xs, reverse=True)
    by = sorted([(a, "a"), (b, "b"), (c, "c")], key=lambda p: p[0])
    xs.sort(key=lambda v: -v)
    names = sorted(["pear", "fig"], key=len)
    return (
        ys,
        zs,
        by,
        xs,
        names,
        sorted({a, b, c}),
        sorted("hello"),
        sorted(range(a, a + 3), key=lambda v: -v),
    )


@case((3, 1, 2), (5, 5, 4), (-1, 0, 1))
def extremes(a, b, c):
    xs = [a, b, c]
    return (
        min(xs),
        max(a, b),
        max(xs, key=lambda v: -v),
        min(xs, key=abs),
        max(xs, default=0),
        min([], default=c),
        max((a, "x"), (b, "y")),
        min("b", "a"),
        max({a: 1, b: 2}),
        xs.index(max(xs)),
        min(enumerate(xs), key=lambda p: p[1]),
        max(len(s) for s in ["a", "bb"]),
    )


@case((3, 1, 2), (5, 5, 4), (-1, 0, 1))
def orderings(a, b, c):
    return (
        (a, b) < (b, c),
        [a, b] <= [a, c],
        (a,) < (a, b),
        (a, b) == (b, a),
        [a] != [b],
        (a, "x") > (b, "y"),
        ((a, b), c) < ((b, a), c),
        a < b < c,
        () < (a,),
    )


@case(("abracadabra",), ("hello world",), ("",))
def counting(text):
    counts = Counter(text)
    groups = defaultdict(list)
    for i, ch in enumerate(text):
        groups[ch].append(i)
    by_hand = {}
    for ch in text:
        by_hand[ch] = by_hand.get(ch, 0) + 1
    order = OrderedDict(sorted(by_hand.items()))
    return counts.most_common(1), dict(groups), by_hand, list(order), len(counts), counts["a"]


@case((3,), (1,), (6,))
def deques(n):
    d = deque([1, 2])
    for i in range(n):
        d.append(i)
        d.appendleft(-i)
        if len(d) > 4:
            d.popleft()
    d.rotate(1)
    return list(d), d[0], d[-1], n in d


@case((0, 5), (2, 3), (1, 1))
def breadth_first(start, goal):
    edges = {0: [1, 2], 1: [3], 2: [3, 4], 3: [5], 4: [5], 5: []}
    queue, visited = deque([(start, 0)]), {start}
    while queue:
        node, d = queue.popleft()
        if node == goal:
            return d
        for other in edges[node]:
            if other not in visited:
                visited.add(other)
                queue.append((other, d + 1))
    return -1


@case((3, 7), (2, 9))
def numbers_of_python(a, b):
    return (
        divmod(b, a),
        pow(a, b, 5),
        round(b / a, 2),
        int("12") + a,
        float(a),
        bin(a),
        hex(b),
        a.bit_length(),
        (b / a).is_integer(),
        int(b / a),
        abs(a - b),
        complex(a, b),
        round(b / a),
        str(a),
        repr(b / a),
        int(True),
        a**-1,
        -b // a,
        -b % a,
        ord("a") + a,
        chr(97 + a),
        Fraction(a, b),
        sum([a, b], 10),
        a.__class__,
        float("inf") > a,
        (a + 0.5).hex(),
    )


@case((3, 7), (2, 9))
def bit_tricks(a, b):
    n, ones = a ^ b, 0
    while n:
        n &= n - 1
        ones += 1
    return ones, a << b, b >> 1, ~a, a | b, a & b, (1 << 70) % b, bin(a).count("1")


@case(("a-b,c",), ("x",), ("1,2;3",))
def texts(s):
    words = s.replace(";", ",").split(",")
    caps = [w.upper().strip() for w in words]
    joined = "+".join(caps)
    n = 0
    for ch in s:
        if ch.isalpha():
            n += ord(ch)
        elif ch.isdigit():
            n -= int(ch)
    return (
        joined,
        n,
        s[::-1],
        s[0],
        s[-1:],
        len(s),
        "b" in s,
        s.find(","),
        s.startswith("a"),
        s.center(9, "*"),
        s * 2,
        s + "!",
        s > "b",
        s.partition(","),
        "%s!" % s,
        "{:>6}|{}".format(s, n),
        f"{s:<7}|{n:05d}|{len(s)=}",
        s.title(),
        s.encode(),
        re.sub(r"\d", "#", s),
        tuple(s)[:2],
        s.join(["1", "2"]),
        s.isalpha(),
        s.count(","),
        min(s),
        sorted(set(s)),
        s == s[::-1],
    )


@case((3, 2.5), (12, -0.125))
def formats(n, x):
    return (
        f"{n}",
        f"{x:.3f}",
        f"{n:>5}|{x:+.1e}",
        f"{n!r}{x!s}",
        "%d %.2f" % (n, x),
        f"{n=}",
        f"{n:{n}d}",
        "{a}-{0}".format(n, a=x),
        str(n).zfill(4),
        f"{[n, x]}",
        f"{(n,)}",
        f"{ {'k': n} }",
    )


@case((3,), (0,), (5,))
def sets(n):
    s = {1, 2, n}
    t = set(range(n))
    u = {i % 3 for i in range(n)}
    s.add(n + 1)
    s.discard(1)
    frozen = frozenset(t)
    return (
        s,
        s | t,
        s & t,
        s - t,
        s ^ t,
        n in s,
        len(u),
        t <= s,
        frozen,
        sorted(u),
        {2} < s,
        1 not in t,
    )


@case((3, "a"), (0, "b"), (5, "a"))
def dicts(n, key):
    d = {"a": 1, "b": [n], key: n}
    d["c"] = n * 2
    d.setdefault("d", []).append(n)
    e = {**d, "z": 0}
    squares = {i: i * i for i in range(n)}
    inverse = {v: k for k, v in squares.items()}
    popped = d.pop("c")
    missing = d.pop("q", None)
    d.update(x=1, y=n)
    d |= {"w": n}
    total = 0
    for k, v in squares.items():
        total += k * v
    del e["z"]
    return (
        d,
        e,
        squares,
        inverse,
        popped,
        missing,
        total,
        list(d),
        list(d.keys()),
        "a" in d,
        d.get("nope"),
        d.get(key),
        sorted(squares.values()),
        len(d),
        dict(zip("ab", [n, 1])),
        dict(a=n),
        max(d, key=len),
        dict.fromkeys("ab", n),
        list(reversed(d)),
        d == e,
        {"a": n} == {"a": 3},
        d.items() <= d.items(),
    )


@case((3,), (0,), (5,))
def missing_keys(n):
    d = {i: i for i in range(4)}
    return d[n]


@case(([3, 1, 2], 1), ([5], 0), ([2, 2], 1))
def lists(xs, i):
    ys = xs[:]
    ys.append(i)
    ys.insert(0, 9)
    ys += [7, 8]
    ys.extend(x for x in xs if x > 1)
    ys[1:2] = [0, 0]
    del ys[0]
    zs = ys.copy()
    zs.reverse()
    zs.remove(7)
    first, *middle, last = ys
    return (
        ys,
        zs,
        xs[i],
        xs[-1],
        ys.index(8),
        ys.count(2),
        ys[::2],
        xs + [i],
        xs * 2,
        3 in xs,
        len(zs),
        first,
        middle,
        last,
        ys.pop(),
        ys.pop(0),
        [*xs, i],
        list(enumerate(xs)),
        list(zip(xs, ys)),
        [a for a in xs if a != i],
        any(x > 2 for x in xs),
        all(xs),
        xs == [5],
        list(map(str, xs)),
        list(filter(None, xs)),
        sum(xs),
        list(reversed(xs)),
        not xs,
        [[0] * i for _ in range(2)],
    )


@case(([3, 1, 2], 7), ([5], 0))
def index_errors(xs, i):
    return xs[i]


@case((5,), (2,))
def value_errors(n):
    xs = [1, 2, 3]
    xs.remove(n)
    return xs


@case((2, 1.0), (5, 3.0))
def numpy_calls(n, x):
    a = np.arange(4)
    return (
        float(np.sqrt(x)),
        int(a[:n].sum()),
        np.clip(x, 0, 2),
        np.float64(x) * 2,
        float(np.maximum(n, x)),
    )


@case((torch.tensor([1.0, 2.0]),), (torch.tensor([3.0, -1.0]),))
def numpy_arrays(t):
    a = t.numpy()
    b = np.asarray(t) * 2
    return float(a.sum()), torch.from_numpy(b), a.shape, np.mean(a), b.tolist()


@case(([1, 5, 9], 6), ([2], 1))
def bisections(xs, n):
    at = bisect.bisect_left(xs, n)
    ys = copy.copy(xs)
    bisect.insort(ys, n)
    deep = copy.deepcopy([xs, xs])
    return at, ys, deep, deep[0] is deep[1]


@case((3,), (4,))
def higher_order(n):
    def compose(*fs):
        return functools.reduce(lambda f, g: lambda x: g(f(x)), fs)

    def counter():
        state = {"n": 0}

        def tick(by=1):
            state["n"] += by
            return state["n"]

        return tick

    tick = counter()
    other = counter()
    tick()
    adders = [lambda x, i=i: x + i for i in range(n)]
    late = [lambda: i for i in range(n)]
    return (
        compose(lambda x: x + 1, lambda x: x * n)(2),
        tick(n),
        other(),
        [f(10) for f in adders],
        late[0](),
        list(map(lambda a, b: a * b, [n, 2], [3, n])),
    )


@case((3, 4), (0, 2), (5, 5))
def generators(n, k):
    evens = (i for i in range(n) if i % 2 == 0)
    first = next(evens, None)
    pairs = ((i, j) for i in range(n) for j in range(i))
    return (
        first,
        list(evens),
        sum(i * j for i, j in pairs),
        any(i == k for i in range(n)),
        all(i < k for i in range(n)),
        max((i * k % 5 for i in range(n)), default=-1),
        dict((i, i * i) for i in range(n)),
        set(i % 2 for i in range(n)),
        tuple(i for i in range(n) if i),
        ",".join(str(i) for i in range(n)),
        len([i for i in range(n) if i != k]),
        next((i for i in range(n) if i > 1), "none"),
    )


@case((3,), (0,), (2,))
def zips(n):
    out = []
    for i, (a, b) in enumerate(zip(range(n), "abc"), start=1):
        out.append((i, a, b))
    for i in reversed(range(n)):
        out.append(i)
    for a, b in zip([1, 2], [n, n]):
        out.append(a * b)
    cols = list(zip(*[(1, n), (2, n + 1)]))
    return (
        out,
        cols,
        list(range(n, -1, -1)),
        list(range(0, 10, n + 1)),
        list(range(n))[-1:],
        len(range(n)),
        2 in range(n),
        range(n)[0:1],
    )


@case((3,), (0,), (7,))
def walrus(n):
    out = []
    while (n := n - 1) > 0:
        if (h := n // 2) > 1:
            out.append(h)
    return out, n, [y for x in range(4) if (y := x * 2) > 2], (last := n)


@case((1, 2), (2, 0))
def asserting(a, b):
    assert a < 5, f"{a} too large"
    assert b, ("zero", a)
    return a / b


@case((1,), (2,), (3,))
def custom_errors(n):
    if n == 2:
        raise KeyError("two", n)
    if n == 3:
        raise RuntimeError(f"three {n}") from ValueError("cause")
    return n
