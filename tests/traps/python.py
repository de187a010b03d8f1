"""Small programs of two arguments around Python's own semantics, each with a trap.

They are numbered: what each is about is shorter to read than to name.
"""

# ruff: noqa
# What users write, idiomatic or not, is what these are for.

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
import math
from typing import NamedTuple

K = 3


def sethelper():
    return K


def n1(x, n):
    return any(n > i for i in range(3)), all(n > i for i in range(3)), any(False for _ in ())


def n2(x, n):
    fs = [lambda: i for i in range(3)]
    gs = [lambda i=i: i for i in range(n % 3 + 1)]
    return fs[0]() + sum(g() for g in gs)


def n3(x, n):
    def f(v, acc=[]):
        acc.append(v)
        return len(acc)

    return f(1) + f(2) + f(n)


def n4(x, n):
    t = x

    def g():
        def h():
            return t * 2

        return h()

    t = t + 1
    return g()


def n5(x, n):
    def g(a, *b, c=2, **d):
        return a + len(b) * 10 + c * 100 + len(d) * 1000

    return g(n, *range(n % 3), **{"z": 1} if n > 2 else {})


def n6(x, n):
    log = []

    def v(a):
        log.append(a)
        return a

    r = v(1) < v(n) < v(3) < v(10)
    return r, len(log)


def n7(x, n):
    for i in range(4):
        for j in range(4):
            if i * j == n:
                break
        else:
            continue
        break
    else:
        return -1
    return i * 10 + j


def n8(x, n):
    a = n
    if n > 2:
        del a
    try:
        return a
    except UnboundLocalError as e:
        return -5


def n9(x, n):
    return (n + 2) ** 40 % 1000003


def n10(x, n):
    return str((n + 1) * 2**62 + n)


def n11(x, n):
    return -7 // (n + 1), -7 % (n + 1), 7 % -(n + 1), 7 // -(n + 1), divmod(-n, 3), -n % 3


def n12(x, n):
    return (
        True + n,
        (n > 1) + (n > 2),
        sum([n > 1, n > 2]),
        [5, 6][n > 2],
        -(n > 1),
        ~(n > 1),
        (n > 1) * 2.5,
    )


def n13(x, n):
    return f"{x.item() if hasattr(x, 'item') else x:.3f}|{int(n):>5}|{int(n):05d}|{n / 7:e}|{0.1 + 0.2}|{float(n)}"


def n14(x, n):
    s = "a,b;" * int(n)
    return (
        s.split(","),
        s.upper().replace("A", "z").count("z"),
        s.find("b"),
        s[::-2],
        s.partition(";")[0],
        s.strip(";").title(),
    )


def n15(x, n):
    d = {}
    for k in ("z", "a", int(n), "b"):
        d[k] = k
    d.pop("a")
    d["a"] = 1
    return str(list(d)), str(d)


def n16(x, n):
    a = {1, 2, 3, int(n)}
    b = {int(n), 7}
    return len(a | b), sorted(a & b), sorted(a ^ b), a >= b, sorted(a - b)


