"""Attention: threads join one example's batch, so one kernel serves them all.

vmap has rules for parts of scaled-dot-product attention only. Inside, sequences are ``[B, T, E]``
with B the threads, or the threads times one example's own batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from autobatch import compat
from autobatch.batching.converters.registry import (
    Info,
    event_dim,
    folded,
    register,
    rows,
    unfolded,
)
from autobatch.batching.levels import Batched, has_batched
from autobatch.values.attending import Settings, attended


@register(F.scaled_dot_product_attention)
def scaled_dot_product_attention(
    info: Info,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Per-thread ``[L, E]``, ``[H, L, E]`` or ``[N, H, L, E]``: fused kernels want four."""
    dims = event_dim(query)
    masked = isinstance(attn_mask, Batched | Tensor)
    if dims not in (2, 3, 4) or event_dim(key) != dims or event_dim(value) != dims:
        return NotImplemented
    if masked and (event_dim(attn_mask) > dims or attn_mask.data.dim() < 2):
        return NotImplemented
    if dropout_p > 0:
        info.allow_draws("scaled_dot_product_attention")
    if dims == 4 and query.data.shape[-4] != key.data.shape[-4]:
        return NotImplemented

    def fit(operand: Any) -> Tensor:
        data = rows(operand, info.k)
        return data.unsqueeze(1) if dims == 2 else data if dims == 3 else data.flatten(0, 1)

    mask = _fit_mask(attn_mask, query, info.k, dims) if masked else None
    operands = (fit(query), fit(key), fit(value))
    out = F.scaled_dot_product_attention(
        *operands, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    if not dropout_p:
        attended(out, operands, Settings(mask, is_causal, scale, enable_gqa))
    return unfolded(out, info.k) if dims == 4 else Batched(out if dims == 3 else out.squeeze(1))


def _fit_mask(mask: Any, query: Any, k: int, dims: int) -> Tensor:
    """The mask with the query's leading dimensions, or broadcasting over them."""
    if type(mask) is not Batched and mask.dim() < 4:
        return mask  # type: ignore[no-any-return]
    data = rows(mask, k)
    data = data.reshape(k, *(1,) * (max(dims, 3) + 1 - data.dim()), *data.shape[1:])
    if dims < 4:
        return data
    return data.expand(k, query.data.shape[-4], *data.shape[2:]).flatten(0, 1)


@register(nn.MultiheadAttention)
def multihead_attention(
    info: Info,
    module: nn.MultiheadAttention,
    query: Any,
    key: Any,
    value: Any,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """Per-thread ``[L, E]``, or one example's own batch as ``batch_first`` says."""
    dims = event_dim(query)
    if dims not in (2, 3) or event_dim(key) != dims or event_dim(value) != dims:
        return NotImplemented
    allow_dropout(info, module, module.dropout)
    first = module.batch_first
    q, k, v = (joined(operand, info.k, first) for operand in (query, key, value))
    out, weights = attend(
        module,
        (q, k, v),
        padding_mask(key_padding_mask, info.k),
        pair_mask(attn_mask, info.k, module.num_heads, q.shape[0]),
        (need_weights, average_attn_weights, is_causal),
    )
    return parted(out, info.k, dims, first), _parted_weights(weights, info.k, dims)


def allow_dropout(info: Info, module: nn.Module, *rates: float) -> None:
    """Refuse dropout in training where draws are not allowed."""
    if module.training and any(rate > 0 for rate in rates):
        info.allow_draws(type(module).__name__)


def attend(
    module: nn.MultiheadAttention,
    sequences: tuple[Tensor, Tensor, Tensor],
    padding: Tensor | None,
    mask: Tensor | None,
    how: tuple[bool, bool, bool],
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention on ``[B, T, E]``; ``how`` is (need weights, average them, causal)."""
    query, key, value = sequences
    need_weights, average, is_causal = how
    q = query.transpose(0, 1)
    k = q if key is query else key.transpose(0, 1)
    v = k if value is key else value.transpose(0, 1)
    separate = not module._qkv_same_embed_dim
    out, weights = F.multi_head_attention_forward(
        *(q, k, v, module.embed_dim, module.num_heads),
        *(module.in_proj_weight, module.in_proj_bias, module.bias_k, module.bias_v),
        *(module.add_zero_attn, module.dropout, module.out_proj.weight, module.out_proj.bias),
        training=module.training,
        key_padding_mask=padding,
        need_weights=need_weights,
        attn_mask=mask,
        use_separate_proj_weight=separate,
        q_proj_weight=module.q_proj_weight if separate else None,
        k_proj_weight=module.k_proj_weight if separate else None,
        v_proj_weight=module.v_proj_weight if separate else None,
        average_attn_weights=average,
        is_causal=is_causal,
    )
    return out.transpose(0, 1), weights


def joined(operand: Any, k: int, batch_first: bool) -> Tensor:
    """``[T, E]`` of each thread, or its own batch of them, as ``[B, T, E]``."""
    data = rows(operand, k)
    if data.dim() == 3:
        return data
    return (data if batch_first else data.transpose(1, 2)).flatten(0, 1)


def parted(out: Tensor, k: int, dims: int, batch_first: bool) -> Batched:
    """The inverse of ``joined``."""
    if dims == 2:
        return Batched(out)
    data = unfolded(out, k).data
    return Batched(data if batch_first else data.transpose(1, 2))


def _parted_weights(weights: Tensor | None, k: int, dims: int) -> Batched | None:
    if weights is None:
        return None
    return Batched(weights) if dims == 2 else unfolded(weights, k)


def padding_mask(mask: Any, k: int) -> Tensor | None:
    """A key padding mask, ``[S]`` or ``[N, S]`` for one example, as ``[B, S]``."""
    if mask is None:
        return None
    return rows(mask, k) if event_dim(mask) == 1 else folded(mask, k)


def pair_mask(mask: Any, k: int, heads: int, batch: int) -> Tensor | None:
    """An attention mask, ``[L, S]`` or ``[N * heads, L, S]``, for B sequences."""
    if mask is None or (type(mask) is not Batched and mask.dim() == 2):
        return mask  # type: ignore[no-any-return]
    if event_dim(mask) == 2:
        return rows(mask, k).repeat_interleave(batch // max(k, 1) * heads, 0)
    return folded(mask, k)


_attention: Callable[..., tuple[Tensor, Tensor | None]] = F.multi_head_attention_forward


@dataclass(frozen=True, slots=True)
class WithWeights:
    """Attention by way of its weights, for which vmap has rules for parameters of each thread's."""

    needed: bool

    def __call__(self, *args: Any, **keywords: Any) -> tuple[Tensor, Tensor | None]:
        out, weights = _attention(*args, **{**keywords, "need_weights": True})
        return out, weights if self.needed else None


@register(F.multi_head_attention_forward)
def multi_head_attention_forward(
    info: Info, query: Any, key: Any, value: Any, *settings: Any, **keywords: Any
) -> Any:
    """What the module calls, for modules within code that runs under vmap: ``[L, N, E]``."""
    dims = event_dim(query)
    masks = {name: keywords.get(name) for name in ("key_padding_mask", "attn_mask")}
    if has_batched(settings, keywords):
        needed = keywords.get("need_weights", True)
        return info.apply(WithWeights(needed), (query, key, value, *settings), keywords, info.k)
    if dims not in (2, 3):
        return NotImplemented
    if any(mask is not None and mask.dim() == dims for mask in masks.values() if dims == 3):
        return NotImplemented
    if masks["key_padding_mask"] is not None:
        return NotImplemented
    rate = keywords.get("dropout_p", settings[7] if len(settings) > 7 else 0.0)
    trains = keywords.get("training", settings[10] if len(settings) > 10 else True)
    if trains and rate > 0:
        info.allow_draws("multi_head_attention_forward")
    q, k, v = (joined(operand, info.k, False).transpose(0, 1) for operand in (query, key, value))
    out, weights = _attention(q, k, v, *settings, **keywords)
    part = parted(out.transpose(0, 1), info.k, dims, False)
    return part, _parted_weights(weights, info.k, dims)


def _register_fast_path(function: Any, operands: int) -> None:
    """torch's inference kernels, ``[N, T, E]``; with masks they run thread by thread."""

    @register(function)
    def fast_path(info: Info, *args: Any) -> Any:
        if any(isinstance(arg, Batched) for arg in args[operands:]):
            return NotImplemented
        out = function(*(folded(arg, info.k) for arg in args[:operands]), *args[operands:])
        if isinstance(out, tuple):
            return tuple(None if part is None else unfolded(part, info.k) for part in out)
        return unfolded(out, info.k)


_register_fast_path(compat.native_attention, 3)
_register_fast_path(compat.native_encoder_layer, 1)
