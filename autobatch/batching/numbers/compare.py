"""Comparisons, truth, and the choice by comparison (``min``, ``max``).

Python compares ints with floats exactly, however large; a float64 kernel does so only for ints
that are floats. A uniform operand is brought to the column's kind on the host, with the operator
that then says the same.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.numbers import intervals
from autobatch.batching.numbers.kernels import constant, double, narrow, settled, whole
from autobatch.batching.numbers.records import (
    BIT,
    DOUBLE_EXACT,
    LEAST,
    MOST,
    Outlook,
    Parts,
    Rule,
    Term,
)

_KERNELS: dict[str, Callable[..., Tensor]] = {
    "lt": torch.lt,
    "le": torch.le,
    "eq": torch.eq,
    "ne": torch.ne,
    "gt": torch.gt,
    "ge": torch.ge,
}
_FLIPPED = {"lt": "gt", "le": "ge", "eq": "eq", "ne": "ne", "gt": "lt", "ge": "le"}
_HOST: dict[str, Callable[[Any, Any], bool]] = {name: getattr(operator, name) for name in _KERNELS}


def compared(name: str, a: Term, b: Term) -> Tensor:
    """``a < b`` and so on, exactly, as a bool tensor; one operand at least is a column."""
    if a.is_uniform or (b.is_float and not b.is_uniform and not a.is_float):
        name, a, b = _FLIPPED[name], b, a
    if not b.is_uniform:
        if a.is_float and not b.is_float:
            return _float_with_int(name, a, b)
        return _KERNELS[name](a.value, b.value)
    if a.is_float and not b.is_float:
        return _float_with_uniform_int(name, a, b)
    if not a.is_float:
        return _int_with_uniform(name, a, b)
    return _KERNELS[name](a.value, b.value)


def _int_with_uniform(name: str, a: Term, b: Term) -> Tensor:
    """Against a fraction as against the int below it, rounding the operator."""
    value = b.value
    if isinstance(value, float):
        if value != value:
            return constant(name == "ne", a)
        if math.isfinite(value) and not value.is_integer():
            if name in ("eq", "ne"):
                return constant(name == "ne", a)
            name = {"lt": "le", "ge": "gt"}.get(name, name)
            value = math.floor(value)
    if value < LEAST or value > MOST:
        return constant(_HOST[name](0, value), a)
    return _KERNELS[name](a.value, int(value))


def _float_with_uniform_int(name: str, a: Term, b: Term) -> Tensor:
    """Against an int that is no float as against the float next to it, rounding the operator."""
    value = _nearest_float(b.value)
    if value == b.value:
        return _KERNELS[name](a.value, value)
    if name in ("eq", "ne"):
        return constant(name == "ne", a)
    if value > b.value:
        name = {"le": "lt", "gt": "ge"}.get(name, name)
    else:
        name = {"lt": "le", "ge": "gt"}.get(name, name)
    return _KERNELS[name](a.value, value)


def _nearest_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _float_with_int(name: str, a: Term, b: Term) -> Tensor:
    """Rounding keeps order, so only rows in which the rounded int equals the float are in doubt.

    There the float is an int itself: int64's, or 2**63, which is above every row.
    """
    x: Tensor = a.value
    y: Tensor = b.value
    rounded = y.to(torch.float64)
    if b.within(-DOUBLE_EXACT, DOUBLE_EXACT):
        return _KERNELS[name](x, rounded)
    tie = x == rounded
    top = x >= 2.0**63
    exact = _KERNELS[name](x.to(torch.int64), y)
    exact = exact | top if name in ("gt", "ge", "ne") else exact & ~top
    if name == "eq":
        return tie & exact
    return torch.where(tie, exact, _KERNELS[name](x, rounded))


def _comparison(name: str) -> Rule:
    def foresee(a: Term, b: Term) -> Outlook:
        return Outlook("bool", BIT)

    def compute(outlook: Outlook, a: Term, b: Term) -> Parts:
        return compared(name, a, b), None, None

    return Rule(name, 2, 2, foresee, compute)


def _foresee_bool(a: Term) -> Outlook:
    return Outlook("bool", BIT)


def _truth(outlook: Outlook, a: Term) -> Parts:
    return a.value if a.tag == "bool" else a.value != 0, None, None


def _not(outlook: Outlook, a: Term) -> Parts:
    return torch.logical_not(a.value) if a.tag == "bool" else a.value == 0, None, None


COMPARISONS: dict[str, Rule] = {
    **{name: _comparison(name) for name in _KERNELS},
    "truth": Rule("truth", 1, 1, _foresee_bool, _truth),
    "not": Rule("not", 1, 1, _foresee_bool, _not),
}


def _choice(name: str, better: str) -> Rule:
    """``min`` or ``max`` of two and more numbers: the first, unless a later one is ``better``.

    Of an int and a float either may be chosen, with its type: rows that choose another type
    than the result's tag escape.
    """
    interval = getattr(intervals, {"min": "smallest", "max": "largest"}[name])
    kernel = {"min": torch.minimum, "max": torch.maximum}[name]
    limit = {"min": "max", "max": "min"}[name]

    def foresee(*terms: Term) -> Outlook | None:
        tags = {term.tag for term in terms}
        if len(tags) > 1:
            mixed = len(terms) == 2 and narrow(*(t for t in terms if not t.is_float))
            return _mixed_outlook(*terms) if mixed else None
        if "float" in tags:
            return Outlook("float")
        if not narrow(*terms):
            return None
        low, high = terms[0].low, terms[0].high
        for term in terms[1:]:
            low, high = interval(Term("int", low, high, None), term)
        return Outlook("bool", BIT) if "bool" in tags else settled((low, high))

    def pair(tag: str, a: Term, b: Term) -> Term:
        if a.is_uniform and b.is_uniform:
            return b if _HOST[better](b.value, a.value) else a
        if tag == "float":
            data = torch.where(compared(better, b, a), b.value, a.value)
        elif tag == "bool":
            data = (torch.logical_and if name == "min" else torch.logical_or)(*_bools(a, b))
        elif a.is_uniform or b.is_uniform:
            column, bound = (b, a) if a.is_uniform else (a, b)
            data = torch.clamp(column.value, **{limit: bound.value})
        else:
            data = kernel(a.value, b.value)
        return Term(tag, LEAST, MOST, data)

    def compute(outlook: Outlook, *terms: Term) -> Parts:
        if any(term.tag != outlook.tag for term in terms):
            return _mixed(outlook, compared(better, terms[1], terms[0]), *terms)
        chosen = terms[0]
        for term in terms[1:]:
            chosen = pair(outlook.tag, chosen, term)
        return chosen.value, None, None

    return Rule(name, 2, 64, foresee, compute)


def _bools(a: Term, b: Term) -> list[Tensor]:
    return [constant(t.value, a, b) if t.is_uniform else t.value for t in (a, b)]


def _mixed_outlook(a: Term, b: Term) -> Outlook:
    column = b if a.is_uniform else a
    if column.is_float:
        return Outlook("float", None, may_escape=True)
    return Outlook(column.tag, (column.low, column.high), may_escape=True)


def _mixed(outlook: Outlook, second: Tensor, a: Term, b: Term) -> Parts:
    """The operand of the result's tag, and the rows that choose the other."""
    mine, wrong = (a, second) if a.tag == outlook.tag else (b, torch.logical_not(second))
    data = double(mine) if mine.is_float else mine.value if mine.tag == "bool" else whole(mine)
    return data, None, wrong if outlook.may_escape else None


