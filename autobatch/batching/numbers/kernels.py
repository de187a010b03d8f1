"""Small pieces that rules are made of: operands as tensors, outlooks from intervals, masks.

All are elementwise and read nothing back to the host, so they can be traced and run under
torch.vmap on 0-d rows.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.numbers.records import INT64, LEAST, MOST, Interval, Outlook, Term

INF = math.inf


def whole(term: Term) -> Any:
    """The operand as Python's int: an int64 tensor, or the uniform int."""
    if term.is_uniform:
        return int(term.value)
    return term.value.to(torch.int64) if term.tag == "bool" else term.value


def double(term: Term) -> Any:
    """The operand as Python's float: a float64 tensor, or the uniform float."""
    if term.is_uniform:
        return float(term.value)
    return term.value if term.is_float else term.value.to(torch.float64)


def tensors(*values: Any) -> list[Tensor]:
    """Tensors and Python scalars, the scalars as 0-d tensors like the others: on their device.

    Torch divides by a scalar on CUDA, and a scalar by a tensor anywhere, with a rounded
    reciprocal; by a tensor it divides exactly.
    """
    like = next(value for value in values if isinstance(value, Tensor))
    return [
        value
        if isinstance(value, Tensor)
        else torch.full((), value, dtype=like.dtype, device=like.device)
        for value in values
    ]


def column_of(*terms: Term) -> Tensor:
    """The data of the first operand that is a column."""
    data: Tensor = next(term.value for term in terms if not term.is_uniform)
    return data


def constant(value: bool, *terms: Term) -> Tensor:
    """A bool column that is the same in every row."""
    return torch.full_like(column_of(*terms), value, dtype=torch.bool)


def floatable(*terms: Term) -> bool:
    """Whether uniform ints among the operands have a float (Python raises OverflowError)."""
    return all(t.is_float or not t.is_uniform or abs(t.value) < 2**1023 for t in terms)


def narrow(*terms: Term) -> bool:
    """Whether the operands are ints of int64."""
    return all(map(_is_narrow, terms))


def _is_narrow(term: Term) -> bool:
    return term.tag != "float" and term.low >= LEAST and term.high <= MOST


def settled(interval: Interval, may_fail: bool = False, may_escape: bool = False) -> Outlook:
    """An int result that lies in ``interval``; rows that leave int64 escape."""
    low, high = interval
    if low <= LEAST or high >= MOST:
        may_escape = may_escape or low < LEAST or high > MOST
        low, high = max(low, LEAST), min(high, MOST)
        if low > high or (low, high) == INT64:
            return Outlook("int", None, may_fail, may_escape)
    return Outlook("int", (low, high), may_fail, may_escape)


def outside(term: Term, low: int, high: int) -> Tensor | None:
    """The rows of an int operand that are not in ``low..high``; None if there can be none."""
    below = term.value < low if term.low < low else None
    above = term.value > high if term.high > high else None
    if term.is_uniform:
        return None
    return either(below, above)


def either(*masks: Tensor | None) -> Tensor | None:
    """The rows that any of the masks marks."""
    joined = None
    for mask in masks:
        joined = mask if joined is None else joined if mask is None else joined | mask
    return joined


def zeros(term: Term) -> Tensor | None:
    """The rows of a column that are zero; None if there can be none."""
    if term.is_uniform or not (term.is_float or term.low <= 0 <= term.high):
        return None
    rows: Tensor = ~term.value if term.tag == "bool" else term.value == 0
    return rows
