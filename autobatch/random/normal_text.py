"""Normal numbers of random words as text of LLVM's, of which it makes vectors.

They are those of ``transforms.normal``, with logarithms, sines and cosines of their own. Each takes
a float and is rounded from a double that is right to its last place or two, as a library's is: for
all 84 million operands that there are (radii in (0, 1], angles in [0, 2 pi]) it is what torch
gives, to the bit. A library's are calls, by which a normal number took 36 ns; so it takes 8, and 3
where a thread draws many, where ``torch.randn`` makes one in 3.5.

- The logarithm of ``m * 2**e``, m between the roots of 1/2 and 2: with ``f = m - 1`` and
  ``s = f / (2 + f)`` it is ``e ln 2 + 2 artanh s``, and ``2 s = f - f s``.
- Sine and cosine by how often a quarter turn goes into the angle, and the rest of it.

Series stop where the next term is below half of the last place. ln 2 and the quarter turn are
two doubles each, of which the first has zeros enough that its multiples are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from autobatch.llvm import literal

LN_2 = Fraction("0.6931471805599453094172321214581765680755")
QUARTER = Fraction("1.5707963267948966192313216916397514420986")
ROOT = 0x3FE6A09E << 32
"""The bits of the root of 1/2, but for the lower half."""
ONE = 0x3FF << 52
FRACTION = (1 << 52) - 1


def halves(x: Fraction, bits: int) -> tuple[float, float]:
    """A number as two doubles, of which the first has so many bits."""
    unit = Fraction(2) ** (math.frexp(float(x))[1] - bits)
    first = round(x / unit) * unit
    return float(first), float(x - first)


def number(x: float | Fraction) -> str:
    return literal(x, "double")


class Lines:
    """The body of a function."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def made(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def plus(self, a: str, b: str) -> str:
        return self.made(f"fadd double {a}, {b}")

    def minus(self, a: str, b: str) -> str:
        return self.made(f"fsub double {a}, {b}")

    def times(self, a: str, b: str) -> str:
        return self.made(f"fmul double {a}, {b}")

    def series(self, x: str, factors: Sequence[Fraction]) -> str:
        """The polynomial with these factors, by Horner's rule."""
        *before, found = map(number, factors)
        for factor in reversed(before):
            found = self.plus(self.times(found, x), factor)
        return found

    def chosen(self, bit: str, yes: str, no: str) -> str:
        """One of two doubles, by whether an i32 has a bit of 0 only."""
        condition = self.made(f"icmp ne i32 {bit}, 0")
        return self.made(f"select i1 {condition}, double {yes}, double {no}")


def logarithm(w: Lines, x: str) -> str:
    bits = w.made(f"bitcast double {x} to i64")
    bits = w.made(f"add i64 {bits}, {ONE - ROOT}")
    exponent = w.made(f"trunc i64 {w.made(f'lshr i64 {bits}, 52')} to i32")
    e = w.made(f"sitofp i32 {w.made(f'sub i32 {exponent}, 1023')} to double")
    m = w.made(f"add i64 {w.made(f'and i64 {bits}, {FRACTION}')}, {ROOT}")
    f = w.minus(w.made(f"bitcast i64 {m} to double"), number(1.0))
    s = w.made(f"fdiv double {f}, {w.plus(f, literal(2.0, 'double'))}")
    z = w.times(s, s)
    rest = w.times(z, w.series(z, [Fraction(2, 2 * n + 3) for n in range(10)]))
    high, low = (w.times(e, number(half)) for half in halves(LN_2, 32))
    return w.minus(high, w.minus(w.minus(w.times(s, w.minus(f, rest)), low), f))


def turned(w: Lines, x: str) -> tuple[str, str, str]:
    """How many quarter turns, and cosine and sine of the rest."""
    turns = w.plus(w.times(x, number(1 / QUARTER)), number(0.5))
    n = w.made(f"fptosi double {turns} to i32")
    whole = w.made(f"sitofp i32 {n} to double")
    high, low = (w.times(whole, number(half)) for half in halves(QUARTER, 33))
    most = w.minus(x, high)
    y = w.minus(most, low)
    left = w.minus(w.minus(most, y), low)  # what of the rest is below the last place of y
    z = w.times(y, y)
    factors = [Fraction((-1) ** (n + 1), math.factorial(2 * n + 3)) for n in range(8)]
    sine = w.plus(y, w.plus(left, w.times(w.times(z, y), w.series(z, factors))))
    factors = [Fraction((-1) ** n, math.factorial(2 * n + 4)) for n in range(8)]
    half = w.times(z, number(0.5))
    near = w.minus(number(1.0), half)
    lost = w.minus(w.minus(number(1.0), near), half)
    more = w.minus(w.times(w.times(z, z), w.series(z, factors)), w.times(y, left))
    return n, w.plus(near, w.plus(lost, more)), sine


def cosine(w: Lines, x: str) -> str:
    n, cos, sin = turned(w, x)
    found = w.chosen(w.made(f"and i32 {n}, 1"), sin, cos)
    negative = w.made(f"and i32 {w.made(f'add i32 {n}, 1')}, 2")
    return w.chosen(negative, w.made(f"fneg double {found}"), found)


def sine(w: Lines, x: str) -> str:
    n, cos, sin = turned(w, x)
    found = w.chosen(w.made(f"and i32 {n}, 1"), cos, sin)
    return w.chosen(w.made(f"and i32 {n}, 2"), w.made(f"fneg double {found}"), found)


FUNCTIONS = {"log": logarithm, "cos": cosine, "sin": sine}


def normal_text() -> Iterator[str]:
    """``normal_cos`` and ``normal_sin`` of two words: the numbers of a pair."""
    yield "declare float @llvm.sqrt.f32(float)"
    for name, function in FUNCTIONS.items():
        w = Lines()
        found = w.made(f"fptrunc double {function(w, w.made('fpext float %x to double'))} to float")
        yield f"define internal float @rounded_{name}(float %x) alwaysinline {{"
        yield from w.lines
        yield f"  ret float {found}"
        yield "}"
    unit, turn, twice, one = (literal(x, "float") for x in (2.0**-32, 2.0 * math.pi, -2.0, 1.0))
    for name in ("cos", "sin"):
        yield f"define internal float @normal_{name}(i64 %a, i64 %b) alwaysinline {{"
        yield "  %first = uitofp i64 %a to float"
        yield f"  %above = fadd float %first, {one}"
        yield f"  %radius = fmul float %above, {unit}"
        yield "  %log = call float @rounded_log(float %radius)"
        yield f"  %square = fmul float %log, {twice}"
        yield "  %far = call float @llvm.sqrt.f32(float %square)"
        yield "  %second = uitofp i64 %b to float"
        yield f"  %part = fmul float %second, {unit}"
        yield f"  %angle = fmul float %part, {turn}"
        yield f"  %turned = call float @rounded_{name}(float %angle)"
        yield "  %normal = fmul float %turned, %far"
        yield "  ret float %normal"
        yield "}"