def n17(x, n):
    l = [(i * int(n)) % 3 * 10 + i for i in range(6)]
    return sorted(l, key=lambda v: v // 10), sorted(l, key=lambda v: v // 10, reverse=True)


def n18(x, n):
    l = list(range(10))
    l[1:8:3] = [int(n)] * 3
    del l[::4]
    return l[::-1], l[-3:], l[5:2:-1], l[100:]


def n19(x, n):
    try:
        try:
            1 // (n * 0)
        except ZeroDivisionError as e:
            raise ValueError("v") from e
    except ValueError as e:
        return type(e.__cause__).__name__, str(e), e.__suppress_context__


def n20(x, n):
    def f():
        try:
            if n > 2:
                return 1
            return 2
        finally:
            if n == 4:
                return 3

    return f()


def n21(x, n):
    log = []
    class_ = CM(log)
    with class_ as c, CM(log) as d:
        log.append(int(n))
        if n > 2:
            return len(log), str(log)
    return len(log), str(log)


class CM:
    def __init__(self, l):
        self.l = l

    def __enter__(self):
        self.l.append("in")
        return self

    def __exit__(self, *a):
        self.l.append("out")
        return False


@dataclasses.dataclass(order=True, frozen=True)
class D:
    a: int
    b: float = dataclasses.field(default=1.0, compare=False)


def n22(x, n):
    d = D(int(n))
    e = dataclasses.replace(d, a=3)
    return (
        d == e,
        d < e,
        d >= e,
        str(max([d, e]).a),
        dataclasses.asdict(e)["a"],
        hash(d) == hash(D(int(n), 5.0)),
    )


def n23(x, n):
    try:
        D(1).a = int(n)
    except dataclasses.FrozenInstanceError as e:
        return str(e)


class NT(NamedTuple):
    a: int
    b: int = 2

    def tot(self):
        return self.a + self.b

    @property
    def dbl(self):
        return self.a * 2


def n24(x, n):
    t = NT(n)
    u = t._replace(b=n)
    a, b = u
    return t.tot(), u.dbl, a + b, u == (n, n), t < u, len(t), u[::-1]


def n25(x, n):
    match [int(n), x]:
        case [0, _]:
            return "zero"
        case [1 | 2 as k, _] if k > 1:
            return f"two{k}"
        case [int(k), *r] if len(r) == 1:
            return f"o{k}"


def n26(x, n):
    match {"k": int(n), "q": 2}:
        case {"k": 3, **r}:
            return str(r)
        case {"k": k}:
            return k * 1.0 if False else str(k)


def n27(x, n):
    match D(int(n)):
        case D(a=3):
            return 1
        case D(0):
            return 2
        case _:
            return 3


def n28(x, n):
    return f"{'a'!r:>6}{int(n)=}{[1, int(n)]!s}{{}}{n * 1.0:{8}.{2}f}"


def n29(x, n):
    return [y for i in range(5) if (y := i * n) > 2], y


def n30(x, n):
    return sethelper() + n


def n31(x, n):
    a = [1, 2, 3]
    b = a
    b += [n]
    a = a + [5]
    return len(a), len(b), b is not a


def n32(x, n):
    a = b = []
    a.append(n)
    return len(b)


def n33(x, n):
    i = 0
    a = [0, 0, 0]
    i, a[i] = 1, n
    return a, i


def n34(x, n):
    def gen(k):
        while k > 0:
            k -= 1
            yield_ = k
        return k

    return gen(n)


def n35(x, n):
    x1, *r, y = [n, 1, 2, 3]
    (a, b), c = (n, 1), 2
    return r, a + b + c + x1 + y


def n36(x, n):
    return (
        round(2.5),
        round(3.5),
        round(-2.5),
        round(n / 3, 2),
        round(n * 10 + 5, -1),
        int(-3.7 + n),
        math.floor(-n / 2),
        math.trunc(-n / 2),
    )


def n37(x, n):
    return (
        n << 3,
        n >> 1,
        n & 5,
        n | 8,
        n ^ 3,
        ~n,
        bin(n),
        hex(-n),
        int("0x1f", 16) + n,
        format(n, "b"),
    )


def n38(x, n):
    return (
        float("inf") > n,
        float("nan") == n,
        max(n, float("nan")),
        min(float("nan"), n),
        0.0 == -0.0,
        math.copysign(1, -0.0 * n),
    )


def n39(x, n):
    return (n or "z"), (n and "y"), (not n) is True, None if n > 1 else n


def n40(x, n):
    c = collections.Counter("abca" * int(n))
    return c.most_common(1), c["zz"], sum(c.values())


def n41(x, n):
    try:
        [1, 2][n + 5]
    except (KeyError, IndexError) as e:
        return str(e), type(e).__mro__[1].__name__


def n42(x, n):
    try:
        assert n < 3, f"bad {n}"
        return "ok"
    except AssertionError as e:
        return str(e.args)


def n43(x, n):
    t = 0
    while True:
        t += 1
        if t % 2:
            continue
        if t > n:
            break
    else:
        t = -1
    return t


def n44(x, n):
    f = functools.partial(pow, 2)
    return f(n), functools.reduce(lambda a, b: a * b, range(1, n + 2))


def n45(x, n):
    return (
        list(itertools.accumulate(range(4), lambda a, b: a * n + b)),
        list(itertools.product([1, 2], repeat=2))[n % 4],
        ["".join(c) for c in itertools.combinations("abc", 2)],
    )


def n46(x, n):
    return [*zip(range(n), "abcdef")], dict(zip("ab", (n, 2))), list(enumerate("ab", n))


def n47(x, n):
    return (
        "x" in "xyz"[n % 3 :],
        n in range(0, 10, 2),
        n in (1, 2),
        (n,) in [(1,), (2,)],
        not n in {1: 2},
    )


def n48(x, n):
    l = [3, 1, 2]
    r = l.sort()
    return r is None, l, l.index(2), l.pop(n % 3), l


def n49(x, n):
    l = [1, 2, 3, 4]
    for v in l:
        if v % 2 == n % 2:
            l.remove(v)
    return str(l)


def n51(x, n):
    return (
        str(type(n / 2).__name__),
        isinstance(n > 1, int),
        type(n > 1) is bool,
        issubclass(bool, int),
    )


def n52(x, n):
    def f(a, /, b, *, c):
        return a + b * c

    try:
        return f(n, 2, c=3), f(1, b=n, c=2), f(a=1, b=2, c=3)
    except TypeError as e:
        return str(e)


def n53(x, n):
    def outer():
        return inner(n)

    def inner(k):
        return k if k < 1 else outer2(k - 1)

    def outer2(k):
        return inner(k) + 1

    return outer()


def n54(x, n):
    s = 0
    for i in reversed(range(0, n * 2, 2)):
        s = s * 10 + i
    for i in range(n, -1, -2):
        s += i
    return s


def n55(x, n):
    a = [[0] * 2] * 2
    a[0][0] = n
    b = [[0] * 2 for _ in range(2)]
    b[0][0] = n
    return a, b


def n56(x, n):
    try:
        raise KeyError(n)
    except KeyError as e:
        z = e
    finally:
        w = 1
    try:
        e
    except NameError:
        w += 1
    return w, z.args[0]


def n57(x, n):
    return (
        "%d %5.2f %s %r %x %%" % (n, n / 3, "q", "q", n),
        "{:>4}{:<4}{:^5}|{!r}".format(n, n, n, "z"),
        "{0}{1}{0}".format(n, 2),
    )


def n58(x, n):
    return (
        "abc" * n,
        [1] * n,
        (1, 2) * (n % 2),
        "a" < "b" * n,
        "é".encode(),
        b"ab"[n % 2],
        ord("a") + n,
        chr(97 + n),
    )


def n59(x, n):
    return 10**18 * n * n * 10, -(2**63) * n, (2**63 - 1) + n - n, abs(-(2**63)), 3**n**2


def n60(x, n):
    return n**-1 if n else 0.5, (-8) ** (1 / 3) == 0, 2**n, 0**n, n**0.5, (-1) ** n


def n61(x, n):
    r = []
    for a, (b, *c) in [(1, (2, 3, n)), (4, (5,))]:
        r.append((a, b, len(c)))
    return r


def n62(x, n):
    l = [1, 2, 3]
    l[len(l) :] = [n]
    l[:0] = [0]
    l[1:1] = [9, 9]
    l.insert(-1, 7)
    l.extend(range(n))
    return len(l), sum(l)


def n63(x, n):
    class_vars = [E.A, E.B, E.C]
    return class_vars[n % 3].name, E(n % 3).value, E.B in class_vars[:n], E["A"] is E.A, len(E)


class E(enum.IntEnum):
    A = 0
    B = 1
    C = 2


def n64(x, n):
    return E.A < n, E.B + n, f"{E.C}", max(E)


def n65(x, n):
    it = iter([1, 2, 3, 4])
    next(it)
    s = [a + b for a, b in zip(it, it)]
    return s, next(it, n)
