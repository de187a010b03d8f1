"""Seeded draws in machine code: where a thread is in its random words, and the words (``random``).

Behind the fuel lie the thread's index, the key of its path and how often it has drawn there. A call
that opens a path has a key of its own while it lasts, as in the engines. ``TEXT`` defines what the
functions of a unit share, if one of them draws.
"""

from __future__ import annotations

from autobatch.compiled.writer import Writer
from autobatch.llvm import literal
from autobatch.random.counters import LANES
from autobatch.random.normal_text import normal_text
from autobatch.random.paths import GOLDEN, MIX
from autobatch.random.philox_text import BLOCK, philox_text

THREAD, KEY, NUMBER = 3, 4, 5
"""Which of the numbers behind the fuel they are."""
STATE = 6
"""How many there are, with the fuel and what objects need (``kernel``)."""
TEXT = "\n".join([*philox_text(), *normal_text()])


def at(w: Writer, place: int) -> str:
    """The address of one of them."""
    return w.made(f"getelementptr i64, ptr %fuel, i64 {place}")


def here(w: Writer) -> tuple[str, str]:
    """The key of the thread's path and the number of its next draw, which is made by this."""
    counter = at(w, NUMBER)
    key, number = (w.made(f"load i64, ptr {place}") for place in (at(w, KEY), counter))
    w.emit(f"store i64 {w.made(f'add i64 {number}, 1')}, ptr {counter}")
    return key, number


def opened(w: Writer) -> tuple[str, str]:
    """Begin the path of a call; where its caller draws next."""
    key, number = here(w)
    more = w.made(f"add i64 {number}, 1")
    mixed = w.made(f"add i64 {key}, {w.made(f'mul i64 {more}, {signed(GOLDEN)}')}")
    for shift, factor in MIX:
        mixed = w.made(f"mul i64 {shifted(w, mixed, shift)}, {signed(factor)}")
    gone_to(w, shifted(w, mixed, 31), "0")
    return key, more


def gone_to(w: Writer, key: str, number: str) -> None:
    """Let the thread draw by a key, from a number on."""
    w.emit(f"store i64 {key}, ptr {at(w, KEY)}")
    w.emit(f"store i64 {number}, ptr {at(w, NUMBER)}")


def shifted(w: Writer, word: str, shift: int) -> str:
    return w.made(f"xor i64 {word}, {w.made(f'lshr i64 {word}, {shift}')}")


def signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


class Draw:
    """One draw of the thread: as many blocks of words as it takes."""

    def __init__(self, w: Writer) -> None:
        self.w = w
        w.draws = w.unfused = True
        self.key, self.number = here(w)
        self.thread = w.made(f"load i64, ptr {at(w, THREAD)}")

    def block(self, block: str) -> list[str]:
        """The words of a block, each of 32 bits in an i64."""
        w = self.w
        given = ", ".join(f"i64 {x}" for x in (block, self.number, self.thread, self.key))
        made = w.made(f"call {BLOCK} @philox({given})")
        lanes = [w.made(f"extractvalue {BLOCK} {made}, {lane}") for lane in range(LANES)]
        return [w.made(f"zext i32 {lane} to i64") for lane in lanes]


def double(w: Writer, high: str, low: str) -> str:
    """53 bits of two words, as a number in [0, 1)."""
    upper = w.made(f"shl i64 {w.made(f'lshr i64 {high}, 5')}, 26")
    whole = w.made(f"or i64 {upper}, {w.made(f'lshr i64 {low}, 6')}")
    as_float = w.made(f"uitofp i64 {whole} to double")
    return w.made(f"fmul double {as_float}, {literal(2.0**-53, 'double')}")


def scaled(w: Writer, high: str, low: str, size: str) -> str:
    """Evenly from 0 to ``size`` - 1, for sizes up to 2**32: the upper part of a product."""
    carried = w.made(f"lshr i64 {w.made(f'mul i64 {low}, {size}')}, 32")
    whole = w.made(f"add i64 {w.made(f'mul i64 {high}, {size}')}, {carried}")
    return w.made(f"lshr i64 {whole}, 32")
