"""The functions of Python's ``random``, drawn from a thread's own words.

``random.Random`` makes everything from ``random()`` and ``getrandbits()``, each call of which is
one draw of the thread here; nothing is kept from one function to the next.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import BuiltinMethodType, MethodType
from typing import Any

from autobatch.random.counters import LANES
from autobatch.random.sources import Thread

# fmt: off
NAMES = (
    "betavariate", "choice", "choices", "expovariate", "gammavariate", "gauss", "getrandbits",
    "lognormvariate", "normalvariate", "paretovariate", "randbytes", "randint", "random",
    "randrange", "sample", "shuffle", "triangular", "uniform", "vonmisesvariate", "weibullvariate",
)
# fmt: on
FUNCTIONS: dict[Any, str] = {getattr(random, name): name for name in NAMES}
"""The names of the module's functions that draw, which are methods of a generator of its own."""
MethodTypes = (BuiltinMethodType, MethodType)


def is_python_draw(callee: object) -> bool:
    return isinstance(callee, MethodTypes) and callee in FUNCTIONS


class Seeded(random.Random):
    """A generator whose words are a thread's."""

    def __init__(self, source: Thread) -> None:
        self.source = source
        self.gauss_next = None

    def __new__(cls, source: Thread) -> Seeded:
        return super().__new__(cls)

    def random(self) -> float:
        ((high, low, _, _),) = self.source.blocks(1)
        return ((high >> 5) << 26 | low >> 6) * 2.0**-53

    def getrandbits(self, k: int, /) -> int:
        if k < 0:
            raise ValueError("number of bits must be non-negative")
        words = -(-k // 32)
        found = 0
        for block in self.source.blocks(-(-words // LANES)):
            for word in block:
                found = found << 32 | word
        spare = -(-words // LANES) * LANES * 32 - k
        return found >> spare


def drawn_by(name: str, source: Thread) -> Callable[..., Any]:
    """The function of ``random`` of that name, for a thread."""
    made: Callable[..., Any] = getattr(Seeded(source), name)
    return made
