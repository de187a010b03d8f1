"""Convolutions of each thread's own with a weight that repeats one tensor: one convolution with it.

As ``repeated.Product`` for matrices: in values the weight is the same for all threads, in gradients
it has a row for each. What goes to the input goes by the one weight; a weight's own gradient is one
grouped convolution. A backward that is differentiated itself is of each thread's own weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Way:
    """How a convolution goes, a number for each dimension in space; ``groups`` of channels."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def of(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """``[n, C, *S]`` convolved with ``[O, C / groups, *K]``."""
        still = (0,) * len(self.stride)
        return torch.convolution(
            input, weight, bias, self.stride, self.padding, self.dilation, False, still, self.groups
        )

    def back(
        self, grad: Tensor, input: Tensor, weight: Tensor, wanted: list[bool]
    ) -> tuple[Tensor, Tensor]:
        """The gradients of the input and of the weight, those that are wanted."""
        still = [0] * len(self.stride)
        stride, padding, dilation = list(self.stride), list(self.padding), list(self.dilation)
        found: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
            *(grad, input, weight, None, stride, padding, dilation, False, still, self.groups),
            [*wanted, False],
        )
        return found[0], found[1]


class Convolution(torch.autograd.Function):
    """``way.of`` of ``[k, n, C, *S]``, a weight ``[k, O, C / groups, *K]`` that repeats one tensor,
    and ``[k, O]`` or None."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, weight: Tensor, bias: Tensor | None, way: Way) -> Tensor:
        one = bias is not None and not bias.stride(0)
        found = way.of(input.flatten(0, 1), weight[0], bias[0] if one else None)  # type: ignore[index]
        rows = found.reshape(*input.shape[:2], *found.shape[1:])
        return rows if bias is None or one else rows + over_space(bias, rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        input, weight, _, ctx.way = inputs
        ctx.save_for_backward(input, weight)
        ctx.save_for_forward(input, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (input, weight), way = grads, ctx.saved_tensors, ctx.way
        wanted = ctx.needs_input_grad
        space = (1, *range(3, grad.dim()))
        of_bias = grad.sum(space) if wanted[2] else None
        if torch.is_grad_enabled():
            by_thread = torch.vmap(lambda *given: way.back(*given, list(wanted[:2])))
            return *by_thread(grad, input, weight), of_bias, None
        of_input, of_weight = None, None
        if wanted[0]:
            flat = way.back(grad.flatten(0, 1), input.flatten(0, 1), weight[0], [True, False])[0]
            of_input = flat.reshape(input.shape)
        if wanted[1]:

            def own(grad: Tensor, input: Tensor) -> Tensor:
                found: Tensor = way.back(grad, input, weight[0], [False, True])[1]
                return found

            of_weight = torch.vmap(own)(grad, input)
        return of_input, of_weight, of_bias, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (input, weight), of = ctx.saved_tensors, torch.vmap(ctx.way.of)
        along = [
            of(tangents[0], weight) if tangents[0] is not None else None,
            of(input, tangents[1]) if tangents[1] is not None else None,
        ]
        found: Tensor = sum(part for part in along if part is not None)
        return found if tangents[2] is None else found + over_space(tangents[2], found)


def over_space(bias: Tensor, rows: Tensor) -> Tensor:
    """``[k, O]`` as it is added to ``[k, n, O, *S]``."""
    return bias.reshape(bias.shape[0], 1, -1, *(1,) * (rows.dim() - 3))


def convolved(input: Tensor, weight: Tensor, bias: Tensor | None, way: Way) -> Tensor:
    """``Convolution``."""
    found: Tensor = Convolution.apply(input, weight, bias, way)  # type: ignore[no-untyped-call]
    return found
