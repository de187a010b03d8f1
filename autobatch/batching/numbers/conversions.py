"""``int float bool round floor ceil trunc`` on number columns."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from autobatch.batching.numbers.arithmetic import foresee_same, same
from autobatch.batching.numbers.compare import COMPARISONS
from autobatch.batching.numbers.kernels import INF, double, narrow
from autobatch.batching.numbers.records import Outlook, Parts, Rule, Term


def _to_int(name: str, rounded: Callable[[Tensor], Tensor] | None) -> Rule:
    """A float becomes an int: inf and nan fail, and what lies outside int64 escapes."""

    def foresee(a: Term) -> Outlook | None:
        if a.is_float:
            return Outlook("int", None, may_fail=True, may_escape=True)
        return foresee_same(a)

    def compute(outlook: Outlook, a: Term) -> Parts:
        if not a.is_float:
            return same(outlook, a)
        value = rounded(a.value) if rounded else a.value
        size = a.value.abs()
        failed = torch.logical_not(size < INF) if outlook.may_fail else None
        return value.to(torch.int64), failed, size >= 2.0**63 if outlook.may_escape else None

    return Rule(name, 1, 1, foresee, compute)


def _foresee_round(a: Term, digits: Term | None = None) -> Outlook | None:
    """``round(x, n)`` has a batched form only for ints, and floats to no digits."""
    if digits is None:
        return _ROUND.foresee(a)
    if not digits.is_uniform or digits.is_float or digits.low < 0:
        return None
    if a.is_float:
        return Outlook("float") if digits.low == 0 else None
    return foresee_same(a)


def _round(outlook: Outlook, a: Term, digits: Term | None = None) -> Parts:
    if digits is None or not a.is_float:
        return _ROUND.compute(outlook, a)
    return torch.round(a.value), None, None


def _foresee_float(a: Term) -> Outlook | None:
    return Outlook("float") if a.is_float or narrow(a) else None


def _float(outlook: Outlook, a: Term) -> Parts:
    return double(a), None, None


_ROUND = _to_int("round", torch.round)
CONVERSIONS: dict[str, Rule] = {
    "int": _to_int("int", None),
    "trunc": _to_int("trunc", None),
    "floor": _to_int("floor", torch.floor),
    "ceil": _to_int("ceil", torch.ceil),
    "round": Rule("round", 1, 2, _foresee_round, _round),
    "float": Rule("float", 1, 1, _foresee_float, _float),
    "bool": COMPARISONS["truth"],
}
