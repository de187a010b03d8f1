"""Functions, methods and instances that each thread chooses for itself, and what they write."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator

import pytest
import torch

from tests.outside_world import assert_same_every_way, program


class Box:
    def __init__(self, v):
        self.v = v
        self.log = []

    def put(self, y):
        self.log.append(y)
        return self

    def get(self):
        return self.v

    def __call__(self, y):
        self.log.append(y)
        return self.v

    def __add__(self, o):
        return Box(self.v + o.v)

    def __iadd__(self, y):
        self.log.append(y)
        return self

    def __getitem__(self, k):
        return self.log[k]

    def __setitem__(self, k, y):
        self.log[k] = y

    def __len__(self):
        return len(self.log)

    def __eq__(self, o):
        return isinstance(o, Box) and self.v == o.v

    def __hash__(self):
        return hash(self.v)

    def __lt__(self, o):
        return self.v < o.v

    def __iter__(self):
        return iter(self.log)

    def __contains__(self, y):
        return y in self.log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, *a):
        self.log.append("out")
        return False

    @property
    def last(self):
        return self.log[-1]

    @last.setter
    def last(self, y):
        self.log.append(y)

    @staticmethod
    def make(v):
        return Box(v)

    @classmethod
    def of(cls, v):
        return cls(v)


@dataclasses.dataclass
class Pt:
    x: int
    ys: list = dataclasses.field(default_factory=list)


class Sub(Box):
    def put(self, y):
        super().put(y * 2)
        return self


NAMES = {
    **{kind.__name__: kind for kind in (Box, Pt, Sub)},
    **{module.__name__: module for module in (dataclasses, functools, itertools, operator, torch)},
}
HEAD = ["n, w = x", "a, b = Box(1), Sub(2)", "p, q = Pt(1), Pt(2, [5])", "la, lb = [1], [2]"]
BODIES = {
    "lam": ["fs = [lambda: la, lambda: lb]", "fs[n % 2]().append(n)"],
    "lamd": [
        "fs = {'ab': lambda: la, 'c': lambda: lb}",
        "fs[w]().append(n)",
        "fs.get(w)().append(7)",
    ],
    "clos": [
        "def mk(l):",
        "    def g(y): l.append(y); return l",
        "    return g",
        "g = mk(la) if n % 2 else mk(lb)",
        "g(n); g(9)",
    ],
    "meth": ["m = [a.put, b.put][n % 2]", "m(3); m(4)"],
    "methd": ["m = {'ab': a.put, 'c': b.put}.get(w)", "m(3).put(4)"],
    "inst": ["t = [a, b][n % 2]", "t.put(3)", "t.v = 9"],
    "instd": ["t = {'ab': a, 'c': b}.get(w)", "t.put(3)", "t.v += 9"],
    "mx": ["t = max([a, b], key=lambda z: z.v * (1 if n % 2 else -1))", "t.put(3)", "t.v += 9"],
    "mx2": ["t = max(a, b)", "t.put(n)"],
    "srt": ["t = sorted([b, a])[n % 2]", "t.put(n)", "t.last = 5"],
    "cal": ["t = [a, b][n % 2](n)", "la.append(t)"],
    "iadd": ["t = a if n % 2 else b", "t += n"],
    "add": ["t = (a if n % 2 else b) + b", "t.put(n)", "la.append(t.v); la.append(len(t))"],
    "set": ["t = [a, b][n % 2]", "t.put(1)", "t[0] = n"],
    "ctx": ["with [a, b][n % 2] as t:", "    t.put(n)"],
    "prop": ["t = {'ab': a, 'c': b}[w]", "t.last = n", "la.append(t.last)"],
    "pt": ["t = [p, q][n % 2]", "t.ys.append(n)", "t.x += 1"],
    "ptd": ["t = {'ab': p, 'c': q}.get(w)", "t.ys.append(n)", "t.x += 1"],
    "rep": ["t = dataclasses.replace([p, q][n % 2], x=7)", "t.ys.append(n)"],
    "ga": ["t = getattr([a, b][n % 2], 'log')", "t.append(n)"],
    "ga2": ["m = getattr([a, b][n % 2], 'put' if w == 'c' else '__call__')", "m(n)"],
    "sa": ["setattr([a, b][n % 2], 'v', n)"],
    "part": ["m = functools.partial([a.put, b.put][n % 2], n)", "m(); m()"],
    "mc": ["operator.methodcaller('put', n)([a, b][n % 2])"],
    "mapm": ["list(map([a.put, b.put][n % 2], [1, 2]))"],
    "red": ["functools.reduce(lambda s, y: s.put(y), [1, n], [a, b][n % 2])"],
    "dictk": ["t = {a: la, b: lb}", "t[Box(1 + n % 2)].append(n)"],
    "dictk2": ["t = {a: la, b: lb}", "t.get(Box(1 + n % 2)).append(n)"],
    "in": ["la.append(Box(n) in [a, b])", "la.append([a, b].index(Box(1 + n % 2)))"],
    "setm": ["t = {a, b}", "la.append(len(t | {Box(n)}))"],
    "it": ["for t in (a, b):", "    if t.v == 1 + n % 2: t.put(n)"],
    "gen": ["t = next(z for z in (a, b) if z.v == 1 + n % 2)", "t.put(n)"],
    "nl": [
        "def bump():",
        "    nonlocal la",
        "    la = la + [n]",
        "    return la",
        "bump().append(1)",
        "(bump() if n % 2 else lb).append(2)",
    ],
    "cls": ["t = [Box, Sub][n % 2](5)", "t.put(n)", "la.append(len(t)); la.append(t.log[0])"],
    "cls2": ["t = {'ab': Box, 'c': Sub}.get(w)(5)", "t.put(n)", "la.append(t.log[0])"],
    "stat": ["t = [Box.make, Sub.of][n % 2](5)", "t.put(n)", "la.append(t.log[0])"],
    "ex": ["try:", "    t = [a, b][n]", "except IndexError:", "    t = b", "t.put(n)"],
    "un": ["t, u = (a, b) if n % 2 else (b, a)", "t.put(n)", "u.v = 8"],
    "star": ["t, *u = [a, b][n % 2:]", "t.put(n)", "la.append(len(u))"],
    "match": [
        "match [a, b][n % 2]:",
        "    case Sub(v=v): la.append(v)",
        "    case Box(log=l): l.append(n)",
    ],
    "match2": [
        "match {'ab': p, 'c': q}[w]:",
        "    case Pt(x=1, ys=ys): ys.append(n)",
        "    case Pt(x=z, ys=[h, *r]): la.append(h + z); q.ys.append(len(r))",
    ],
    "wal": ["if (t := [a, b][n % 2]).v > 1: t.put(n)"],
    "del": ["t = [p, q][n % 2]", "del t.ys[:1]", "t.ys.append(3)"],
    "attr": [
        "[a, b][n % 2].extra = [n]",
        "la.append(hasattr(a, 'extra')); lb.append(getattr(b, 'extra', None))",
    ],
    "share": ["a.log = b.log", "[a, b][n % 2].put(n)"],
    "share2": ["a.log = la; b.log = la", "[a, b][n % 2].put(n)", "la.append(8)"],
    "nest": [
        "a.kid = b; b.kid = p",
        "t = a if n % 2 else b",
        "k = t.kid",
        "(k.log if isinstance(k, Box) else k.ys).append(n)",
    ],
    "rec": [
        "def walk(t, d):",
        "    if d == 0: return t",
        "    t.put(d)",
        "    return walk(b if d % 2 else a, d - 1)",
        "walk([a, b][n % 2], n % 4).put(99)",
    ],
    "tens": [
        "a.t = torch.zeros(2); b.t = torch.ones(2)",
        "t = [a, b][n % 2]",
        "t.t[0] = 5; t.t += 1",
        "la.append(a.t.tolist()); lb.append(b.t.tolist())",
    ],
    "tens2": [
        "z = torch.zeros(2, 2); a.t = z[0]; b.t = z[1]",
        "{'ab': a, 'c': b}.get(w).t.add_(n)",
        "la.append(z.tolist())",
    ],
    "tens3": [
        "z = [torch.zeros(2), torch.ones(2)]",
        "f = {'ab': z[0].add_, 'c': z[1].mul_}.get(w)",
        "f(3)",
        "la.append([t.tolist() for t in z])",
    ],
    "glob": ["fs = dict(ab=la.append, c=lb.append)", "fs[w](n)", "fs.get(w)(1)"],
    "glob2": ["f = [la.append, lb.extend][n % 2]", "f([n])"],
    "popm": ["fs = [la.append, lb.append]", "fs.pop(n % 2)(n)", "fs[0](7)"],
    "chain": ["for t in itertools.chain([a], [b]):", "    t.put(n) if t.v == 1 + n % 2 else None"],
    "zipb": ["for t, y in zip([a, b], [la, lb]):", "    (t.log if n % 2 else y).append(n)"],
}
END = "return str((a.v, a.log, b.v, b.log, p, q, la, lb))"
ROWS = [(0, "ab"), (1, "c"), (2, "ab"), (3, "c"), (5, "ab")]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", BODIES)
def test_what_is_chosen_is_written(name: str) -> None:
    func = program(f"chosen {name}", [*HEAD, *BODIES[name], END], dict(NAMES))
    assert_same_every_way(func, ROWS)
