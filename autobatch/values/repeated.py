"""Columns that repeat one tensor in memory: a shared parameter that each thread differentiates.

In values it is the same for all threads, in gradients it has a row for each: a tensor
``[k, *E]`` whose threads' stride is 0. Threads part and meet without a copy of it, ``rows`` says
which thread each row is of, and its products read it once. The backward of either gives every
thread's own row, ``[k, *E]``, unless that is gathered (see ``gathering``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autobatch.presence.kinds import Taken
from autobatch.presence.moves import noted
from autobatch.values.gathering import Share, share_of

LARGE = 8192
"""Bytes of a row from which that pays."""


def repeats(table: Tensor) -> bool:
    """Whether all rows are one tensor in memory."""
    return table.dim() >= 2 and not table.stride(0) and table.shape[0] >= 2


def is_repeated(table: Tensor) -> bool:
    """The same, of a large one."""
    if not repeats(table):
        return False
    count = table.numel() // table.shape[0]
    return count * table.element_size() >= LARGE


def is_shared(table: Tensor) -> bool:
    """Whether such a column is differentiated: then it stays as it is."""
    return table.requires_grad and is_repeated(table)


class Rows(torch.autograd.Function):
    """The rows at ``index`` of a column that repeats one tensor: it repeats that so often."""

    generate_vmap_rule = True

    @staticmethod
    def forward(table: Tensor, index: Tensor) -> Tensor:
        return table[:1].expand(len(index), *table.shape[1:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        table, index = inputs
        ctx.count = table.shape[0]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(index)
        ctx.save_for_forward(index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None]:
        (index,), (grad,) = ctx.saved_tensors, grads
        if grad is None:
            return None, None
        return grad.new_zeros(ctx.count, *grad.shape[1:]).index_add(0, index, grad), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        found: Tensor = tangents[0].index_select(0, ctx.saved_tensors[0])
        return found


class Product(torch.autograd.Function):
    """``torch.bmm`` where an operand repeats one matrix: a single product with that."""

    generate_vmap_rule = True

    @staticmethod
    def forward(left: Tensor, right: Tensor) -> Tensor:
        k, m, n = left.shape
        p = right.shape[2]
        if not left.stride(0):
            rows = right.mT.reshape(k * p, n) @ left[0].mT
            return rows.reshape(k, p, m).mT
        return (left.reshape(k * m, n) @ right[0]).reshape(k, m, p)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.shares = tuple(map(share_of, inputs))
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right = ctx.saved_tensors
        (grad,) = grads
        wanted = ctx.needs_input_grad
        of_left, of_right = ctx.shares
        return (
            gradient(of_left, grad, right.mT) if wanted[0] else None,
            gradient(of_right, left.mT, grad) if wanted[1] else None,
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        left, right = ctx.saved_tensors
        along = [
            bmm(tangents[0], right) if tangents[0] is not None else None,
            bmm(left, tangents[1]) if tangents[1] is not None else None,
        ]
        found = [part for part in along if part is not None]
        return found[0] if len(found) == 1 else found[0] + found[1]


def gradient(share: Share | None, left: Tensor, right: Tensor) -> Tensor | None:
    """An operand's gradient ``left @ right``, unless that is gathered, to be differentiated never.

    A backward that is differentiated itself has autograd add up what it makes.
    """
    if share is None or torch.is_grad_enabled():
        return bmm(left, right)
    share.add(left, right)
    return None


def bmm(left: Tensor, right: Tensor) -> Tensor:
    """``torch.bmm``."""
    if is_repeated(left) or is_repeated(right):
        found: Tensor = Product.apply(left, right)  # type: ignore[no-untyped-call]
        return found
    return torch.bmm(left, right)


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """The rows at ``index`` of a column that repeats one tensor."""
    found: Tensor = Rows.apply(table, index)  # type: ignore[no-untyped-call]
    return noted(found, Taken(index, len(table)))
