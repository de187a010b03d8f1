"""Branches, loops and their ways out, exceptions."""

# ruff: noqa
# What users write, idiomatic or not, is what the corpus is for.

from __future__ import annotations

from tests.language.common import case, seen


@case((0,), (3,), (10,))
def loops(n):
    total = 0
    for i in range(n):
        if i == 2:
            continue
        if i == 7:
            break
        total += i
    else:
        total += 100
    while total > 5:
        total -= 3
        if total == 10:
            break
    else:
        return total, "else"
    return total, i


@case((1,), (6,), (9,))
def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@case((2, 3), (0, 5), (4, 0))
def nested_loops(n, m):
    found = []
    for i in range(n):
        j = 0
        while True:
            if j >= m:
                break
            if (i + j) % 3 == 2:
                j += 1
                continue
            for k in range(j):
                if k * i > 2:
                    return found, i, j, k
                found.append((i, j, k))
            else:
                found.append("done")
            j += 1
    return found


@case((-1,), (0,), (1,), (2,))
def early_returns(n):
    if n < 0:
        return "negative"
    elif n == 0:
        return
    for i in range(5):
        while True:
            if i == n:
                return i, "inner"
            break
    return "end"


@case(([1, 2, 3],), ("abc",), ({"a": 1},), ((),))
def iterations(xs):
    out = []
    for i, x in enumerate(xs):
        out.append((i, x))
    for x, y in zip(xs, xs, strict=True):
        out.append(x == y)
    for x in reversed(list(xs)):
        out.append(x)
    for x in xs:
        pass
    return out, len(out)


@case((3,))
def loop_variable_stays(n):
    for i in range(n):
        pass
    for (a, b), *c in [((1, 2), 3, 4)]:
        pass
    for xs in [[0]]:
        for xs[0] in range(n):
            pass
    return i, a, b, c, xs


@case((0, 9), (9, 0), (5, 5))
def while_else(a, b):
    while a < b:
        a += 2
        if a == 6:
            break
    else:
        a = -a
    return a


@case((5,))
def endless(n):
    while True:
        n -= 1
        if n < 0:
            return n


@case((1,), (0,))
def constant_conditions(n):
    if True:
        x = 1
    else:
        x = seen(2)
    while 0:
        x = seen(3)
    assert True
    return x if 1 else n


@case((3,), (0,), (-1,))
def raises(n):
    if n == 0:
        raise ValueError("zero")
    if n < 0:
        raise KeyError(n) from ValueError(n)
    assert n != 3, f"it is {n}"
    return n


@case((3,), (0,))
def asserts(n):
    assert n
    assert (seen(n), 1)[0] == 3, seen("message")
    return n


@case((1,))
def bare_raise(n):
    raise


@case((1,))
def raise_class(n):
    if n:
        raise IndexError
    return n


@case(([3, 1, 2], 0), ([1], 5))
def python_errors(xs, i):
    seen(xs)
    return xs[i] // (i - 0)


@case((0,), (3,), (8,))
def break_with_work(n):
    i, found = 0, None
    while True:
        i += 1
        if i > n:
            found = [j for j in range(i) if j % 2]
            break
        if i == 6:
            return "six", i
        while True:
            if i % 2:
                break
            i += 1
            seen(i)
    return i, found


@case((4,), (0,))
def loops_in_conditions(n):
    while any(seen(i) == n for i in range(n + 1)) and n:
        n -= 1
    xs = [x for x in range(10) if not all(x != y for y in range(n, 20, 3))]
    for x in [y for y in xs if y > n] or [0]:
        n += x
    else:
        n = -n
    return n, xs


@case((0,), (5,))
def changed_while_iterated(n):
    xs = [1, 2, 3]
    for x in xs:
        if len(xs) < n:
            xs.append(x)
    items = iter(xs)
    for x in items:
        seen((x, next(items, None)))
    for n in range(n):
        n += 10
    return xs, n


@case((3,), (0,))
def dead_code(n):
    if n:
        return 1
        n = seen(2)
    while n < 2:
        n += 1
        continue
        n = seen(3)
    else:
        return n
    raise ValueError
