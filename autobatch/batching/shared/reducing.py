"""Contributions of all threads, reduced and applied: one write to each tensor.

In: the ``Contributions`` of a call that is over. Out: how many writes there were. All is computed
before anything is written, so what a contribution was made of is as it was before the call.
Reductions go in the order of the threads: integers come out as the plain loop has them, floats up
to the rounding of a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.contributions import Contribution, Contributions, Rule, Target
from autobatch.batching.shared import refusals
from autobatch.compat import on_device

Write = Callable[[], None]
OVER_THREADS: dict[Rule, Callable[..., Tensor]] = {
    "sum": torch.sum,
    "prod": torch.prod,
    "amin": torch.amin,
    "amax": torch.amax,
}
OF_TWO: dict[Rule, Callable[[Any, Any], Tensor]] = {
    "sum": torch.add,
    "prod": torch.mul,
    "amin": torch.minimum,
    "amax": torch.maximum,
}
"""The same of two values."""


def applied(contributions: Contributions) -> int:
    """Write what the threads have contributed; the number of writes."""
    groups: dict[Any, list[Contribution]] = {}
    for each in contributions.noted:
        part = counted(each, contributions.last)
        if part is not None:
            groups.setdefault((part.target.key, part.grad), []).append(part)
    contributions.take_back(0)
    writes = [write for group in groups.values() for write in prepared(group)]
    for write in writes:
        write()
    return len(writes)


def counted(contribution: Contribution, last: int | None) -> Contribution | None:
    """What is left of it without the threads that the loop would not have come to."""
    if last is None:
        return contribution
    return of_some(contribution, contribution.threads <= last)


def of_some(contribution: Contribution, stays: np.ndarray) -> Contribution | None:
    """What some of its threads contribute; None if it is none of them."""
    if stays.all():
        return contribution
    stay = np.flatnonzero(stays)
    if not len(stay):
        return None
    part = replace(contribution, threads=contribution.threads[stay])
    if contribution.rule == "assign":
        return part
    rows = on_device(stay, contribution.rows.device)
    positions = contribution.positions
    if positions is not None:
        positions = positions.index_select(0, rows.to(positions.device))
    return replace(part, rows=contribution.rows.index_select(0, rows), positions=positions)


def apart(contributions: Contributions, at_work: Collection[int]) -> Contributions:
    """Those of threads that have finished, taken from the others: not those of threads at work."""
    found = Contributions(last=contributions.last)
    noted = list(contributions.noted)
    contributions.take_back(0)
    for each in noted:
        stays = np.isin(each.threads, list(at_work))
        for part, place in ((of_some(each, stays), contributions), (of_some(each, ~stays), found)):
            if part is not None:
                place.note(part)
    return found


def prepared(group: Sequence[Contribution]) -> Iterator[Write]:
    """The writes to one target."""
    first = group[0]
    with torch.set_grad_enabled(first.grad):
        if first.rule == "assign":
            yield assigned(group)
            return
        whole = [reduced(each) for each in group if each.positions is None]
        parts = [each for each in group if each.positions is not None]
        if first.rule == "sum" and parts:
            whole, parts = [*whole, added_at(parts)], []
        if whole:
            yield merged(first.target, first.rule, reduce(OF_TWO[first.rule], whole), first.grad)
        if parts:
            yield merged_at(parts)


# Whole tensors.


def reduced(contribution: Contribution) -> Tensor:
    """What all threads give, ``[*E]``."""
    tensor = contribution.target.tensor
    rows: Tensor = contribution.rows.to(tensor.device)
    rule = contribution.rule
    if tensor.dtype is torch.bool:
        return rows.bool().any(0) if rule in ("sum", "amax") else rows.bool().all(0)
    over = OVER_THREADS[rule]
    if rule in ("amin", "amax"):
        return over(rows, 0)
    if rows.dtype is torch.bool:
        rows = rows.to(tensor.dtype)
    dtype = torch.promote_types(rows.dtype, tensor.dtype)
    total = over(rows, 0, dtype=dtype)
    return total.to(torch.result_type(tensor, rows[0]))


def merged(target: Target, rule: Rule, total: Tensor, grad: bool) -> Write:
    """The write of one reduction to a tensor, or of a new tensor to an attribute."""
    if target.is_anew:
        return partial(write_anew, target, rule, total, grad)
    return partial(write_merged, target.tensor, rule, total, grad)


def write_anew(target: Target, rule: Rule, total: Tensor, grad: bool) -> None:
    """What it names now may be another than some of the threads have seen, as in a stream."""
    with torch.set_grad_enabled(grad):
        current = getattr(target.owner, target.name)
        setattr(target.owner, target.name, OF_TWO[rule](current, total))


def write_merged(tensor: Tensor, rule: Rule, total: Tensor, grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        if rule == "sum":
            tensor.add_(total)
        elif rule == "prod":
            tensor.mul_(total)
        else:
            tensor.copy_(OF_TWO[rule](tensor, total))


# Elements of tensors.


def added_at(parts: Sequence[Contribution]) -> Tensor:
    """What all threads add to each element of a tensor."""
    tensor = parts[0].target.tensor
    positions, values = flattened(parts)
    if tensor.dtype is torch.bool:
        values = values.to(torch.int64)
    total = torch.zeros(tensor.numel(), dtype=values.dtype, device=tensor.device)
    total = total.index_add(0, positions, values).view(tensor.shape)
    return total.bool() if tensor.dtype is torch.bool else total


def merged_at(parts: Sequence[Contribution]) -> Write:
    """The write of another reduction of single elements."""
    tensor, rule, grad = parts[0].target.tensor, parts[0].rule, parts[0].grad
    positions, values = flattened(parts)

    def write() -> None:
        with torch.set_grad_enabled(grad):
            flat = tensor.reshape(-1).to(values.dtype)
            new = flat.scatter_reduce(0, positions, values, rule, include_self=True)
            tensor.copy_(new.view(tensor.shape))

    return write


def flattened(parts: Sequence[Contribution]) -> tuple[Tensor, Tensor]:
    """Positions and values of all threads, ``[n]`` each, in one dtype."""
    tensor = parts[0].target.tensor
    pairs = [last_ones(part) if part.distinct else (part.positions, part.rows) for part in parts]
    dtype = reduce(torch.promote_types, (values.dtype for _, values in pairs), tensor.dtype)
    where = [positions.reshape(-1).to(tensor.device) for positions, _ in pairs]  # type: ignore[union-attr]
    return torch.cat(where), torch.cat([v.reshape(-1).to(tensor.device, dtype) for _, v in pairs])


def last_ones(part: Contribution) -> tuple[Tensor, Tensor]:
    """Of equal positions of a thread the last, as ``x[i] += v`` has it for one example."""
    positions, values = part.positions, part.rows
    assert positions is not None
    k, n = positions.shape
    if n < 2:
        return positions, values
    size = part.target.tensor.numel()
    keys = positions + size * torch.arange(k, device=positions.device).unsqueeze(1)
    found, inverse = torch.unique(keys, return_inverse=True)
    order = torch.arange(k * n, device=positions.device)
    last = torch.zeros_like(found)
    last = last.scatter_reduce(0, inverse.reshape(-1), order, "amax", include_self=False)
    return positions.reshape(-1)[last], values.reshape(-1)[last.to(values.device)]


# Assignments.


def assigned(group: Sequence[Contribution]) -> Write:
    """The write of what all threads assign, in an order of each thread's own."""
    target = group[0].target
    ways: dict[int, list[Contribution]] = {}
    for each in group:
        for thread in set(each.threads.tolist()):
            ways.setdefault(thread, []).append(each)
    different = {tuple(map(id, way)): way for _, way in sorted(ways.items())}
    if target.is_anew:
        return named_anew(target, list(different.values()))
    contents = [content_of(way) for way in different.values()]
    whole, known = contents[0]
    for (content, mask), way in zip(contents[1:], list(different.values())[1:], strict=True):
        if not is_same(whole[known & mask], content[known & mask]):
            raise refusals.differing(way[-1].span)
        whole, known = torch.where(mask, content, whole), known | mask
    return partial(write_assigned, target.tensor, whole, known, group[0].grad)


def named_anew(target: Target, ways: Sequence[Sequence[Contribution]]) -> Write:
    last = [way[-1] for way in ways]
    for each in last[1:]:
        if each.rows is not last[0].rows and not is_same(each.rows, last[0].rows):
            raise refusals.differing(each.span)
    return partial(setattr, target.owner, target.name, last[-1].rows)


def content_of(way: Sequence[Contribution]) -> tuple[Tensor, Tensor]:
    """What a thread leaves in the flattened tensor, and where it has written."""
    tensor = way[0].target.tensor
    content = tensor.detach().reshape(-1).clone()
    mask = torch.zeros_like(content, dtype=torch.bool)
    for each in way:
        if each.positions is None:
            content, mask = each.rows.reshape(-1), torch.ones_like(mask)
        else:
            content = content.index_put((each.positions,), each.rows)
            mask = mask.index_fill(0, each.positions, True)
    return content, mask


def is_same(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


def write_assigned(tensor: Tensor, content: Tensor, mask: Tensor, grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        if not bool(mask.all()):
            content = torch.where(mask, content, tensor.reshape(-1))
        tensor.copy_(content.view(tensor.shape))
