"""Products with a matrix that all threads share: one 2-D product, its result laid out row by row.

vmap turns ``W @ h`` into ``permute(mm(W, permute(h)))``, whose column-major result slows all that
follows, and an affine map into a product and an addition; here both are one ``addmm``. A matrix
that is shared but differentiated by each thread is a ``vm.repeated`` one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autobatch.batching.converters.registry import Info, event_dim, register, rows
from autobatch.batching.levels import Batched, NoRule, map_tree
from autobatch.values.repeated import bmm, is_repeated


def _shared(*operands: Any) -> bool:
    return all(operand is None or isinstance(operand, Tensor) for operand in operands)


@register(F.linear)
def linear(info: Info, input: Any, weight: Any, bias: Any = None) -> Any:
    """``x Wᵀ + b`` on the last dimension, with one weight."""
    if _repeated(weight) and event_dim(input) == 1:
        return _repeated_linear(info, input, weight, bias)
    if not _shared(weight, bias) or weight.dim() != 2 or event_dim(input) == 0:
        return NotImplemented
    return Batched(F.linear(input.data, weight, bias))


def _repeated(matrix: Any) -> bool:
    return type(matrix) is Batched and matrix.data.dim() == 3 and is_repeated(matrix.data)


def _repeated_linear(info: Info, input: Any, weight: Batched, bias: Any) -> Any:
    if bias is not None and (rows(bias, info.k).shape[1:] != weight.data.shape[1:2]):
        return NotImplemented
    out = bmm(rows(input, info.k)[:, None], weight.data.mT)[:, 0]
    return Batched(out if bias is None else out + rows(bias, info.k))


def weighted(weight: Tensor, input: Tensor) -> Tensor:
    """``F.linear`` of a module's weight, as an operation on it."""
    return F.linear(input, weight)


def affine(weight: Tensor, bias: Tensor, input: Tensor) -> Tensor:
    """The same with its bias."""
    return F.linear(input, weight, bias)


weighted.__autobatch__ = affine.__autobatch__ = "torch"  # type: ignore[attr-defined]


@register(weighted)
def weighted_rule(info: Info, weight: Any, input: Any) -> Any:
    return linear(info, input, weight)


@register(affine)
def affine_rule(info: Info, weight: Any, bias: Any, input: Any) -> Any:
    return linear(info, input, weight, bias)


@register(nn.Linear)
def linear_module(info: Info, module: nn.Linear, input: Any) -> Any:
    return linear(info, input, module.weight, module.bias)


def refuse_no_bools(*operands: Any) -> None:
    """There is no product of bools, but vmap's of no elements asks for no kernel."""
    tensors = [each.data if isinstance(each, Batched) else each for each in operands]
    if any(isinstance(x, Tensor) and x.dtype == torch.bool and not x.numel() for x in tensors):
        raise NoRule("a product of bools")


@register(torch.mv, Tensor.mv)
def mv(info: Info, input: Any, vec: Any) -> Any:
    if event_dim(input) != 2 or event_dim(vec) != 1:
        raise NoRule("no matrix, or no vector")
    return matmul(info, input, vec)


@register(torch.matmul, Tensor.matmul, Tensor.__matmul__, operator.matmul)
def matmul(info: Info, first: Any, second: Any) -> Any:
    """A shared matrix times per-thread vectors, or per-thread rows times a shared matrix."""
    refuse_no_bools(first, second)
    if _repeated(first) and event_dim(second) == 1:
        return Batched(bmm(first.data, rows(second, info.k)[:, :, None])[:, :, 0])
    if _shared(first) and first.dim() == 2 and event_dim(second) == 1:
        return Batched(F.linear(second.data, first))
    if _shared(second) and second.dim() == 2 and event_dim(first) >= 1:
        return Batched(torch.matmul(first.data, second))
    return NotImplemented


def _register_added(function: Callable[..., Any], method: Callable[..., Any]) -> None:
    @register(function, method)
    def added(
        info: Info, input: Any, mat: Any, other: Any, *, beta: Any = 1, alpha: Any = 1
    ) -> Any:
        """``beta * input + alpha * (mat @ other)``, of which vmap makes a product and a sum.

        Torch takes factors of ints for ints, sums matrices of ints in their own dtype, and does
        not look at ``input`` where ``beta`` is 0.
        """
        whole = rows(input, info.k)
        of_ints = not (whole.is_floating_point() or whole.is_complex())
        if of_ints and (function is torch.addbmm or float in (type(beta), type(alpha))):
            raise NoRule("a sum of ints")
        if type(beta) not in (bool, int, float) or beta != 0:
            return _affine(info, function, input, mat, other, beta, alpha)
        if whole.requires_grad:
            raise NoRule("an operand of factor 0 that is differentiated")
        blank = map_tree(_blank, input)
        return info.apply(function, (blank, mat, other), {"alpha": alpha}, info.k)


def _blank(leaf: Batched | Tensor) -> Batched | Tensor:
    zeros = leaf.data.new_zeros(()).expand(leaf.data.shape)
    return Batched(zeros) if type(leaf) is Batched else zeros


def _affine(
    info: Info, function: Any, input: Any, mat: Any, vec: Any, beta: Any, alpha: Any
) -> Any:
    """``addmv``, ``b + W h``, with one W."""
    if function is not torch.addmv or not _shared(mat) or mat.dim() != 2:
        return NotImplemented
    if event_dim(vec) != 1 or event_dim(input) != 1 or type(vec) is not Batched:
        return NotImplemented  # one product for all threads
    return Batched(torch.addmm(rows(input, info.k), vec.data, mat.t(), beta=beta, alpha=alpha))


for _added, _method in (
    (torch.addmv, Tensor.addmv),
    (torch.addmm, Tensor.addmm),
    (torch.addbmm, Tensor.addbmm),
    (torch.baddbmm, Tensor.baddbmm),
):
    _register_added(_added, _method)


def _bilinear(info: Info, input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    same = len({operand.data.dtype for operand in (input1, input2, weight)}) == 1
    if event_dim(input1) != event_dim(input2) or event_dim(input1) == 0 or not same:
        return NotImplemented
    first, second = rows(input1, info.k), rows(input2, info.k)
    if _shared(weight, bias):
        return Batched(F.bilinear(first, second, weight, bias))
    out = torch.einsum("k...i,koij,k...j->k...o", first, rows(weight, info.k), second)
    if bias is None:
        return Batched(out)
    shift = rows(bias, info.k)
    return Batched(out + shift.reshape(info.k, *(1,) * (out.dim() - 2), -1))


@register(F.bilinear)
def bilinear(info: Info, input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """``x1ᵀ W x2`` for each output feature."""
    return _bilinear(info, input1, input2, weight, bias)


@register(nn.Bilinear)
def bilinear_module(info: Info, module: nn.Bilinear, input1: Any, input2: Any) -> Any:
    return _bilinear(info, input1, input2, module.weight, module.bias)
