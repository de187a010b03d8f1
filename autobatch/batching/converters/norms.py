"""Norms over groups of channels: threads join one example's batch, ``[k, N, C, *S]``.

vmap's rule asks how the rows lie in memory, which it cannot answer for channels that are last.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from autobatch.batching.converters.registry import Info, event_dim, folded, register, unfolded
from autobatch.batching.levels import Batched


@register(F.group_norm, torch.group_norm)
def group_norm(
    info: Info, input: Any, num_groups: int, weight: Any = None, bias: Any = None, *more: Any,
    **named: Any,
) -> Any:  # fmt: skip
    """A weight and a bias are a product and a sum by themselves: of each thread or of all."""
    given = [weight, bias]
    tensors = [each for each in (input, *given) if each is not None]
    dtypes = {each.data.dtype for each in tensors}
    channels = (input.data.shape[2],) if event_dim(input) >= 2 else None
    if type(input) is not Batched or channels is None or len(dtypes) > 1:
        return NotImplemented
    if any(own_shape(each) != channels for each in tensors[1:]):
        return NotImplemented
    out: Any = unfolded(
        F.group_norm(folded(input, info.k), num_groups, None, None, *more[:1], **named), info.k
    )
    for apply, each in zip((torch.mul, torch.add), given, strict=True):
        if each is not None:
            out = info.apply(apply, (out, over_channels(each, event_dim(input))), None, info.k)
    return out


@register(nn.GroupNorm)
def group_norm_module(info: Info, module: nn.GroupNorm, input: Any) -> Any:
    return group_norm(info, input, module.num_groups, module.weight, module.bias, module.eps)


def own_shape(each: Any) -> tuple[int, ...]:
    """Of one example."""
    return tuple(each.data.shape[1:] if type(each) is Batched else each.shape)


def over_channels(each: Any, dims: int) -> Any:
    """``[C]`` as it goes with ``[N, C, *S]`` of so many dimensions."""
    ones = (1,) * (dims - 2)
    if type(each) is Batched:
        return Batched(each.data.reshape(*each.data.shape, *ones))
    shape: tuple[int, ...] = (*each.shape, *ones)
    return each.reshape(shape)
