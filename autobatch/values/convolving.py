"""Convolutions of each thread's own with a weight that repeats one tensor: one convolution with it.

As ``repeated.Product`` for matrices: in values the weight is the same for all threads, in gradients
it has a row for each. What goes to the input goes by the one weight; a weight's own gradient is one
grouped convolution. A backward that is differentiated itself is of each thread's own weight.

A recording cannot tell whether a weight will repeat one tensor: it holds ``CONVOLVED``, an operator
that stands for ``of_rows``, which can when it is replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autobatch.values.repeated import repeats


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
        of_input, of_weight = None, None
        if torch.is_grad_enabled():
            of_input, of_weight = (
                torch.vmap(partial(own_back, way, nr))(grad, input, weight) if wanted[nr] else None
                for nr in range(2)
            )
            return of_input, of_weight, of_bias, None
        if wanted[0]:
            flat = way.back(grad.flatten(0, 1), input.flatten(0, 1), weight[0], [True, False])[0]
            of_input = flat.reshape(input.shape)
        if wanted[1]:
            own = torch.vmap(partial(own_back, way, 1), (0, 0, None))
            of_weight = own(grad, input, weight[0])
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


def own_back(way: Way, nr: int, grad: Tensor, input: Tensor, weight: Tensor) -> Tensor:
    """One thread's gradient of its input, or of its weight."""
    return way.back(grad, input, weight, [nr == 0, nr == 1])[nr]


def over_space(bias: Tensor, rows: Tensor) -> Tensor:
    """``[k, O]`` as it is added to ``[k, n, O, *S]``."""
    return bias.reshape(bias.shape[0], 1, -1, *(1,) * (rows.dim() - 3))


def convolved(input: Tensor, weight: Tensor, bias: Tensor | None, way: Way) -> Tensor:
    """``Convolution``."""
    found: Tensor = Convolution.apply(input, weight, bias, way)  # type: ignore[no-untyped-call]
    return found


def grouped(input: Tensor, weight: Tensor, bias: Tensor | None, way: Way) -> Tensor:
    """The same with any weights: the threads are groups of channels."""
    k, n = input.shape[:2]
    whole = Way(way.stride, way.padding, way.dilation, k * way.groups)
    given = input.transpose(0, 1).flatten(1, 2)
    found = whole.of(given, weight.flatten(0, 1), None if bias is None else bias.flatten())
    return found.reshape(n, k, -1, *found.shape[2:]).transpose(0, 1)


def of_rows(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """By one weight where it repeats that, else by groups."""
    way = Way(tuple(stride), tuple(padding), tuple(dilation), groups)
    return (convolved if repeats(weight) else grouped)(input, weight, bias, way)


LIBRARY = torch.library.Library("autobatch", "DEF")  # type: ignore[no-untyped-call]
LIBRARY.define(  # type: ignore[no-untyped-call]
    "convolved(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, "
    "int[] dilation, int groups) -> Tensor"
)
LIBRARY.impl("convolved", of_rows, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
CONVOLVED = torch.ops.autobatch.convolved.default
