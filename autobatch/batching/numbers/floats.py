"""Arithmetic on float columns as CPython defines it, with ints among the operands as floats.

Python's floats give no inf by division or power: where C gives one, the row failed. ``//`` and
``%`` are CPython's (Objects/floatobject.c): the remainder takes the divisor's sign, a zero too.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.numbers.kernels import (
    INF,
    double,
    either,
    floatable,
    outside,
    tensors,
    zeros,
)
from autobatch.batching.numbers.records import DOUBLE_EXACT, Outlook, Parts, Term

# Exponents that torch.pow rewrites into roots, reciprocals and products, at up to many units in
# the last place. As a column the same exponent takes the general kernel.
_REWRITTEN = (0.5, -0.5, -1.0, -2.0, 3.0)


def foresee(a: Term, b: Term) -> Outlook | None:
    return Outlook("float") if floatable(a, b) else None


def add(outlook: Outlook, a: Term, b: Term) -> Parts:
    if a.is_uniform:
        a, b = b, a
    return torch.add(double(a), double(b)), None, None


def sub(outlook: Outlook, a: Term, b: Term) -> Parts:
    x, y = double(a), double(b)
    return torch.rsub(y, x) if a.is_uniform else torch.sub(x, y), None, None


def mul(outlook: Outlook, a: Term, b: Term) -> Parts:
    if a.is_uniform:
        a, b = b, a
    return torch.mul(double(a), double(b)), None, None


def foresee_truediv(a: Term, b: Term) -> Outlook | None:
    """Two ints give the float nearest to their quotient, as division does if both are exact."""
    if not floatable(a, b) or _is_zero(b):
        return None
    exact = a.is_float or b.is_float or (_is_exact(a) and _is_exact(b))
    if not exact and any(t.is_uniform and not _is_exact(t) for t in (a, b)):
        return None
    return Outlook("float", None, _may_be_zero(b), not exact)


def truediv(outlook: Outlook, a: Term, b: Term) -> Parts:
    data = _divide(double(a), double(b))
    failed = zeros(b) if outlook.may_fail else None
    if not outlook.may_escape:
        return data, failed, None
    limits = -DOUBLE_EXACT, DOUBLE_EXACT
    return data, failed, either(outside(a, *limits), outside(b, *limits))


def _is_exact(term: Term) -> bool:
    return term.within(-DOUBLE_EXACT, DOUBLE_EXACT)


def _divide(x: Any, y: Any, rounding: str | None = None) -> Tensor:
    if isinstance(x, Tensor) and x.device.type == "cpu":
        return torch.div(x, y, rounding_mode=rounding)
    return torch.div(*tensors(x, y), rounding_mode=rounding)


def _is_zero(term: Term) -> bool:
    return term.is_uniform and term.value == 0


def _may_be_zero(term: Term) -> bool:
    return not term.is_uniform and (term.is_float or term.low <= 0 <= term.high)


def foresee_quotient(a: Term, b: Term) -> Outlook | None:
    return None if not floatable(a, b) or _is_zero(b) else Outlook("float", None, _may_be_zero(b))


def floordiv(outlook: Outlook, a: Term, b: Term) -> Parts:
    data = _divide(double(a), double(b), "floor")
    return data, zeros(b) if outlook.may_fail else None, None


def mod(outlook: Outlook, a: Term, b: Term) -> Parts:
    x, y = tensors(double(a), double(b)) if a.is_uniform else (double(a), double(b))
    data = torch.remainder(reduced(x, y), y)
    if not b.is_uniform:
        data = torch.where(data == 0, torch.copysign(data, y), data)
    elif y > 0:
        data = data + 0.0  # -0.0 becomes 0.0, and nothing else changes
    else:
        data = torch.where(data == 0, -0.0, data)
    return data, zeros(b) if outlook.may_fail else None, None


def reduced(x: Any, y: Any) -> Any:
    """A number with the remainder by y that x has, so near that their quotient is finite.

    Where ``x / y`` overflows torch's vectorised remainder on CPU gives nan. A remainder by a
    multiple of y keeps the remainder by y; powers of two give the multiples exactly.
    """
    column = x if isinstance(x, Tensor) else y
    if column.device.type != "cpu" or (isinstance(y, float) and abs(y) >= 1):
        return x
    near = _raised(y, 2.0**1000)
    far = _raised(near, 2.0**100)
    return torch.fmod(torch.fmod(x, far), near)


def _raised(y: Any, power: float) -> Any:
    """y, times a power of two where it is less than one."""
    if isinstance(y, float):
        return y * power if abs(y) < 1 else y
    return torch.where(y.abs() < 1, y * power, y)


def foresee_pow(a: Term, b: Term) -> Outlook | None:
    """``0.0 ** -1.0`` and overflow fail; a root of a negative number is complex, and escapes."""
    if not floatable(a, b):
        return None
    return Outlook("float", None, _may_reach_inf(a, b), _may_be_complex(a, b))


def _may_reach_inf(a: Term, b: Term) -> bool:
    return not (b.is_uniform and (0 <= b.value <= 1 or math.isinf(b.value) or b.value != b.value))


def _may_be_complex(a: Term, b: Term) -> bool:
    if (not a.is_float and a.low >= 0) or (a.is_uniform and a.value >= 0):
        return False
    return b.is_float and not (b.is_uniform and float(b.value).is_integer())


def pow(outlook: Outlook, a: Term, b: Term) -> Parts:
    x, y = double(a), double(b)
    data = power(x, y)
    failed = overflowed(data, x, y) if outlook.may_fail else None
    return data, failed, undefined(data, x, y) if outlook.may_escape else None


def power(x: Any, y: Any) -> Tensor:
    """``x ** y`` to one unit in the last place; either may be a float."""
    if isinstance(y, float):
        if y == 2.0:
            return torch.mul(x, x)
        if y in _REWRITTEN:
            y = torch.full_like(x, y)
    return torch.pow(x, y)


def overflowed(data: Tensor, *operands: float | Tensor) -> Tensor:
    """Where finite operands gave an infinite result."""
    failed = data.abs() == INF
    for operand in operands:
        if isinstance(operand, Tensor):
            failed = failed & (operand.abs() < INF)
        elif math.isinf(operand):
            return torch.zeros_like(failed)
    return failed


def undefined(data: Tensor, *operands: float | Tensor) -> Tensor:
    """Where operands none of which is nan gave nan."""
    marked = data != data
    for operand in operands:
        if isinstance(operand, Tensor):
            marked = marked & (operand == operand)
        elif operand != operand:
            return torch.zeros_like(marked)
    return marked
