"""Rows of several tables in an order of their own, each copied once; so are their gradients.

To join the tables and then to take the rows copies each of them twice, and its gradient twice more.
Only within levels and in forward mode it is done so: there autograd has to see what is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.compat import on_host, within_duals, within_level
from autobatch.presence import kinds, moves


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part:
    """Rows ``source`` of a table (None: all of them, in order) become rows ``target``."""

    source: Tensor | None
    target: Tensor


def arranged(tables: Sequence[Tensor], parts: Sequence[Part]) -> Tensor:
    """The rows that the parts name, ``[n, *E]``; each row of the result is named once."""
    if within_level() or within_duals():
        return rearranged(tables, parts)
    differentiated = torch.is_grad_enabled() and any(table.requires_grad for table in tables)
    if not differentiated:
        return laid_out(tables, parts)
    found: Tensor = Arrange.apply(tuple(parts), *tables)  # type: ignore[no-untyped-call]
    return moves.noted(found, move_of(tables, parts))


def pairs(tables: Sequence[Tensor], parts: Sequence[Part]) -> Any:
    return zip(tables, parts, strict=True)


def rearranged(tables: Sequence[Tensor], parts: Sequence[Part]) -> Tensor:
    """The same by two moves."""
    chosen = [t if p.source is None else moves.taken(t, p.source) for t, p in pairs(tables, parts)]
    order = torch.cat([part.target for part in parts])
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    return moves.taken(moves.joined(chosen), back)


def move_of(tables: Sequence[Tensor], parts: Sequence[Part]) -> kinds.Arranged:
    sizes = tuple(table.shape[0] for table in tables)
    sources, first = [], 0
    for size, part in zip(sizes, parts, strict=True):
        own = np.arange(size) if part.source is None else on_host(part.source)
        sources.append(own + first)
        first += size
    index = np.empty(sum(map(len, sources)), np.int64)
    index[np.concatenate([on_host(part.target) for part in parts])] = np.concatenate(sources)
    return kinds.Arranged(torch.from_numpy(index), sizes)


def laid_out(tables: Sequence[Tensor], parts: Sequence[Part]) -> Tensor:
    out = tables[0].new_empty(sum(len(part.target) for part in parts), *tables[0].shape[1:])
    for table, part in pairs(tables, parts):
        rows = table if part.source is None else table.index_select(0, part.source)
        out.index_copy_(0, part.target, rows)
    return out


class Arrange(torch.autograd.Function):
    """``laid_out``, whose gradient takes each row back to its table."""

    @staticmethod
    def forward(ctx: Any, parts: tuple[Part, ...], *tables: Tensor) -> Tensor:
        ctx.parts = parts
        ctx.sizes = [table.shape[0] for table in tables]
        return laid_out(tables, parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        wanted = zip(ctx.parts, ctx.sizes, ctx.needs_input_grad[1:], strict=True)
        return None, *(
            taken_back(grad, part, size) if needs else None for part, size, needs in wanted
        )


def taken_back(grad: Tensor, part: Part, size: int) -> Tensor:
    """The gradient of a table; zero for the rows that are not named."""
    own = grad.index_select(0, part.target)
    if part.source is None:
        return own
    return own.new_zeros(size, *own.shape[1:]).index_add(0, part.source, own)