def _foresee_select(condition: Term, a: Term, b: Term) -> Outlook | None:
    if condition.tag != "bool" or a.tag != b.tag:
        return None
    if a.tag != "int":
        return Outlook(a.tag, BIT if a.tag == "bool" else None)
    return settled((min(a.low, b.low), max(a.high, b.high))) if narrow(a, b) else None


def _select(outlook: Outlook, condition: Term, a: Term, b: Term) -> Parts:
    where = condition.value
    if outlook.tag == "bool":
        return _select_bool(where, a, b), None, None
    yes = a.value
    if a.is_uniform and b.is_uniform:
        dtype = torch.float64 if outlook.tag == "float" else torch.int64
        yes = torch.full_like(where, yes, dtype=dtype)
    return torch.where(where, yes, b.value), None, None


def _select_bool(where: Tensor, a: Term, b: Term) -> Tensor:
    """With as few kernels as its constants allow."""
    if a.is_uniform and b.is_uniform and a.value is b.value:
        return torch.full_like(where, a.value)
    if a.is_uniform:
        rest = where if a.value else torch.logical_not(where)
        if b.is_uniform:
            return rest
        return (torch.logical_or if a.value else torch.logical_and)(rest, b.value)
    if b.is_uniform:
        rest = torch.logical_not(where) if b.value else where
        return (torch.logical_or if b.value else torch.logical_and)(rest, a.value)
    return torch.where(where, a.value, b.value)


CHOICES: dict[str, Rule] = {
    "min": _choice("min", "lt"),
    "max": _choice("max", "gt"),
    "select": Rule("select", 3, 3, _foresee_select, _select),
}
