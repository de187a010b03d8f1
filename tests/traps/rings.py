"""Small programs of two arguments whose values hold themselves, or one part many times."""

# ruff: noqa
# What users write, idiomatic or not, is what these are for.

from __future__ import annotations

import copy
import dataclasses

import torch


class Knot:
    def __init__(self, x):
        self.x, self.next = x, self

    def val(self):
        return self.x.sum()


@dataclasses.dataclass
class Link:
    v: object
    nxt: object = None


def knotted(x):
    a = [x, Knot(torch.as_tensor(x))]
    a.append(a)
    return a


def down(t):
    while isinstance(t, tuple):
        t = t[0]
    return t


def fib(n, t):
    return down(t) if n < 2 else fib(n - 1, t) + fib(n - 2, t)


def r01(x, n):
    a = knotted(x)
    return a[2][1].next.next.val() + a[0]


def r02(x, n):
    a = [x]
    a.append(a)
    return len(repr(a)) > 0


def r03(x, n):
    a = [n + 0]
    a.append(a)
    b = [n + 0]
    b.append(b)
    try:
        return a == b
    except RecursionError:
        return x


def r04(x, n):
    a = knotted(x)
    b = copy.deepcopy(a)
    b[0] = b[0] + 1
    if n > 1:
        a[2][0] = a[0] * 3
    return a[0] + b[2][0] * 2 + b[1].next.val()


def r05(x, n):
    a = knotted(x)
    i = 0
    while i < n:
        a, i = a[2], i + 1
        a[0] = a[0] + i
    return a[2][2][0], i


def r06(x, n):
    a = [x]
    a.append(a)
    return torch.stack(a)


def r07(x, n):
    a = [x]
    a.append(a)
    return torch.tensor(a)


def r08(x, n):
    a = [x]
    a.append(a)
    return fib(n, (a[1][0],))


def r09(x, n):
    a = [1]
    t = (a, 2)
    a.append(t)
    return repr(t)


def r10(x, n):
    d, e = Link(x), Link(x)
    d.nxt, e.nxt = d, e
    try:
        return d == e
    except RecursionError:
        return "never ends"


def r11(x, n):
    a = knotted(x)
    try:
        if n > 2:
            a[5]
    except IndexError:
        a[2][0] = x + 1
    return a[0] + a[1].val()


def r12(x, n):
    a = [x]
    a.append(a)
    if n > 2:
        raise ValueError(len(a[1]), repr(a[1:]) != "")
    first, *rest = a
    return first + rest[0][0], [q is a for q in a], sum(a[:1])


def r13(x, n):
    t = (x, x)
    for i in range(60):
        t = (t, t)
    i = 0
    while i < n:
        i, t = i + 1, (t, t)
    return down(t) + x


def r14(x, n):
    t = (1, 2)
    for i in range(60):
        t = (t, t)
    d = [t]
    if n > 1:
        d = [t, d]
    return t == t, t in [t], len(d) + x


def r15(x, n):
    t = (x, x)
    for i in range(60):
        t = (t, [t])
    u = copy.deepcopy(t)
    return down(u) + down(t)


def r16(x, n):
    t = (x, x)
    for i in range(60):
        t = (t, t)
    return fib(n, t)


def r17(x, n):
    t = Link(x, x)
    for i in range(60):
        t = Link(t, t)
    if n > 1:
        x = x + 1
    while isinstance(t, Link):
        t = t.nxt
    return t + x
