"""What Python's ``sum`` of floats does beside its additions, on columns (see ``ir.sums``)."""

from __future__ import annotations

from typing import Any

import torch

from autobatch.batching.numbers.kernels import double, floatable, tensors
from autobatch.batching.numbers.records import Outlook, Parts, Rule, Term


def _foresee_lost(lost: Term, total: Term, item: Term, after: Term) -> Outlook | None:
    fit = lost.is_float and total.is_float and after.is_float and floatable(item)
    return Outlook("float") if fit and not after.is_uniform else None


def _lost(outlook: Outlook, lost: Term, total: Term, item: Term, after: Term) -> Parts:
    c, a, b = tensors(double(after), double(total), double(item))
    larger = torch.abs(a) >= torch.abs(b)
    short = torch.where(larger, (a - c) + b, (b - c) + a)
    return torch.add(short, double(lost)), None, None


def _foresee_whole(total: Term, lost: Term) -> Outlook | None:
    return Outlook("float") if total.is_float and lost.is_float else None


def _whole(outlook: Outlook, total: Term, lost: Term) -> Parts:
    x, c = tensors(double(total), double(lost))
    found: Any = torch.where((c != 0) & torch.isfinite(c), x + c, x)
    return found, None, None


SUMS: dict[str, Rule] = {
    "sum_lost": Rule("sum_lost", 4, 4, _foresee_lost, _lost),
    "sum_whole": Rule("sum_whole", 2, 2, _foresee_whole, _whole),
}
