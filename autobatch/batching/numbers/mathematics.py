"""The functions of ``math`` on number columns, to one unit in the last place of the C library's.

Measured on CPU: ``sqrt`` is exact; ``sinh``, ``tanh``, ``atanh``, ``log10`` (exact at powers of
ten) and ``log`` to a base may be two units off, ``sinh`` and ``cosh`` beyond 709 three, all others
one. ``erfc``, ``gamma`` and ``lgamma`` have no rule: torch's are further off.

Failing rows follow CPython's math module: a ValueError where C has no result or a pole, an
OverflowError where a finite operand gives an infinite one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.numbers.divisors import DIVISORS
from autobatch.batching.numbers.kernels import INF, constant, double, either, floatable, tensors
from autobatch.batching.numbers.pairs import PAIRS
from autobatch.batching.numbers.records import (
    BIT,
    INT64,
    LEAST,
    Interval,
    Outlook,
    Parts,
    Rule,
    Term,
)

Mask = Callable[[Tensor], Tensor]

_EXP_MOST = 709.782712893384  # exp of the next float overflows
_COSH_MOST = 710.4758600739439
_EXP2_MOST = 1024.0


def _function(
    name: str,
    kernel: Callable[[Tensor], Tensor],
    fails: Mask | None = None,
    safe: Interval = INT64,
) -> Rule:
    """A function of one float; ints within ``safe`` do not fail."""

    def foresee(a: Term) -> Outlook | None:
        if not floatable(a):
            return None
        return Outlook("float", None, fails is not None and (a.is_float or not a.within(*safe)))

    def compute(outlook: Outlook, a: Term) -> Parts:
        x = double(a)
        failed = fails(x) if fails and outlook.may_fail else None
        return kernel(x), failed, None

    return Rule(name, 1, 1, foresee, compute)


def _sqrt(x: Tensor) -> Tensor:
    """Correctly rounded: torch's own on CPU (MKL's) is not, but its complex root of a real is."""
    if x.device.type != "cpu":
        return torch.sqrt(x)
    return torch.copysign(torch.sqrt(x.to(torch.complex128)).real, x)


def _log1p(x: Tensor) -> Tensor:
    """Torch's, which makes zeros of some subnormal numbers; there it is the number itself."""
    return torch.where(x.abs() < 1e-300, x, torch.log1p(x))


def _infinite(x: Tensor) -> Tensor:
    return x.abs() == INF


def _exceeds(limit: float) -> Mask:
    """Finite, and above the limit."""
    return lambda x: (x > limit) & (x < INF)


def _magnitude_exceeds(limit: float) -> Mask:
    def mask(x: Tensor) -> Tensor:
        size = x.abs()
        return (size > limit) & (size < INF)

    return mask


def _hyperbolic(kernel: Callable[[Tensor], Tensor], is_odd: bool) -> Callable[[Tensor], Tensor]:
    """``sinh`` or ``cosh``: torch's vectorised ones overflow where exp does, C's a little later."""

    def compute(x: Tensor) -> Tensor:
        size = x.abs()
        root = torch.exp(size * 0.5)
        late = 0.5 * root * root
        late = torch.copysign(late, x) if is_odd else late
        return torch.where((size > 709.0) & (size < INF), late, kernel(x))

    return compute


_HYPERBOLIC: dict[str, Any] = {"fails": _magnitude_exceeds(_COSH_MOST), "safe": (-710, 710)}
_UNARY = (
    _function("sqrt", _sqrt, lambda x: x < 0, (0, INT64[1])),
    _function("exp", torch.exp, _exceeds(_EXP_MOST), (LEAST, 709)),
    _function("exp2", torch.exp2, lambda x: (x >= _EXP2_MOST) & (x < INF), (LEAST, 1023)),
    _function("expm1", torch.expm1, _exceeds(_EXP_MOST), (LEAST, 709)),
    _function("log2", torch.log2, lambda x: x <= 0, (1, INT64[1])),
    _function("log10", torch.log10, lambda x: x <= 0, (1, INT64[1])),
    _function("log1p", _log1p, lambda x: x <= -1, (0, INT64[1])),
    _function("sin", torch.sin, _infinite),
    _function("cos", torch.cos, _infinite),
    _function("tan", torch.tan, _infinite),
    _function("asin", torch.asin, lambda x: x.abs() > 1, (-1, 1)),
    _function("acos", torch.acos, lambda x: x.abs() > 1, (-1, 1)),
    _function("atan", torch.atan),
    _function("sinh", _hyperbolic(torch.sinh, True), **_HYPERBOLIC),
    _function("cosh", _hyperbolic(torch.cosh, False), **_HYPERBOLIC),
    _function("tanh", torch.tanh),
    _function("asinh", torch.asinh),
    _function("acosh", torch.acosh, lambda x: x < 1, (1, INT64[1])),
    _function("atanh", torch.atanh, lambda x: x.abs() >= 1, (0, 0)),
    _function("erf", torch.erf),
    _function("fabs", torch.abs),
    _function("degrees", lambda x: x * (180.0 / math.pi)),
    _function("radians", lambda x: x * (math.pi / 180.0)),
)


def _test(name: str, mask: Mask, of_int: bool) -> Rule:
    """A question about a float; the same answer for every int."""

    def compute(outlook: Outlook, a: Term) -> Parts:
        return mask(a.value) if a.is_float else constant(of_int, a), None, None

    return Rule(name, 1, 1, lambda a: Outlook("bool", BIT), compute)


_TESTS = (
    _test("isnan", lambda x: x != x, False),
    _test("isinf", _infinite, False),
    _test("isfinite", lambda x: x.abs() < INF, True),
)


def _foresee_log(a: Term, base: Term | None = None) -> Outlook | None:
    terms = (a,) if base is None else (a, base)
    if not floatable(*terms) or any(t.is_uniform and not t.value > 0 for t in terms):
        return None
    if base is not None and base.is_uniform and base.value == 1:
        return None
    return Outlook("float", None, any(_may_lack_log(t) for t in terms) or _may_be_one(base))


def _may_lack_log(a: Term) -> bool:
    return not a.is_uniform and (a.is_float or a.low <= 0)


def _may_be_one(base: Term | None) -> bool:
    return base is not None and not base.is_uniform and (base.is_float or base.low <= 1)


def _log(outlook: Outlook, a: Term, base: Term | None = None) -> Parts:
    """``log(x)``, or the quotient of two logarithms; base 1 divides by zero."""
    terms = (a,) if base is None else (a, base)
    failed = either(*(t.value <= 0 for t in terms if _may_lack_log(t)))
    if base is None:
        return torch.log(double(a)), failed if outlook.may_fail else None, None
    logs = [math.log(t.value) if t.is_uniform else torch.log(double(t)) for t in terms]
    if _may_be_one(base):
        failed = either(failed, base.value == 1)
    return torch.div(*tensors(*logs)), failed if outlook.may_fail else None, None


FUNCTIONS: dict[Callable[..., Any], tuple[Rule, ...]] = {
    **{getattr(math, rule.name): (rule,) for rule in (*_UNARY, *_TESTS)},
    math.log: (Rule("log", 1, 2, _foresee_log, _log),),
    **PAIRS,
    **DIVISORS,
}
