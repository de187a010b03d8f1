"""Textbook Python within programs: scopes, closures, comprehensions, texts, numbers, containers."""

# ruff: noqa: E501 (a line of a program is a line here)

from __future__ import annotations

import collections
import functools
import itertools
import math
import operator
import re
import string

import pytest
import torch

from tests.outside_world import assert_same_every_way, program

MODULES = (collections, functools, itertools, math, operator, re, string, torch)
NAMES = {**{module.__name__: module for module in MODULES}, "G": 10, "TABLE": {"a": 1}}
BODIES = {
    "late": ["fs = [lambda: i for i in range(3)]", "r = [f() + n for f in fs]"],
    "late2": [
        "fs = []",
        "for i in range(n % 3 + 1): fs.append(lambda: i * n)",
        "r = [f() for f in fs]",
    ],
    "default": ["fs = [lambda i=i: i * n for i in range(3)]", "r = [f() for f in fs]"],
    "nest": ["r = [[i * j for j in range(i)] for i in range(n % 4)]"],
    "nest2": ["r = [i * j for i in range(n % 3) for j in range(i, 3) if (i + j) % 2]"],
    "wal": ["r = [y for i in range(5) if (y := i * n) % 2]", "r.append(y)"],
    "dictc": ["r = {k: v for k, v in zip('abc', range(n))}", "r = sorted(r.items())"],
    "setc": ["r = sorted({i % (n + 1) for i in range(7)})"],
    "gen": ["g = (i * n for i in range(4))", "r = [next(g), sum(g)]"],
    "any": ["r = [any(i == n for i in range(3)), all(i < n for i in range(2))]"],
    "nonl": [
        "c = 0",
        "def inc(k):",
        "    nonlocal c",
        "    c += k",
        "    return c",
        "r = [inc(i) for i in range(n % 3)] + [c]",
    ],
    "rec": ["def fib(k): return k if k < 2 else fib(k - 1) + fib(k - 2)", "r = [fib(n % 7)]"],
    "mut": [
        "def even(k): return True if k == 0 else odd(k - 1)",
        "def odd(k): return False if k == 0 else even(k - 1)",
        "r = [even(n), odd(n)]",
    ],
    "star": [
        "def f(*a, k=1, **kw): return (len(a), k, sorted(kw))",
        "r = [f(*range(n % 3), k=n, **({'z': 1} if n % 2 else {}))]",
    ],
    "star2": ["a, *b, c = [n, 1, 2, 3][n % 2:]", "r = [a, b, c]"],
    "swap": ["a, b = n, 2", "a, b = b, a", "a, b = b, a + b", "r = [a, b]"],
    "chain": ["r = [0 < n < 3 <= n + 1, n == 1 != 2]"],
    "slices": ["s = list(range(8))", "r = [s[n:], s[:-n or None], s[::n + 1], s[n:1:-1]]"],
    "strs": [
        "s = w * n",
        "r = [s.upper(), s[::-1], s.count('a'), s.find('c'), f'{n:>3}|{n / 3:.2f}|{w!r}', '%d-%s' % (n, w), w.join(['x', 'y'])]",
    ],
    "fmt": ["r = [f'{n:b} {n:x} {n:e} {-n:+d} {n:,}', '{:>5}'.format(w), str(n / 7)[:6]]"],
    "split": ["r = ' '.join(reversed('a b c'.split()[:n])).split(maxsplit=1)"],
    "srt": [
        "r = sorted([('b', n), ('a', 3 - n), ('c', 1)], key=lambda t: (t[1], t[0]), reverse=bool(n % 2))"
    ],
    "cnt": [
        "c = collections.Counter(w * (n + 1))",
        "c.update('ac')",
        "r = c.most_common(1) + sorted(c.items())",
    ],
    "dd": [
        "d = collections.defaultdict(int)",
        "for ch in w * n: d[ch] += 1",
        "r = sorted(d.items())",
    ],
    "od": [
        "d = collections.OrderedDict()",
        "for i in range(n % 4): d[i] = i * i",
        "if n > 1: d.move_to_end(0)",
        "r = list(d.items())",
    ],
    "dq": ["d = collections.deque(range(3), maxlen=3)", "d.append(n); d.rotate(n)", "r = list(d)"],
    "ints": [
        "r = [n // 2, -n // 2, n % 3, -n % 3, n ** 3, n << 2, n & 5, n | 8, n ^ 3, ~n, divmod(n, 2), abs(-n), round(n / 3, 2), pow(n, 3, 5)]"
    ],
    "big": [
        "x = 1",
        "for i in range(1, n * 12 + 1): x *= i",
        "r = [x, x % 1000007, len(str(x)), x.bit_length()]",
    ],
    "flt": [
        "f = n / 7",
        "r = [math.floor(f), math.ceil(f), round(f, 3), f.is_integer(), f.as_integer_ratio()[0] > 0, int(f * 100), math.isclose(f, n * (1 / 7)), f // 0.1, -f % 0.3]",
    ],
    "cond": ["r = ['neg' if n < 1 else 'odd' if n % 2 else 'even', (n and 'yes') or 'no', not n]"],
    "whl": [
        "i, r = n, []",
        "while True:",
        "    i -= 1",
        "    if i < 0: break",
        "    if i % 2: continue",
        "    r.append(i)",
        "else:",
        "    r.append('never')",
    ],
    "fore": [
        "r = []",
        "for i in range(n):",
        "    if i == 2: break",
        "    r.append(i)",
        "else:",
        "    r.append('end')",
    ],
    "trye": [
        "r = []",
        "for i in (2, 1, 0):",
        "    try: r.append(6 // (i - n % 2))",
        "    except ZeroDivisionError as e: r.append(str(e)); continue",
        "    else: r.append('ok')",
        "    finally: r.append('f')",
    ],
    "tryr": [
        "def f(k):",
        "    try:",
        "        if k == 1: return 'one'",
        "        return [1][k]",
        "    except IndexError: return 'ix'",
        "    finally: r.append(k)",
        "r = []",
        "r.append(f(n))",
    ],
    "asrt": [
        "r = []",
        "try:",
        "    assert n < 2, f'big {n}'",
        "except AssertionError as e: r.append(e.args)",
    ],
    "mtch": [
        "match (n, w):",
        "    case (0, _): r = 'zero'",
        "    case (k, 'c') if k > 2: r = k",
        "    case (1 | 2 as k, str() as s): r = [k, s]",
        "    case _: r = None",
    ],
    "mtch2": [
        "match {'k': [n, n + 1], 'w': w}:",
        "    case {'k': [0, *rest], **kw}: r = [rest, sorted(kw)]",
        "    case {'k': [a, b]} if a < b: r = [a, b]",
    ],
    "glob": ["r = [G + n, TABLE['a'], TABLE.get(w[0], -1)]"],
    "lam": [
        "r = list(map(lambda a, b=n: a + b, range(3))) + list(filter(lambda a: a % (n + 1), range(5)))"
    ],
    "red": [
        "r = [functools.reduce(lambda a, b: a * b + n, [1, 2, 3]), functools.reduce(operator.add, [[n], [1]], [])]"
    ],
    "part": [
        "f = functools.partial(pow, n)",
        "r = [f(2), functools.partial(sorted, reverse=True)([n, 1, 2])]",
    ],
    "itr": [
        "r = [list(itertools.accumulate(range(n + 1))), list(itertools.product('ab', range(n % 2 + 1))), list(itertools.combinations(range(4), n % 4)), list(itertools.zip_longest(range(n), 'ab'))]"
    ],
    "itr2": [
        "it = iter(range(6))",
        "r = [next(it, None) for _ in range(n)] + list(itertools.takewhile(lambda q: q < 4, it))",
        "r.append(next(it, 'end'))",
    ],
    "enum": ["r = [(i, c) for i, c in enumerate(w * n, start=n)]"],
    "zip3": ["r = list(zip(range(n), w, [True] * 3, strict=False))"],
    "rev": ["r = [list(reversed(range(n))), w[::-1], list(reversed(w))]"],
    "sum": [
        "r = [sum(range(n)), sum([[n], [1]], []), sum(x * x for x in range(n)), max(n, 2), min([n, 1]), max((n, -1), (1, 5), key=lambda t: t[1])]"
    ],
    "isin": [
        "r = [isinstance(n, int), isinstance(w, (int, str)), type(n).__name__, callable(len), n in range(2), w in 'abc', 'x' not in w]"
    ],
    "rgx": ["r = re.findall(r'[a-b]', w * n) + [re.sub('a', str(n), w), bool(re.match('c', w))]"],
    "bits": [
        "r = [int('101', 2) + n, bin(n), hex(n * 17), ord(w[0]), chr(97 + n), int(str(n) + '0'), float('1e2') * n, bytes([n, 65]).hex()]"
    ],
    "cplx": ["c = complex(n, 1)", "r = [c * c, abs(c), c.conjugate(), c.real]"],
    "setop": [
        "a, b = set(range(n)), {1, 2, 9}",
        "r = [sorted(a | b), sorted(a & b), sorted(a - b), sorted(a ^ b), a <= b, len(a)]",
    ],
    "frz": [
        "d = {frozenset([n, 1]): 'x', frozenset([2]): 'y'}",
        "r = [d.get(frozenset([1, n])), d.get(frozenset([n]), 'none')]",
    ],
    "tupk": [
        "memo = {}",
        "def g(a, b):",
        "    if (a, b) in memo: return memo[a, b]",
        "    memo[a, b] = 1 if not a or not b else g(a - 1, b) + g(a, b - 1)",
        "    return memo[a, b]",
        "r = [g(n, 3), len(memo)]",
    ],
    "delx": [
        "s = list(range(5))",
        "del s[n % 5]",
        "d = {'a': 1, 'c': 2}",
        "del d[w[0]]",
        "x = 1",
        "del x",
        "r = [s, sorted(d)]",
    ],
    "inpl": [
        "s = [1, 2]",
        "t = s",
        "s += [n]",
        "s *= 2",
        "u = s = s + [0]",
        "r = [t, s is u, len(u)]",
    ],
    "glbf": [
        "r = [sorted(string.ascii_lowercase[:n]), math.comb(5, n % 5), math.gcd(n, 6), math.hypot(n, 3)]"
    ],
    "tensr": [
        "t = torch.arange(4.) * n",
        "r = [t.tolist(), float(t.sum()), [float(v) for v in t], t[t > 2].tolist(), t.max().item()]",
    ],
    "tensl": [
        "ts = [torch.full((i + 1,), float(n)) for i in range(3)]",
        "r = [torch.cat(ts).sum().item(), [t.shape[0] for t in ts], torch.stack([t[0] for t in ts]).tolist()]",
    ],
}
ROWS = [(0, "ab"), (1, "c"), (2, "ab"), (3, "c"), (5, "ab")]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", BODIES)
def test_results_are_the_loops(name: str) -> None:
    func = program(f"scope {name}", ["n, w = x", *BODIES[name], "return str(r)"], dict(NAMES))
    assert_same_every_way(func, ROWS)
