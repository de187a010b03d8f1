"""Contributions of many rounds put together, so that a long loop does not keep each of them.

In: the ``Contributions`` of a call that goes on. What one thread has given to one tensor becomes
one row, or one for each element; which thread gave it stays known, since one may fail yet. What
gradients are wanted of is left as it is, and so is the order of assignments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.contributions import Contribution, Contributions, Rule
from autobatch.batching.shared.reducing import last_ones
from autobatch.compat import on_device


def compact(contributions: Contributions) -> None:
    """Put together what has been noted, if that is much and nobody counts on its number."""
    noted = contributions.noted
    if contributions.held or len(noted) < contributions.limit:
        return
    kept: list[Contribution] = []
    groups: dict[Any, list[Contribution]] = {}
    for each in still_assigned(noted):
        if each.rule == "assign" or each.rows.requires_grad:
            kept.append(each)
            continue
        shape = each.rows.shape[1:] if each.positions is None else None
        groups.setdefault((each.target.key, each.rule, shape, each.grad), []).append(each)
    noted[:] = [*kept, *map(together, groups.values())]
    contributions.limit = max(contributions.limit, 2 * len(noted))


def still_assigned(noted: Sequence[Contribution]) -> list[Contribution]:
    """Without assignments that the same threads have made anew, of the same elements or of all."""
    stays: list[Contribution] = []
    later: dict[Any, set[int]] = {}
    for each in reversed(noted):
        if each.rule != "assign":
            stays.append(each)
            continue
        threads = set(each.threads.tolist())
        known = later.setdefault((each.target.key, place_of(each)), set())
        if not threads <= known | later.get((each.target.key, None), set()):
            stays.append(each)
        known |= threads
    return stays[::-1]


def place_of(contribution: Contribution) -> bytes | None:
    """Equal for the same elements of a tensor; None for all of them."""
    positions = contribution.positions
    return None if positions is None else positions.cpu().numpy().tobytes()


def together(group: Sequence[Contribution]) -> Contribution:
    """One contribution for several of one rule to one tensor."""
    first = group[0]
    if len(group) == 1:
        return first
    if first.positions is not None:
        return elements_together(group)
    threads = np.concatenate([each.threads for each in group])
    rows = joined([each.rows for each in group], first)
    found, inverse = np.unique(threads, return_inverse=True)
    total = over(first.rule, rows, torch.from_numpy(inverse.reshape(-1)), len(found))
    return replace(first, rows=total, threads=found)


def elements_together(group: Sequence[Contribution]) -> Contribution:
    """The same of elements: a row for each thread and element."""
    first, size = group[0], group[0].target.tensor.numel()
    keys, values = [], []
    for each in group:
        assert each.positions is not None
        threads = on_device(each.threads, each.positions.device).unsqueeze(1)
        part = replace(each, rows=threads.expand_as(each.positions))
        where, whose = last_ones(part) if each.distinct else (each.positions, part.rows)
        what = last_ones(each)[1] if each.distinct else each.rows
        keys.append((where + size * whose).reshape(-1).cpu())
        values.append(what.reshape(-1))
    found, inverse = torch.unique(torch.cat(keys), return_inverse=True)
    total = over(first.rule, joined(values, first), inverse, len(found))
    positions = (found % size).to(first.positions.device)  # type: ignore[union-attr]
    threads_of = (found // size).numpy()
    return replace(
        first,
        rows=total.unsqueeze(1),
        threads=threads_of,
        positions=positions.unsqueeze(1),
        distinct=False,
    )


def joined(rows: Sequence[Tensor], first: Contribution) -> Tensor:
    """Rows of several contributions, in a dtype that holds what they come to."""
    device, own = first.target.tensor.device, first.target.tensor.dtype
    dtype = reduce(torch.promote_types, (part.dtype for part in rows))
    if first.rule in ("sum", "prod"):
        dtype = torch.int64 if own is torch.bool else torch.promote_types(dtype, own)
    return torch.cat([part.to(device, dtype) for part in rows])


def over(rule: Rule, rows: Tensor, index: Tensor, count: int) -> Tensor:
    """Rows of one index reduced to one, ``[count, *E]``."""
    made = rows.new_zeros((count, *rows.shape[1:]))
    index = index.to(rows.device)
    if rule == "sum":
        return made.index_add(0, index, rows)
    where = index.reshape(-1, *(1,) * (rows.dim() - 1)).expand_as(rows)
    return made.scatter_reduce(0, where, rows, rule, include_self=False)
