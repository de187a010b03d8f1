"""Calls, closures, recursion, methods, decorators, imports."""

# ruff: noqa
# What users write, idiomatic or not, is what the corpus is for.

from __future__ import annotations

import torch

from tests.language.common import Base, Derived, Node, Point, case, seen

TREE = Node(1, [Node(2, [Node(3)]), Node(4)])


def helper(a, b=2, *rest, scale=1, **options):
    return a, b, rest, scale, options


@case((1,))
def calls(x):
    xs, d = [3, 4], {"k": 5}
    return (
        helper(x),
        helper(x, *xs),
        helper(*xs, x, scale=2, **d),
        helper(a=x, b=seen(1), c=seen(2)),
        helper(seen(1), *seen([2]), scale=seen(3), **seen({"z": 4})),
        helper(**{"a": 1}, **{"b": 3}),
    )


@case((0,), (1,), (2,))
def call_errors(n):
    if n == 0:
        return helper()
    if n == 1:
        return helper(1, a=2)
    return n()


@case((0,), (1,), (4,))
def assigned_within(n):
    def step(k):
        nonlocal total, n
        total, n = total + [n * k], n - 1
        return seen(n)

    total = []
    found = [step(k) for k in range(3) if n > 0]
    return total, found, n


def fib(n):
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)


def is_even(n):
    return True if n == 0 else is_odd(n - 1)


def is_odd(n):
    return False if n == 0 else is_even(n - 1)


@case((0,), (1,), (9,))
def recursion(n):
    return fib(n), is_even(n), ackermann(2, 2)


def ackermann(m, n):
    if not m:
        return n + 1
    return ackermann(m - 1, 1 if not n else ackermann(m, n - 1))


@case((2,))
def closures(x):
    y = 1

    def inner(z, w=x):
        return x + y + z + w

    first = inner(10)
    y = 100
    x = 5
    add = lambda a, *, b=y: a + b + x
    y = 7
    return first, inner(10), add(1), add(1, b=2), sorted([3, 1, 2], key=lambda v: -v)


@case((3,))
def closures_in_loops(n):
    made = [lambda: i for i in range(n)]
    others = []
    for j in range(n):
        others.append(lambda k=j: (j, k))
    return [f() for f in made], [f() for f in others]


@case((3,))
def deep_closures(n):
    def middle(a):
        def inner(b):
            return n + a + b

        return inner

    def recursive(k):
        return 0 if k == 0 else k + recursive(k - 1)

    return middle(1)(2), recursive(n), (lambda: lambda: n)()()


@case((True, 1), (False, 1))
def unbound_captures(flag, x):
    def inner():
        return y

    if flag:
        y = x
    result = inner()
    del y
    return result, inner()


@case((1,))
def unbound_box(x):
    f = lambda: z
    z = x
    del z
    z = 3
    del z
    return z, f


def doubled(function):
    def wrapper(*args, **kwargs):
        return 2 * function(*args, **kwargs)

    return wrapper


def scaled(by):
    return lambda function: lambda *args: by * function(*args)


@case((4,))
def decorated(x):
    @doubled
    @scaled(seen(3))
    def inner(y):
        return x + y

    return inner(1)


@case((1,))
def methods(x):
    d = Derived(x)
    return (
        d.size(),
        d.hidden(),
        Base.size(d),
        Node.made(x).value,
        Node.pair(x).total(),
        TREE.total(),
        [m() for m in (d.size, d.hidden)],
        "a-b".split("-"),
        Point(x, y=2)._replace(x=5).x,
    )


@case((1,))
def imports(x):
    import math as m
    import os.path
    import torch.nn.functional as functional
    from math import pi
    from math import sqrt as root

    return m.floor(pi * x), root(x), os.path.basename("a/b"), functional.relu(torch.tensor(-1.0))


@case((1,))
def import_failure(x):
    from math import absent  # type: ignore[attr-defined]

    return absent


@case((2,))
def captured_parameters(x, *args, k=3, **kw):
    inner = lambda: (x, args, k, kw)
    x = x + 1
    args += (x,)
    kw["z"] = 1
    return inner(), [f() for f in [inner]]


@case((3,))
def mutual_closures(n):
    def even(k):
        return True if k == 0 else odd(k - 1)

    def odd(k):
        return False if k == 0 else even(k - 1)

    counts = []

    def walk(k, path=()):
        counts.append(path)
        for i in range(k):
            walk(k - i - 1, path + (i,))

    walk(n)
    return even(n), odd(n), counts


@case((1,))
def names_of_functions(x):
    def inner():
        return x

    first, second = lambda: 0, lambda: 1
    return inner.__name__, inner.__qualname__, first.__name__, second.__qualname__, inner


@case((1,))
def argument_errors(x):
    def inner(a, /, b=1, *, c):
        return a, b, c

    return inner(x, 2, 3, c=x)


@case((1,), (0,))
def shadowed_builtins(x):
    len = lambda xs: "mine"
    any = max
    sum = [x]
    if x:
        print = seen
        print("shadowed")
    return len([1]), any(y for y in (1, 2)), sum
