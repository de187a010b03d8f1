"""Arithmetic on int columns: Python's results in int64, and the rows in which they leave it.

Each operation is a pair: ``foresee_*`` from intervals, and the kernels. A wrapped result is
told by its sign, or where one operand is uniform, by the other's place in the interval for which
the result fits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autobatch.batching.numbers import intervals
from autobatch.batching.numbers.kernels import (
    either,
    narrow,
    outside,
    settled,
    tensors,
    whole,
    zeros,
)
from autobatch.batching.numbers.records import LEAST, MOST, Outlook, Parts, Term

_ALMOST = 2.0**63 * (1 - 2.0**-40)  # a float64 estimate below it leaves no doubt


def foresee_add(a: Term, b: Term) -> Outlook | None:
    return settled(intervals.add(a, b)) if narrow(a, b) else None


def add(outlook: Outlook, a: Term, b: Term) -> Parts:
    if a.is_uniform:
        a, b = b, a
    x, y = whole(a), whole(b)
    data = torch.add(x, y)
    if not outlook.may_escape:
        return data, None, None
    if b.is_uniform:
        return data, None, outside(a, LEAST - y, MOST - y)
    return data, None, ((x ^ data) & (y ^ data)) < 0


def foresee_sub(a: Term, b: Term) -> Outlook | None:
    return settled(intervals.sub(a, b)) if narrow(a, b) else None


def sub(outlook: Outlook, a: Term, b: Term) -> Parts:
    x, y = whole(a), whole(b)
    data = torch.rsub(y, x) if a.is_uniform else torch.sub(x, y)
    if not outlook.may_escape:
        return data, None, None
    if b.is_uniform:
        return data, None, outside(a, LEAST + y, MOST + y)
    if a.is_uniform:
        return data, None, outside(b, x - MOST, x - LEAST)
    return data, None, ((x ^ y) & (x ^ data)) < 0


def foresee_mul(a: Term, b: Term) -> Outlook | None:
    return settled(intervals.mul(a, b)) if narrow(a, b) else None


def mul(outlook: Outlook, a: Term, b: Term) -> Parts:
    if a.is_uniform:
        a, b = b, a
    data = torch.mul(whole(a), whole(b))
    if not outlook.may_escape:
        return data, None, None
    if b.is_uniform:
        return data, None, outside(a, *_factors(int(b.value)))
    return data, None, product_left(whole(a), whole(b), data)


def _factors(c: int) -> tuple[int, int]:
    """The least and the most x for which ``x * c`` is in int64; c is not zero."""
    return (-(-LEAST // c), MOST // c) if c > 0 else (-(MOST // -c), -LEAST // -c)


def product_left(x: Tensor, y: Tensor, data: Tensor) -> Tensor:
    """Where ``x * y`` is not the wrapped product ``data``.

    A product up to 1.5 * 2**63 that wraps changes its sign; a larger one shows in float64.
    """
    estimate = x.to(torch.float64) * y.to(torch.float64)
    return (estimate.abs() >= 1.5 * 2.0**63) | ((estimate < 0) != (data < 0))


def foresee_floordiv(a: Term, b: Term) -> Outlook | None:
    if not narrow(a, b) or b.low == b.high == 0:
        return None
    return settled(intervals.floordiv(a, b), may_fail=b.low <= 0 <= b.high)


def floordiv(outlook: Outlook, a: Term, b: Term) -> Parts:
    failed, divisor = _divisor(b)
    if a.is_uniform:
        data = torch.div(*tensors(int(a.value), divisor), rounding_mode="floor")
    else:
        data = torch.div(whole(a), divisor, rounding_mode="floor")
    escape = None
    if outlook.may_escape:  # -2**63 // -1
        least = None if a.is_uniform else a.value == LEAST
        minus = None if b.is_uniform else b.value == -1
        escape = minus if least is None else least if minus is None else least & minus
    return data, failed if outlook.may_fail else None, escape


def foresee_mod(a: Term, b: Term) -> Outlook | None:
    if not narrow(a, b) or b.low == b.high == 0:
        return None
    return settled(intervals.mod(a, b), may_fail=b.low <= 0 <= b.high)


def mod(outlook: Outlook, a: Term, b: Term) -> Parts:
    failed, divisor = _divisor(b)
    data = torch.remainder(whole(a), divisor)
    return data, failed if outlook.may_fail else None, None


def _divisor(b: Term) -> tuple[Tensor | None, int | Tensor]:
    """Where b is zero, and b with 1 in those rows: integer division by zero stops torch."""
    failed = zeros(b)
    return failed, whole(b) if failed is None else torch.where(failed, 1, whole(b))


def foresee_pow(a: Term, b: Term) -> Outlook | None:
    """Of ``a ** b`` for an exponent that may be at least zero; negative rows escape to floats."""
    if not narrow(a, b) or b.high < 0:
        return None
    return settled(intervals.power(a, b), may_escape=b.low < 0)


def pow(outlook: Outlook, a: Term, b: Term) -> Parts:
    x, y = whole(a), whole(b)
    if b.is_uniform and y == 2:
        data = torch.mul(x, x)
        escape = product_left(x, x, data) if outlook.may_escape else None
        return data, None, escape
    data = torch.pow(x, torch.clamp(y, min=0) if b.low < 0 else y)
    if not outlook.may_escape:
        return data, None, None
    size, exponent = _magnitude(x), y if b.is_uniform else y.to(torch.float64)
    estimate = torch.pow(size, exponent)
    return data, None, either(estimate >= _ALMOST, y < 0 if b.low < 0 else None)


def _magnitude(x: int | Tensor) -> float | Tensor:
    return abs(float(x)) if isinstance(x, int) else x.to(torch.float64).abs()


def foresee_lshift(a: Term, b: Term) -> Outlook | None:
    if not narrow(a, b) or b.high < 0:
        return None
    return settled(intervals.lshift(a, b), may_fail=b.low < 0)


def lshift(outlook: Outlook, a: Term, b: Term) -> Parts:
    x, (failed, shift) = whole(a), _shift(b)
    data = torch.bitwise_left_shift(x, shift)
    escape = None
    if outlook.may_escape and b.is_uniform:
        escape = outside(a, -(-LEAST >> b.low), MOST >> b.low)
    elif outlook.may_escape:
        escape = torch.bitwise_right_shift(data, shift) != x
        if b.high > 63:
            escape = escape | ((b.value > 63) & (x != 0))
    return data, failed if outlook.may_fail else None, escape


def foresee_rshift(a: Term, b: Term) -> Outlook | None:
    if not narrow(a, b) or b.high < 0:
        return None
    return settled(intervals.rshift(a, b), may_fail=b.low < 0)


def rshift(outlook: Outlook, a: Term, b: Term) -> Parts:
    x, (failed, shift) = whole(a), _shift(b)
    data = torch.bitwise_right_shift(x, shift)
    return data, failed if outlook.may_fail else None, None


def _shift(b: Term) -> tuple[Tensor | None, int | Tensor]:
    """Where the shift is negative, and the shift brought to 0..63."""
    y = whole(b)
    if b.is_uniform:
        return None, min(y, 63)
    failed = y < 0 if b.low < 0 else None
    return failed, y if b.within(0, 63) else torch.clamp(y, 0, 63)
