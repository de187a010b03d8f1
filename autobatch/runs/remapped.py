"""Tensors that a level of ``torch.vmap`` maps, as tensors with all of the rows, and back.

    Unmapped: [*E], batched at the level  ->  [rows, *E], which the level maps no more
    Mapped: the inverse

Both are functions that levels within the level see as operations: ``torch.func.grad`` and ``jvp``
differentiate them, to any order, each by itself or the other. ``marker`` is a tensor batched at the
level, by which a vmap's level knows whether it is the one that is meant; ``dim`` is where
the rows are, which is not the front where a vmap within (of directions, say) has put its own there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autobatch.errors import AutobatchError

CAPTURED = (
    "What autobatch.vmap maps has captured a tensor that torch.vmap maps, or that a transform "
    "within torch.vmap differentiates. Replace the torch.vmap that is around by autobatch.vmap, "
    "or pass the tensor to autobatch.vmap as an argument."
)

Dims = tuple[int | None, ...]


def remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """What the derivatives need."""
    _, marker, ctx.dim = inputs
    ctx.save_for_backward(marker)
    ctx.save_for_forward(marker)


def without_levels(x: Tensor, marker: Tensor, dim: int) -> Tensor:
    raise AssertionError("the level of the marker is at work")


def of_another(
    kind: type[torch.autograd.Function], x: Tensor, mapped: int | None, marker: Tensor, dim: int
) -> tuple[Tensor, int]:
    """The same for a level that is not the marker's: its rows go to the front."""
    assert mapped is not None
    return kind.apply(x.movedim(mapped, 0), marker, dim + 1), 0  # type: ignore[no-untyped-call]


class Unmapped(torch.autograd.Function):
    """All rows of what the marker's level maps, at ``dim``."""

    forward = staticmethod(without_levels)
    setup_context = staticmethod(remember)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, x: Tensor, marker: Tensor, dim: int) -> Any:
        mapped, meant, _ = in_dims
        if meant is None:
            return of_another(Unmapped, x, mapped, marker, dim)
        if mapped is None:  # a tangent, say, that is the same for all rows
            return x.unsqueeze(dim).expand(*x.shape[:dim], info.batch_size, *x.shape[dim:]), None
        return x.movedim(mapped, dim), None

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return Mapped.apply(gradient, *ctx.saved_tensors, ctx.dim), None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Any:
        return Unmapped.apply(tangent, *ctx.saved_tensors, ctx.dim)  # type: ignore[no-untyped-call]


class Mapped(torch.autograd.Function):
    """The rows at ``dim`` as what the marker's level maps."""

    forward = staticmethod(without_levels)
    setup_context = staticmethod(remember)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, x: Tensor, marker: Tensor, dim: int) -> Any:
        mapped, meant, _ = in_dims
        if meant is None:
            return of_another(Mapped, x, mapped, marker, dim)
        if mapped is not None:
            raise AutobatchError(CAPTURED)
        return x.movedim(dim, 0), 0  # a tensor of its own, never ``x`` itself

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return Unmapped.apply(gradient, *ctx.saved_tensors, ctx.dim), None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Any:
        return Mapped.apply(tangent, *ctx.saved_tensors, ctx.dim)  # type: ignore[no-untyped-call]
