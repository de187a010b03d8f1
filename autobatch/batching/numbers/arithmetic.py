"""The rules of the arithmetic operators: which half, ints' or floats', an operation takes."""

from __future__ import annotations

import torch

from autobatch.batching.numbers import floats, integers, intervals
from autobatch.batching.numbers.bits import BITS
from autobatch.batching.numbers.kernels import double, narrow, settled, whole
from autobatch.batching.numbers.records import LEAST, Compute, Foresee, Outlook, Parts, Rule, Term


def _joined(name: str, ints: tuple[Foresee, Compute], reals: tuple[Foresee, Compute]) -> Rule:
    """An operator whose result is an int for two ints, else a float."""

    def foresee(a: Term, b: Term) -> Outlook | None:
        return reals[0](a, b) if a.is_float or b.is_float else ints[0](a, b)

    def compute(outlook: Outlook, a: Term, b: Term) -> Parts:
        kernels: Compute = ints[1] if outlook.tag == "int" else reals[1]
        return kernels(outlook, a, b)

    return Rule(name, 2, 2, foresee, compute)


def _foresee_pow(a: Term, b: Term) -> Outlook | None:
    """Ints have an int power, but a float one for a negative exponent."""
    if a.is_float or b.is_float or b.high < 0:
        return floats.foresee_pow(a, b)
    return integers.foresee_pow(a, b)


def _pow(outlook: Outlook, a: Term, b: Term) -> Parts:
    return integers.pow(outlook, a, b) if outlook.tag == "int" else floats.pow(outlook, a, b)


def _foresee_neg(a: Term) -> Outlook | None:
    return Outlook("float") if a.is_float else settled(intervals.negate(a))


def _neg(outlook: Outlook, a: Term) -> Parts:
    x = double(a) if a.is_float else whole(a)
    return torch.neg(x), None, x == LEAST if outlook.may_escape else None


def _foresee_abs(a: Term) -> Outlook | None:
    return Outlook("float") if a.is_float else settled(intervals.magnitude(a))


def _abs(outlook: Outlook, a: Term) -> Parts:
    x = double(a) if a.is_float else whole(a)
    return torch.abs(x), None, x == LEAST if outlook.may_escape else None


def foresee_same(a: Term) -> Outlook | None:
    """Of ``+a``: the operand, a bool as an int."""
    return Outlook("float") if a.is_float else settled((a.low, a.high)) if narrow(a) else None


def same(outlook: Outlook, a: Term) -> Parts:
    return double(a) if a.is_float else whole(a), None, None


ARITHMETIC: dict[str, Rule] = {
    "add": _joined("add", (integers.foresee_add, integers.add), (floats.foresee, floats.add)),
    "sub": _joined("sub", (integers.foresee_sub, integers.sub), (floats.foresee, floats.sub)),
    "mul": _joined("mul", (integers.foresee_mul, integers.mul), (floats.foresee, floats.mul)),
    "truediv": Rule("truediv", 2, 2, floats.foresee_truediv, floats.truediv),
    "floordiv": _joined(
        "floordiv",
        (integers.foresee_floordiv, integers.floordiv),
        (floats.foresee_quotient, floats.floordiv),
    ),
    "mod": _joined(
        "mod", (integers.foresee_mod, integers.mod), (floats.foresee_quotient, floats.mod)
    ),
    "pow": Rule("pow", 2, 2, _foresee_pow, _pow),
    "lshift": Rule("lshift", 2, 2, integers.foresee_lshift, integers.lshift),
    "rshift": Rule("rshift", 2, 2, integers.foresee_rshift, integers.rshift),
    "neg": Rule("neg", 1, 1, _foresee_neg, _neg),
    "pos": Rule("pos", 1, 1, foresee_same, same),
    "abs": Rule("abs", 1, 1, _foresee_abs, _abs),
    **BITS,
}
