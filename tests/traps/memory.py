"""Small programs of two arguments, each with a trap: memory that names share, dtypes, loops.

They are numbered: what each is about is shorter to read than to name.
"""

# ruff: noqa
# What users write, idiomatic or not, is what these are for.

from __future__ import annotations

import math

import torch


def w(x, n):
    return torch.tensor([1.0, -2.0, 3.0]) * x


def p01(x, n):
    y = w(x, n)
    z = y.sqrt()
    s = y.sum()
    if n > 1:
        s = s + z[0]
    return s, z.isnan().any()


def p02(x, n):
    y = w(x, n)
    y[y < 0] = 0
    y /= y.sum().clamp(min=1e-3)
    return y


def p03(x, n):
    a = torch.zeros(2, 3)
    b = a.t()
    c = b[1]
    c += x
    a[1, 1] *= 2
    d = a.unbind(1)[1]
    return d, c, a


def p04(x, n):
    a = [torch.zeros(2) for _ in range(3)]
    v = torch.stack(a)
    a[0] += 1
    v[1] += x
    return v, a[0], torch.cat([v.view(-1), a[2]])[:4]


def p05(x, n):
    t = torch.arange(6.0).view(2, 3)
    for r in range(2):
        for c in range(3):
            if (r + c) % 2 == int(n) % 2:
                t[r, c] *= x
    return t


def p06(x, n):
    t = torch.arange(4)
    i = n % 4
    t[i], t[0] = t[0].clone(), t[i].clone()
    return t


def p07(x, n):
    t = torch.arange(4.0)
    u = t[1:]
    if n > 2:
        t = t + 1
    t[1] = 50
    return u, t


def p08(x, n):
    m = torch.eye(3) * x
    v = m @ torch.ones(3)
    o = torch.outer(v, v)
    e = torch.einsum("ij,j->i", o, v)
    return v, o.trace(), e, m.det(), torch.linalg.norm(o + torch.eye(3))


def p09(x, n):
    k = 1
    while k * k < 20 and not (k > n and x > 0):
        k += 1
    return k


def p10(x, n):
    d = {"k": [x]}
    e = dict(d)
    e["k"].append(n)
    e["j"] = 1
    return len(d["k"]), len(d), "j" in e, list(e)[-1]


def p11(x, n):
    def f(a, b):
        a.append(b)
        return a

    z = f([], x)
    z2 = f(z, n) if n > 1 else f([], n)
    return len(z), z2[-1], z is z2


def p12(x, n):
    try:
        v = torch.ones(2)[int(n)]
    except IndexError:
        v = x * 0
    else:
        v = v + x
    return v


def p13(x, n):
    y = x.to(torch.float64)
    z = y.half() if n == 1 else y.bfloat16()
    return z.float(), (y + x).dtype == torch.float64, (z + 1).dtype == z.dtype


def p14(x, n):
    c = x > 0
    i = n
    f = x
    return (
        c + c,
        c * i,
        c * f,
        i / 2,
        i // 2,
        i**2,
        -i,
        ~i,
        i << 1,
        i & 1,
        c | (i > 0),
        c ^ c,
        abs(i - 2),
    )


def p15(x, n):
    t = torch.tensor(True)
    u = torch.tensor(2)
    v = torch.tensor(2.5)
    return (
        t + 1,
        u + 1.5,
        v + 1,
        u * t,
        u / u,
        x * u,
        n * v,
        n + t,
        torch.ones(2, dtype=torch.int8) * n,
        torch.ones(2, dtype=torch.float16) * v,
    )


def p16(x, n):
    return (
        max(x, x * 2),
        min(n, 2),
        sum([x, n]),
        round(float(x), 1),
        pow(int(n), 2, 5),
        divmod(float(x), 0.7)[1],
        abs(int(n) - 3),
    )


def p17(x, n):
    a = torch.full((2,), 7.0)
    b = a
    b = b * 1
    b -= x
    a, b = b, a
    a[0] = n
    return a, b


def p18(x, n):
    s = 0
    for i, v in enumerate([x, x * 2, n], start=int(n)):
        s = s + i * v
    return s


def p19(x, n):
    r = []
    i = int(n)
    while i > 0:
        i -= 1
        if i == 2:
            continue
        r.append(i)
        if i == 1:
            break
    else:
        r.append(99)
    return sum(r), len(r)


def p21(x, n):
    q = x.clone()
    q.copy_(n)
    q.fill_(q + 1)
    q.sub_(1).mul_(2).clamp_(max=4).pow_(2)
    return q, q.dtype == x.dtype


