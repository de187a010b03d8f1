"""Realistic programs of numbers: what users write that machine code should hold."""

from __future__ import annotations

import math
from typing import Any

import torch


def newton(a: Any) -> Any:
    x = a if a > 1 else 1.0
    for _ in range(50):
        nxt = 0.5 * (x + a / x)
        if abs(nxt - x) <= 1e-14 * abs(nxt):
            return nxt
        x = nxt
    return x


def bisect(c: Any) -> Any:
    low, high = 0.0, 2.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        if middle**3 - middle - c > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def isqrt(n: Any) -> Any:
    if n < 0:
        raise ValueError("isqrt of a negative number")
    if n < 2:
        return n
    x = 1 << ((n.bit_length() + 1) // 2)
    while True:
        y = (x + n // x) // 2
        if y >= x:
            return x
        x = y


def egcd(a: Any, b: Any) -> Any:
    if b == 0:
        return a, 1, 0
    g, x, y = egcd(b, a % b)
    return g, y, x - (a // b) * y


def modpow(b: Any, e: Any, m: Any) -> Any:
    r = 1
    b %= m
    while e:
        if e & 1:
            r = r * b % m
        b = b * b % m
        e >>= 1
    return r


def modpow2(b: Any, e: Any, m: Any) -> Any:
    return pow(b, e, m)


MASK = 0xFFFFFFFF


def mix(x: Any) -> Any:
    x = (x ^ (x >> 16)) * 0x45D9F3B & MASK
    x = (x ^ (x >> 16)) * 0x45D9F3B & MASK
    return x ^ (x >> 16)


def walk(seed: Any, n: Any) -> Any:
    pos, far = 0, 0
    for i in range(n):
        r = mix(seed * 1000003 + i & MASK)
        pos += 1 if r & 1 else -1
        far = max(far, abs(pos))
    return pos, far


def life(cell: Any) -> Any:  # rule from 9-bit neighbourhood
    alive = (cell >> 4) & 1
    count = sum((cell >> k) & 1 for k in range(9)) - alive
    return 1 if count == 3 or (alive and count == 2) else 0


def days_from_civil(y: Any, m: Any, d: Any) -> Any:
    y -= m <= 2
    era = (y if y >= 0 else y - 399) // 400
    yoe = y - era * 400
    doy = (153 * (m + (-3 if m > 2 else 9)) + 2) // 5 + d - 1
    doe = yoe * 365 + yoe // 4 - yoe // 100 + doy
    return era * 146097 + doe - 719468


def weekday_name(y: Any, m: Any, d: Any) -> Any:
    z = days_from_civil(y, m, d)
    return (z + 4) % 7 if z >= -4 else (z + 5) % 7 + 6


def parse(digits: Any) -> Any:  # tensor [L] of chars
    n = len(digits)
    i, sign, value = 0, 1, 0
    if digits[0] == 45:
        sign, i = -1, 1
    while i < n and 48 <= digits[i] <= 57:
        value = value * 10 + (digits[i].item() - 48)
        i += 1
    return None if i == 0 else sign * value


def integrand(x: Any) -> Any:
    return math.sin(x) * x


def simpson(a: Any, b: Any) -> Any:
    return (b - a) / 6 * (integrand(a) + 4 * integrand((a + b) / 2) + integrand(b))


def adaptive(a: Any, b: Any, whole: Any, eps: Any, depth: Any) -> Any:
    m = (a + b) / 2
    left, right = simpson(a, m), simpson(m, b)
    if depth == 0 or abs(left + right - whole) < 15 * eps:
        return left + right + (left + right - whole) / 15
    return adaptive(a, m, left, eps / 2, depth - 1) + adaptive(m, b, right, eps / 2, depth - 1)


def integral(b: Any) -> Any:
    return adaptive(0.0, b, simpson(0.0, b), 1e-9, 20)


def contfrac(x: Any, n: Any) -> Any:
    p0, q0, p1, q1 = 1, 0, math.floor(x), 1
    frac = x - math.floor(x)
    for _ in range(n):
        if frac < 1e-9:
            break
        x = 1 / frac
        a = int(x)
        frac = x - a
        p0, q0, p1, q1 = p1, q1, a * p1 + p0, a * q1 + q0
    return p1, q1


def search(x: Any, table: Any) -> Any:
    lo, hi = 0, len(table)
    while lo < hi:
        mid = (lo + hi) // 2
        if table[mid] < x:
            lo = mid + 1
        else:
            hi = mid
    return lo


table_g = torch.arange(0, 1000, 7)


def search_global(x: Any) -> Any:
    lo, hi = 0, table_g.shape[0]
    while lo < hi:
        mid = (lo + hi) // 2
        if table_g[mid] < x:
            lo = mid + 1
        else:
            hi = mid
    return lo


def lookup(state: Any, n: Any, table: Any) -> Any:  # automaton
    for k in range(n):
        state = table[state, k % 2]
    return state


def peak(x: Any) -> Any:
    best, at = x[0], 0
    for i in range(1, x.shape[0]):
        if x[i] > best:
            best, at = x[i], i
    return at, best


def prefix(x: Any) -> Any:
    s = 0.0
    for v in x:
        if v < 0:
            break
        s = s + v
    return s


def horner(x: Any, c: Any) -> Any:
    acc = 0.0
    for i in range(len(c) - 1, -1, -1):
        acc = acc * x + c[i]
    return acc


def median3(a: Any, b: Any, c: Any) -> Any:
    a, b = (a, b) if a < b else (b, a)
    return max(a, min(b, c))


def popcount(n: Any) -> Any:
    c = 0
    while n:
        n &= n - 1
        c += 1
    return c


def gcd_m(a: Any, b: Any) -> Any:
    return math.gcd(a, b)


def logistic(r: Any, n: Any) -> Any:
    x = 0.5
    for _, _ in enumerate(range(n)):
        x = r * x * (1 - x)
    return x


def lcg(state: Any, n: Any) -> Any:
    total = 0.0
    for _ in range(n):
        state = (state * 1103515245 + 12345) % 2**31
        total += state / 2**31
    return total / n


def safe_div(a: Any, b: Any) -> Any:
    try:
        return a // b
    except ZeroDivisionError:
        return 0


def arguments() -> dict[str, tuple[Any, tuple[Any, ...], Any]]:
    """Of each program: itself, 32 examples of its arguments, and ``in_dims``."""
    r = torch.arange(1, 33)
    x = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))
    digits = [
        [45, 49, 50, 51, 32],
        [49, 50, 32, 51, 52],
        [50, 49, 50, 32, 32],
        [45, 57, 57, 57, 57],
    ]
    halves = r.double() / 30
    found: list[tuple[Any, ...]] = [
        (newton, r.double()),
        (bisect, r.double() / 10),
        (isqrt, r * 977),
        (egcd, r * 12, r + 30),
        (modpow, r + 5, r * 3, r + 100),
        (modpow2, r + 5, r * 3, r + 100),
        (walk, r, r * 2),
        (life, r * 15),
        (days_from_civil, r + 1990, r % 12 + 1, r % 28 + 1),
        (weekday_name, r + 1960, r % 12 + 1, r % 28 + 1),
        (parse, torch.tensor(digits * 8)),
        (integral, r.double() / 4),
        (contfrac, r.double() * 0.37, r % 10),
        (search_global, r * 20),
        (peak, x),
        (prefix, x),
        (median3, r % 7, r % 5, r % 3),
        (popcount, r * 9),
        (gcd_m, r * 9, r * 6),
        (logistic, r.double() / 8, r),
        (lcg, r, r),
        (safe_div, r, r % 3),
    ]
    shared: list[tuple[Any, tuple[Any, ...], Any]] = [
        (search, (r * 20, torch.arange(0, 1000, 7)), (0, None)),
        (lookup, (r % 3, r, torch.tensor([[1, 2], [2, 0], [0, 1]])), (0, 0, None)),
        (horner, (halves, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)), (0, None)),
        (horner, (halves, [1.0, 2.0, 3.0]), (0, None)),
    ]
    each = [(function, tuple(args), 0) for function, *args in found] + shared
    return {
        f"{function.__name__}-{at}": (function, *rest) for at, (function, *rest) in enumerate(each)
    }
