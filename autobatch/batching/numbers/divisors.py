"""``math.gcd``, ``lcm`` and ``isqrt`` on int columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from autobatch.batching.numbers import integers, intervals
from autobatch.batching.numbers.kernels import either, narrow, outside, settled, tensors, whole
from autobatch.batching.numbers.records import LEAST, MOST, Outlook, Parts, Rule, Term

_ROOT_MOST = 3037000499  # the root of the largest int64


def _foresee_gcd(a: Term, b: Term) -> Outlook | None:
    return settled(intervals.gcd(a, b)) if _has_magnitudes(a, b) else None


def _has_magnitudes(a: Term, b: Term) -> bool:
    """Ints, and no uniform one whose magnitude is beyond int64."""
    return narrow(a, b) and not any(t.is_uniform and t.low == LEAST for t in (a, b))


def _gcd(outlook: Outlook, a: Term, b: Term) -> Parts:
    """The least int64 has no magnitude there: its rows escape."""
    data = torch.gcd(*tensors(whole(a), whole(b)))
    if not outlook.may_escape:
        return data, None, None
    return data, None, either(outside(a, LEAST + 1, MOST), outside(b, LEAST + 1, MOST))


def _foresee_isqrt(a: Term) -> Outlook | None:
    if not narrow(a) or a.high < 0:
        return None
    bounds = math.isqrt(max(a.low, 0)), math.isqrt(a.high)
    return settled(bounds, may_fail=a.low < 0)


def _isqrt(outlook: Outlook, a: Term) -> Parts:
    """The float root, which is at most one off, corrected by squares that do not overflow."""
    x = whole(a)
    root = torch.clamp(torch.sqrt(x.to(torch.float64)).to(torch.int64), 0, _ROOT_MOST)
    root = root - (root * root > x).to(torch.int64)
    above = torch.clamp(root + 1, max=_ROOT_MOST)
    data = torch.where(above * above <= x, above, root)
    return data, x < 0 if outlook.may_fail else None, None


def _foresee_lcm(a: Term, b: Term) -> Outlook | None:
    if not _has_magnitudes(a, b):
        return None
    least = LEAST in (a.low, b.low)
    return settled((0, intervals.magnitude(a)[1] * intervals.magnitude(b)[1]), may_escape=least)


def _lcm(outlook: Outlook, a: Term, b: Term) -> Parts:
    x, y = tensors(whole(a), whole(b))
    x, y = x.abs(), y.abs()
    shared = torch.clamp(torch.gcd(x, y), min=1)
    factor = torch.div(x, shared, rounding_mode="floor")
    data = factor * y
    if not outlook.may_escape:
        return data, None, None
    least = either(outside(a, LEAST + 1, MOST), outside(b, LEAST + 1, MOST))
    return data, None, either(integers.product_left(factor, y, data), least)


DIVISORS: dict[Callable[..., Any], tuple[Rule, ...]] = {
    math.gcd: (Rule("gcd", 2, 2, _foresee_gcd, _gcd),),
    math.lcm: (Rule("lcm", 2, 2, _foresee_lcm, _lcm),),
    math.isqrt: (Rule("isqrt", 1, 1, _foresee_isqrt, _isqrt),),
}