def p22(x, n):
    h = torch.zeros(3)
    h.scatter_(0, (n % 3).view(1), x.view(1))
    h.index_add_(0, torch.tensor([0, 0]), torch.stack([x, x]))
    g = h.gather(0, (n % 3).view(1))
    h.index_fill_(0, torch.tensor([2]), 4.0)
    h.masked_fill_(h == 0, -1.0)
    return h, g


def p23(x, n):
    f = lambda *a, **k: (len(a), sorted(k))
    return f(*range(int(n)), **{str(i): i for i in range(int(n) % 2)})[0], f(x)[1]


def p24(x, n):
    a, b = (x, n) if n > 1 else (n, x)
    return a + 0, b + 0


def p25(x, n):
    g = (v * x for v in range(int(n) + 1))
    h = next(g)
    return h, sum(g), list(g)


def p26(x, n):
    e = [1, 2, 3]
    for v in e[:]:
        if v != n:
            e.remove(v)
    for v in e:
        x = x + v
    return x, e


def p27(x, n):
    e = [int(n)]
    for v in e:
        if v > 0:
            e.append(v - 1)
    return e


def p28(x, n):
    t = x
    for _ in range(int(n)):
        t = t * 0.5
        if t.abs() < 0.4:
            return t, True
    return t, False


def p29(x, n):
    st = str(int(n))
    return (
        st * 2,
        st.zfill(3),
        [c for c in st],
        st.isdigit(),
        "a" < st,
        max("b", st),
        sorted("hello")[int(n) % 5],
        "hello"[-1 - int(n) % 5 :],
    )


def p30(x, n):
    with torch.no_grad():
        y = x * 2
    z = (lambda: y + n)()
    y = y * 100
    return z


def p31(x, n):
    t = [[1, 2], [3]]
    u = [*t, *[[n]]]
    u[0].append(5)
    (p, *_), *r = u
    return len(t[0]), p, len(r), sum(map(len, u))


def p32(x, n):
    a = x
    b = a
    a += 1
    c = b
    b = b + 1
    return a, b, c, a is c


def p33(x, n):
    nan = float("nan")
    return (
        max(1.0, nan) == 1.0,
        nan != nan,
        min(float(x), math.inf),
        math.isnan(nan),
        -0.0 == 0.0,
        math.copysign(1, -0.0),
        int(1e18) + int(n),
        7 // -2,
        -7 % 3,
        2**0.5,
    )


def p34(x, n):
    big = 10**18
    return (
        big * int(n) > 2**62,
        (big * 5 + int(n)) % 7,
        int(n) - 2**63 < 0,
        hash(2**61) >= 0,
        int(n) << 3 | 1,
    )


def p35(x, n):
    total = 0
    for a in range(3):
        if a == n:
            break
        for b in (a, a + 1):
            if b == 2:
                break
            total += 1
        else:
            continue
        total += 10
    else:
        total += 100
    return total


def p36(x, n):
    r = None
    r = r if r is not None else x
    r = [r, None][n > 2] if False else r
    return r, (None if n > 1 else x) is None, not None


def p37(x, n):
    def rec(k, acc):
        if k <= 0:
            return acc
        acc.append(k * x)
        return rec(k - 2, acc)

    out = rec(int(n), [])
    return len(out), sum(out)


def p38(x, n):
    def even(k):
        return True if k == 0 else odd(k - 1)

    def odd(k):
        return False if k == 0 else even(k - 1)

    return even(int(n)), odd(int(n) + 1)


def p40(x, n):
    x.unsqueeze(0).add_(5)
    x[...] -= 1
    x[()] += 2
    y = x.view(1, 1).squeeze()
    y.mul_(n)
    return x


def p41(x, n):
    s = {"b": 1, "a": int(n)}
    return (
        sorted(s.items()),
        min(s, key=s.get),
        max(s.values()),
        {v: k for k, v in s.items()},
        s.pop("b"),
        s.popitem(),
        s == {},
    )


def p42(x, n):
    a, b = torch.ones(2), torch.ones(2)
    for t in (a, b)[: int(n) % 3]:
        t *= x
    for i, t in enumerate([a, b]):
        t[i] = 7
    return a, b


def p43(x, n):
    if n == 5:
        return x / 0
    if n == 4:
        return int(n) / 0
    return x


def p44(x, n):
    if n > 3:
        [][int(n)]
    if n == 0:
        {}["k"]
    return x


def p45(x, n):
    v = {}
    v[int(n) % 2, "k"] = x
    v.update({(0, "k"): 1}, z=2)
    return len(v), v[0, "k"], v.get((1, "k"), -1)


def p46(x, n):
    y = w(x, n)
    z = y
    y.resize_(2)
    z += 1
    return y, z is y


def p47(x, n):
    y = w(x, n)
    if n > 1:
        y.resize_as_(torch.zeros(1, 2))
    return y.sum(), len(y)
