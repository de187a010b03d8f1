"""The functions of ``math`` of two floats, and those that take a float apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.numbers import floats
from autobatch.batching.numbers.kernels import INF, double, either, floatable, tensors, whole
from autobatch.batching.numbers.records import BIT, Outlook, Parts, Rule, Term
from autobatch.compat import same_bits


def _foresee_pair(a: Term, b: Term) -> Outlook | None:
    return Outlook("float") if floatable(a, b) else None


def _pair(name: str, kernel: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    """A function of two floats that never fails."""

    def compute(outlook: Outlook, a: Term, b: Term) -> Parts:
        return kernel(*tensors(double(a), double(b))), None, None

    return Rule(name, 2, 2, _foresee_pair, compute)


def _foresee_pow(a: Term, b: Term) -> Outlook | None:
    return Outlook("float", None, may_fail=True) if floatable(a, b) else None


def _pow(outlook: Outlook, a: Term, b: Term) -> Parts:
    """``math.pow`` fails where ``**`` does, and where that is complex."""
    x, y = double(a), double(b)
    data = floats.power(x, y)
    if not outlook.may_fail:
        return data, None, None
    return data, either(floats.overflowed(data, x, y), floats.undefined(data, x, y)), None


def _foresee_fmod(a: Term, b: Term) -> Outlook | None:
    if not floatable(a, b):
        return None
    return Outlook("float", None, may_fail=True)


def _fmod(outlook: Outlook, a: Term, b: Term) -> Parts:
    x, y = tensors(double(a), double(b))
    data = torch.fmod(floats.reduced(x, y), y)
    failed = ((x.abs() == INF) & (y == y)) | ((y == 0) & (x == x)) if outlook.may_fail else None
    return data, failed, None


def _isclose(outlook: Outlook, a: Term, b: Term) -> Parts:
    """With the default tolerances; infinities are close to themselves only."""
    x, y = tensors(double(a), double(b))
    apart = (x - y).abs()
    near = (apart <= (1e-09 * y).abs()) | (apart <= (1e-09 * x).abs())
    return (x == y) | (near & (apart < INF)), None, None


def _foresee_isclose(a: Term, b: Term) -> Outlook | None:
    return Outlook("bool", BIT) if floatable(a, b) else None


def _remainder(outlook: Outlook, a: Term, b: Term) -> Parts:
    """IEEE 754's: from the nearest multiple of b, the even one of two as near."""
    x, y = tensors(double(a), double(b))
    failed = ((x.abs() == INF) & (y == y)) | ((y == 0) & (x == x)) if outlook.may_fail else None
    size, step = x.abs(), y.abs()
    rest = torch.fmod(floats.reduced(size, step), step)
    over = step - rest
    half = 0.5 * (size - rest)
    halfway = rest - 2.0 * torch.fmod(floats.reduced(half, step), step)
    nearest = torch.where(rest < over, rest, torch.where(rest > over, -over, halfway))
    data = torch.where(x < 0, -nearest, nearest)
    data = torch.where(data == 0, torch.copysign(data, x), data)
    data = torch.where((step == INF) & (size < INF), x, data)
    return data, failed, None


def _foresee_ldexp(a: Term, b: Term) -> Outlook | None:
    if b.is_float or not floatable(a) or (b.is_uniform and not b.within(-1022, 1023)):
        return None
    return Outlook("float", None, True, not b.within(-1022, 1023))


def _ldexp(outlook: Outlook, a: Term, b: Term) -> Parts:
    """One product with a power of two that is a normal float; other exponents escape."""
    x, y = double(a), whole(b)
    if isinstance(y, int):
        data = x * math.ldexp(1.0, y)
        return data, floats.overflowed(data, x) if outlook.may_fail else None, None
    data = x * same_bits((torch.clamp(y, -1022, 1023) + 1023) << 52, torch.float64)
    failed = floats.overflowed(data, x) if outlook.may_fail else None
    if not outlook.may_escape:
        return data, failed, None
    beyond = (y < -1022) | (y > 1023)
    return data, either(failed), beyond


def _foresee_float(a: Term) -> Outlook | None:
    return Outlook("float") if floatable(a) else None


def _integral(outlook: Outlook, a: Term) -> Parts:
    return torch.trunc(double(a)), None, None


def _fraction(outlook: Outlook, a: Term) -> Parts:
    x = double(a)
    rest = torch.where(x.abs() == INF, 0.0, x - torch.trunc(x))
    return torch.copysign(rest, x), None, None


def _mantissa(outlook: Outlook, a: Term) -> Parts:
    x = double(a)
    return torch.where(x.abs() < INF, torch.frexp(x).mantissa, x), None, None


def _exponent(outlook: Outlook, a: Term) -> Parts:
    x = double(a)
    exponent = torch.frexp(x).exponent.to(torch.int64)
    return torch.where(x.abs() < INF, exponent, 0), None, None


_FREXP_EXPONENTS = (-1073, 1024)

PAIRS: dict[Callable[..., Any], tuple[Rule, ...]] = {
    math.atan2: (_pair("atan2", torch.atan2),),
    math.copysign: (_pair("copysign", torch.copysign),),
    math.hypot: (_pair("hypot", torch.hypot),),
    math.nextafter: (_pair("nextafter", torch.nextafter),),
    math.pow: (Rule("pow", 2, 2, _foresee_pow, _pow),),
    math.fmod: (Rule("fmod", 2, 2, _foresee_fmod, _fmod),),
    math.remainder: (Rule("remainder", 2, 2, _foresee_fmod, _remainder),),
    math.isclose: (Rule("isclose", 2, 2, _foresee_isclose, _isclose),),
    math.ldexp: (Rule("ldexp", 2, 2, _foresee_ldexp, _ldexp),),
    math.modf: (
        Rule("modf", 1, 1, _foresee_float, _fraction),
        Rule("modf", 1, 1, _foresee_float, _integral),
    ),
    math.frexp: (
        Rule("frexp", 1, 1, _foresee_float, _mantissa),
        Rule("frexp", 1, 1, lambda a: Outlook("int", _FREXP_EXPONENTS), _exponent),
    ),
}
