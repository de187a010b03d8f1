"""The functions of Python's ``random`` under a seed, as ``random.python`` has them for a thread.

``random()`` and ``getrandbits(k)`` take one draw each; the others are Python text that rests on
them as ``random.Random`` does.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from autobatch.compiled import library, list_texts, numbers, sequences, table_texts
from autobatch.compiled.drawing import Draw, double
from autobatch.compiled.types import BOOL, FLOAT, INT, Number, Type, Value, refuse
from autobatch.compiled.writer import Writer

INTS: tuple[Type, ...] = (INT, BOOL)
NUMBERS: tuple[Type, ...] = (*INTS, FLOAT)
MOST_BITS = 62


def unit(w: Writer, args: Sequence[Value]) -> Value:
    """``random.random()``."""
    if args:
        refuse("random.random takes no arguments")
    return Value(FLOAT, (double(w, *Draw(w).block("0")[:2]),))


def bits(w: Writer, args: Sequence[Value]) -> Value:
    """``random.getrandbits(k)``: the upper ``k`` bits of a block's words."""
    if len(args) != 1 or not isinstance(args[0].type, Number) or args[0].type == FLOAT:
        refuse("random.getrandbits has a compiled form for an int")
    count = numbers.as_int(w, args[0])
    w.give_up_if(w.made(f"icmp ugt i64 {count}, {MOST_BITS}"))
    high, low, *_ = Draw(w).block("0")
    whole = w.made(f"or i64 {w.made(f'shl i64 {high}, 32')}, {low}")
    spare = w.made(f"sub i64 63, {count}")  # and one more: none of 64 may be shifted at once
    return Value(INT, (w.made(f"lshr i64 {w.made(f'lshr i64 {whole}, 1')}, {spare}"),))


def below(n: int) -> int:
    if n <= 0:
        raise ValueError
    count = n.bit_length()
    found = random.getrandbits(count)
    while found >= n:
        found = random.getrandbits(count)
    return found


def randrange_from(start: int, stop: int) -> int:
    return start + below(stop - start)


def randint(a: int, b: int) -> int:
    return a + below(b + 1 - a)


def uniform(a: float, b: float) -> float:
    return a + (b - a) * random.random()


def gauss(mu: float, sigma: float) -> float:
    angle = random.random() * (2.0 * math.pi)
    radius = math.sqrt(-2.0 * math.log(1.0 - random.random()))
    return mu + math.cos(angle) * radius * sigma


def normalvariate(mu: float, sigma: float) -> float:
    while True:
        u = random.random()
        v = 1.0 - random.random()
        z = 4 * math.exp(-0.5) / math.sqrt(2.0) * (u - 0.5) / v
        if z * z / 4.0 <= -math.log(v):
            break
    return mu + z * sigma


def expovariate(rate: float) -> float:
    return -math.log(1.0 - random.random()) / rate


RULES: dict[Any, Callable[[Writer, Sequence[Value]], Value]] = {
    random.random: unit,
    random.getrandbits: bits,
}
TEXTS: library.Texts = {
    (random.randrange, 1): (below, INTS),
    (random.randrange, 2): (randrange_from, INTS),
    (random.randint, 2): (randint, INTS),
    (random.uniform, 2): (uniform, NUMBERS),
    (random.gauss, 2): (gauss, NUMBERS),
    (random.normalvariate, 2): (normalvariate, NUMBERS),
    (random.expovariate, 1): (expovariate, NUMBERS),
}
"""By function and number of arguments: the text, and the types that it is for."""


def rule(callee: object) -> Callable[[Writer, Sequence[Value]], Value] | None:
    try:
        return RULES.get(callee)
    except TypeError:  # unhashable
        return None


def text(callee: Any, args: Sequence[Value]) -> FunctionType | None:
    """The Python text of a function of ``random``, or one that such a text calls."""
    return callee if is_text(callee) else library.meaning(callee, args, TEXTS)


TEXTUAL = frozenset(
    {__name__, *(each.__name__ for each in (library, sequences, list_texts, table_texts))}
)
"""The modules whose functions stand for others."""


def is_text(function: object) -> bool:
    """Whether a function is Python text that stands for one of Python's own."""
    return type(function) is FunctionType and function.__module__ in TEXTUAL
