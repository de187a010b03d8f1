"""``& | ^ ~`` on bool and int columns; two bools stay bools."""

from __future__ import annotations

from collections.abc import Callable

import torch

from autobatch.batching.numbers import intervals
from autobatch.batching.numbers.kernels import narrow, settled, whole
from autobatch.batching.numbers.records import BIT, MOST, Interval, Outlook, Parts, Rule, Term


def _bitwise(
    name: str, interval: Callable[[Term, Term], Interval], kernel: Callable[..., torch.Tensor]
) -> Rule:
    def foresee(a: Term, b: Term) -> Outlook | None:
        if a.tag == b.tag == "bool":
            return Outlook("bool", BIT)
        return settled(interval(a, b)) if narrow(a, b) else None

    def compute(outlook: Outlook, a: Term, b: Term) -> Parts:
        if a.is_uniform:
            a, b = b, a
        if outlook.tag == "bool":
            return kernel(a.value, b.value), None, None
        return kernel(whole(a), whole(b)), None, None

    return Rule(name, 2, 2, foresee, compute)


def _with_wide_masks(plain: Rule) -> Rule:
    """``x & 0xFFFFFFFFFFFFFFFF``: a uniform mask of 64 bits or more, as hash functions use it.

    Rows that are not negative have no bits above the 63rd; the others escape.
    """

    def split(a: Term, b: Term) -> tuple[Term, Term] | None:
        if a.is_uniform:
            a, b = b, a
        if a.is_float or b.is_float or not b.is_uniform or b.low <= MOST:
            return None
        mask = b.low & MOST
        return a, Term("int", mask, mask, mask, True)

    def foresee(a: Term, b: Term) -> Outlook | None:
        wide = split(a, b)
        if wide is None:
            return plain.foresee(a, b)
        column, mask = wide
        return settled((0, min(mask.high, max(column.high, 0))), may_escape=column.low < 0)

    def compute(outlook: Outlook, a: Term, b: Term) -> Parts:
        wide = split(a, b)
        if wide is None:
            return plain.compute(outlook, a, b)
        column, mask = wide
        data = torch.bitwise_and(whole(column), mask.value)
        return data, None, column.value < 0 if outlook.may_escape else None

    return Rule(plain.name, 2, 2, foresee, compute)


def _foresee_invert(a: Term) -> Outlook | None:
    return settled(intervals.invert(a)) if narrow(a) else None


def _invert(outlook: Outlook, a: Term) -> Parts:
    return torch.bitwise_not(whole(a)), None, None


BITS = {
    "and": _with_wide_masks(_bitwise("and", intervals.conjunction, torch.bitwise_and)),
    "or": _bitwise("or", intervals.disjunction, torch.bitwise_or),
    "xor": _bitwise("xor", intervals.exclusive, torch.bitwise_xor),
    "invert": Rule("invert", 1, 1, _foresee_invert, _invert),
}
