"""Operators, displays, short circuits, and the order in which operands are evaluated."""

# ruff: noqa
# What users write, idiomatic or not, is what the corpus is for.

from __future__ import annotations

import math
import operator

import torch

from tests.language.common import case, seen

LIMIT = 3


@case((1, 2, 3), (3, 2, 1), (2, 2, 2))
def comparisons(a, b, c):
    return (
        a < b < c,
        seen(a) < seen(b) < seen(c),
        a == b != c,
        a <= b in (b, c),
        a is b,
        a is not None,
        not a < b,
        a not in [b],
        (a < b) is True,
    )


@case((0, 1), (1, 0), (0, 0), (2, 3), ([], "x"))
def short_circuit(a, b):
    x = seen(a) and seen(b)
    y = seen(a) or seen(b)
    z = not (seen(a) and not seen(b))
    w = (a and b) or (b and a) or 5
    if seen(a) and seen(b) or seen(3):
        w = seen(w)
    if not (a or b):
        return "neither"
    return x, y, z, w


@case((0,), (1,), (5,))
def ternaries(n):
    a = "zero" if n == 0 else "one" if n == 1 else "many"
    b = (seen(1) if n else seen(2)) + (seen(3) if not n else seen(4))
    return a, b, [n if n else -1, *((1,) if n else ())]


@case(([1, 2, 3], 1), ([1, 2, 3], 5), ([], 0))
def guarded(xs, i):
    while i < len(xs) and xs[i] > 0:
        i += 1
    return i, 0 <= i < len(xs) and xs[i] == 0


@case(([1, 2], {"a": 1}), ((), {}))
def displays(xs, d):
    return (
        [*xs, 0, *xs],
        (*xs, 1),
        {*xs, 2},
        {**d, "b": 2, **{"a": 3}},
        {"k": xs, 1: d},
        {1, 2},
        [],
        (),
        {},
    )


@case((3.14159,), (7,), ("text",))
def formatted(x):
    width = 12
    return f"{x!r:>{width}}|{x}|{x!s:<8}|{'nested'}{x=}{{}}tail", f"{LIMIT:04d}", f""


@case((5,))
def constants(x):
    return None, True, ..., 1.5, 2j, b"bytes", "str", -1, (1, (2,)), x, 1_000, __debug__


@case(([[1, 2], [3, 4]],))
def slices(xs):
    t = torch.tensor(xs)
    t[0, 1:] = 9
    t[:, 0] += 1
    return t, t[..., 0], t[0], t[1, ::2], t[None].shape


@case((1, 2))
def operators_on_objects(x, y):
    return operator.add(x, y), math.sqrt(x), math.hypot(x, y), abs(-x), max(x, y), divmod(y, x)


@case((1, 2))
def order_of_operands(a, b):
    xs = [a, b]
    return (
        seen(a) + seen(b) * seen(3),
        seen(xs)[seen(0) : seen(2) : seen(1)],
        {seen("k"): seen(a), **seen({"m": 1}), seen("n"): seen(b)},
        [seen(1), *seen((2,)), seen(3)],
        seen(a) < seen(b) and seen(5),
        (seen(max))(seen(a), *seen(xs), key=seen(None)),
        f"{seen(a)}{seen(b)!r:{seen(4)}}",
        seen(xs).count(seen(a)) if seen(b) else seen(0),
    )


@case((3,), (0,))
def reassigned_operands(x):
    y = [x, (x := x + 1), x][x > 0]
    z = x + [x := 7][0] + x
    w = {x: (x := 8), x: x}
    v = (x, f"{x}{(x := 9)}", x)
    u = x < (x := 3) < x
    t = (x if (x := x - 3) else x, x)
    return y, z, w, v, u, t


@case((float("nan"),), (-0.0,), (10**30,), (True,))
def numbers(x):
    return x == x, x != x, x * 1, -x, x < 1, x + True, not x, x is x, 1 if x else 0, [x] == [x]
