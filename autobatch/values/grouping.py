"""Tensors of unlike shapes taken apart by shape, and put together again.

``apart`` gives packed rows as stacks, those of one length in each; ``together`` gives what has been
made of some stacks the value that suits it: one column, packed rows, or stacks again. All rows are
moved by one gather each way.
"""

from __future__ import annotations

from collections.abc import Sized

import torch
from torch import Tensor

from autobatch.presence import kinds, moves
from autobatch.values import packs
from autobatch.values.cells import Column, Container, Objects
from autobatch.values.packs import Order
from autobatch.values.stacks import Part, Stacks


def repays(groups: Sized, k: int) -> bool:
    """Whether so many operations for ``k`` threads are fewer than one for each of them."""
    return len(groups) <= max(1, k // 2)


def apart(pack: Container) -> Stacks | None:
    """Each thread's tensor, those of one length stacked; None where hardly two are of one length.

    The lengths are read if nobody has yet.
    """
    order = packs.known_order(pack)
    begins, lengths, step = packs.parts_of(pack)
    groups: dict[int, list[int]] = {}
    for row, size in enumerate(order.sizes):
        groups.setdefault(size, []).append(row)
    if not repays(groups, len(order.sizes)):
        return None
    device = begins.device
    rows = torch.tensor([row for mine in groups.values() for row in mine], device=device)
    sizes = lengths[rows]
    owners = rows.repeat_interleave(sizes, output_size=order.total)
    firsts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes, output_size=order.total)
    places = torch.arange(order.total, device=device) - firsts
    ahead = step[owners] if isinstance(step, Tensor) else step
    table = moves.taken(pack.static, begins[owners] + places * ahead)
    tables = moves.cut(table, [size * len(mine) for size, mine in groups.items()])
    parts = []
    for (size, mine), part in zip(groups.items(), tables, strict=True):
        data = part.reshape(len(mine), size, *part.shape[1:])
        parts.append((mine, moves.noted(data, kinds.Grouped(size)) if size else data))
    return Stacks(parts)


def together(parts: list[Part]) -> Column | Container | Objects:
    """One column if all are of one shape, packed if the first dimension alone is another one in
    each, else stacks.
    """
    first = parts[0][1]
    if len({(data.dtype, data.device, data.shape[1:]) for _, data in parts}) == 1:
        rows = [row for group, _ in parts for row in group]
        back = torch.tensor(rows, device=first.device).argsort()
        return Column(moves.taken(moves.joined([data for _, data in parts]), back))
    alike = {(data.dtype, data.device, data.dim(), data.shape[2:]) for _, data in parts}
    if len(alike) > 1 or first.dim() < 2:
        return Objects([], stacks=Stacks(parts))
    return packed(parts)


def packed(parts: list[Part]) -> Container:
    """The rows of all threads, one thread's after another's."""
    k = sum(len(rows) for rows, _ in parts)
    sizes, begins, begin = [0] * k, [0] * k, 0
    for rows, data in parts:
        size = data.shape[1]
        for row in rows:
            sizes[row], begins[row] = size, begin
            begin += size
    flat = [moves.flattened(data) for _, data in parts]
    table = moves.joined(flat)
    order = Order(sizes, torch.tensor(sizes, device=table.device))
    firsts = torch.tensor(begins, device=table.device)
    return order.pack(moves.taken(table, firsts[order.owners] + order.places))
