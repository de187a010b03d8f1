"""Functions of Python's and ``math``'s that are compiled from Python text that means the same.

In numbers alone, and exactly, or the thread gives up: what a call of the function raises, and what
it gives beyond 64 bits, are the general way's.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from autobatch.compiled.types import BOOL, FLOAT, INT, Type, Value

INTS = (INT, BOOL)


def gcd(a: int, b: int) -> int:
    a, b = abs(a), abs(b)
    while b:
        a, b = b, a % b
    return a


def lcm(a: int, b: int) -> int:
    if a == 0 or b == 0:
        return 0
    a, b = abs(a), abs(b)
    divisor, rest = a, b
    while rest:
        divisor, rest = rest, divisor % rest
    return a // divisor * b


def isqrt(n: int) -> int:
    if n < 0:
        raise ValueError
    root = int(math.sqrt(n))
    while root * root > n:
        root -= 1
    while (root + 1) * (root + 1) <= n:
        root += 1
    return root


def factorial(n: int) -> int:
    if n < 0:
        raise ValueError
    made = 1
    for factor in range(2, n + 1):
        made *= factor
    return made


def comb(n: int, k: int) -> int:
    if n < 0 or k < 0:
        raise ValueError
    if k > n:
        return 0
    made = 1
    for i in range(min(k, n - k)):
        made = made * (n - i) // (i + 1)
    return made


def power_modulo(base: int, exponent: int, modulus: int) -> int:
    if modulus == 0 or exponent < 0:
        raise ValueError
    made, base = 1 % modulus, base % modulus
    while exponent:
        if exponent & 1:
            made = made * base % modulus
        exponent >>= 1
        if exponent:
            base = base * base % modulus
    return made


def degrees(x: float) -> float:
    return float(x) * (180.0 / math.pi)


def radians(x: float) -> float:
    return float(x) * (math.pi / 180.0)


def logarithm(x: float, base: float) -> float:
    return math.log(x) / math.log(base)


Texts = dict[tuple[Any, int], tuple[Any, tuple[Type, ...]]]
FUNCTIONS: Texts = {
    (math.gcd, 2): (gcd, INTS),
    (math.lcm, 2): (lcm, INTS),
    (math.isqrt, 1): (isqrt, INTS),
    (math.factorial, 1): (factorial, INTS),
    (math.comb, 2): (comb, INTS),
    (builtins.pow, 3): (power_modulo, INTS),
    (math.degrees, 1): (degrees, (*INTS, FLOAT)),
    (math.radians, 1): (radians, (*INTS, FLOAT)),
    (math.log, 2): (logarithm, (*INTS, FLOAT)),
}
"""By function and number of arguments: the text, and the types that it is for."""


def meaning(callee: object, args: Sequence[Value], texts: Texts = FUNCTIONS) -> FunctionType | None:
    """The Python text of a function for such arguments, if there is one."""
    try:
        found = texts.get((callee, len(args)))
    except TypeError:  # unhashable
        return None
    if found is None or any(arg.type not in found[1] for arg in args):
        return None
    text: FunctionType = found[0]
    return text
