"""Attention and encoder layers: threads join one example's batch, so one kernel serves them all.

vmap has rules for parts of scaled-dot-product attention only, and torch's inference fast path for
encoder layers cannot be looked into; here every layer takes torch's plain path, which also keeps
gradients. Inside, sequences are ``[B, T, E]`` with B the threads, or threads times one example's
own batch.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from autobatch.batching import compat
from autobatch.batching.converters.registry import (
    Info,
    event_dim,
    folded,
    register,
    rows,
    unfolded,
    unhooked,
)
from autobatch.batching.levels import Batched, NoRule


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
    """Per-thread ``[L, E]``, ``[H, L, E]`` or ``[N, H, L, E]``: the fused kernels want four dimensions."""
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
    out = F.scaled_dot_product_attention(
        fit(query), fit(key), fit(value), mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
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
    """Per-thread ``[L, E]``, or a batch of one example's own as the module's ``batch_first`` says."""
    dims = event_dim(query)
    if dims not in (2, 3) or event_dim(key) != dims or event_dim(value) != dims:
        return NotImplemented
    allow_dropout(info, module, module.dropout)
    first = module.batch_first
    q, k, v = (_sequences(operand, info.k, first) for operand in (query, key, value))
    out, weights = _attend(
        module,
        (q, k, v),
        _padding(key_padding_mask, info.k),
        _pair_mask(attn_mask, info.k, module.num_heads, q.shape[0]),
        (need_weights, average_attn_weights, is_causal),
    )
    if weights is not None:
        weights = Batched(weights) if dims == 2 else unfolded(weights, info.k)
    return _back(out, info.k, dims, first), weights


@register(nn.TransformerEncoderLayer)
def encoder_layer(
    info: Info,
    layer: nn.TransformerEncoderLayer,
    src: Any,
    src_mask: Any = None,
    src_key_padding_mask: Any = None,
    is_causal: bool = False,
) -> Any:
    """An encoder layer over per-thread ``[T, E]``, or over a batch of one example's own."""
    dims = event_dim(src)
    if dims not in (2, 3) or not _standard(layer):
        return NotImplemented
    allow_dropout(info, layer, layer.dropout.p, layer.dropout1.p, layer.self_attn.dropout)
    first = layer.self_attn.batch_first
    x = _sequences(src, info.k, first)
    mask = _pair_mask(src_mask, info.k, layer.self_attn.num_heads, x.shape[0])
    out = _encode(layer, x, mask, _padding(src_key_padding_mask, info.k), is_causal)
    return _back(out, info.k, dims, first)


@register(nn.TransformerEncoder)
def encoder(
    info: Info,
    module: nn.TransformerEncoder,
    src: Any,
    mask: Any = None,
    src_key_padding_mask: Any = None,
    is_causal: bool | None = None,
) -> Any:
    """A stack of encoder layers."""
    layers: list[Any] = list(module.layers)
    dims = event_dim(src)
    if dims not in (2, 3) or not all(map(_standard_encoder, layers)):
        return NotImplemented
    if src_key_padding_mask is not None and not module.training:
        raise NoRule("an encoder in eval mode zeroes padded places, in a way of its own")
    for layer in layers:
        allow_dropout(info, layer, layer.dropout.p, layer.dropout1.p, layer.self_attn.dropout)
    first = layers[0].self_attn.batch_first
    x = _sequences(src, info.k, first)
    pairs = _pair_mask(mask, info.k, layers[0].self_attn.num_heads, x.shape[0])
    padding = _padding(src_key_padding_mask, info.k)
    for layer in layers:
        x = _encode(layer, x, pairs, padding, bool(is_causal))
    if module.norm is not None:
        x = module.norm(x)
    return _back(x, info.k, dims, first)


def allow_dropout(info: Info, module: nn.Module, *rates: float) -> None:
    """Refuse dropout in training where draws are not allowed."""
    if module.training and any(rate > 0 for rate in rates):
        info.allow_draws(type(module).__name__)


def _standard_encoder(layer: nn.Module) -> bool:
    return type(layer) is nn.TransformerEncoderLayer and unhooked(layer) and _standard(layer)


def _standard(layer: nn.TransformerEncoderLayer) -> bool:
    """Whether the layer is made of the parts that it is born with."""
    expected = {
        nn.MultiheadAttention: (layer.self_attn,),
        nn.Linear: (layer.linear1, layer.linear2),
        nn.LayerNorm: (layer.norm1, layer.norm2),
        nn.Dropout: (layer.dropout, layer.dropout1, layer.dropout2),
    }
    parts = [(part, kind) for kind, found in expected.items() for part in found]
    return layer.activation in (F.relu, F.gelu) and all(
        type(part) is kind and unhooked(part) for part, kind in parts
    )


def _encode(
    layer: nn.TransformerEncoderLayer,
    x: Tensor,
    mask: Tensor | None,
    padding: Tensor | None,
    is_causal: bool,
) -> Tensor:
    """One layer on ``[B, T, E]``: attention and feed-forward, each added to its input and normed."""

    def attend(y: Tensor) -> Tensor:
        how = (False, True, is_causal and mask is not None)
        return layer.dropout1(_attend(layer.self_attn, (y, y, y), padding, mask, how)[0])  # type: ignore[no-any-return]

    def feed(y: Tensor) -> Tensor:
        hidden = layer.dropout(layer.activation(layer.linear1(y)))
        return layer.dropout2(layer.linear2(hidden))  # type: ignore[no-any-return]

    if layer.norm_first:
        x = x + attend(layer.norm1(x))
        return x + feed(layer.norm2(x))
    x = layer.norm1(x + attend(x))
    return layer.norm2(x + feed(x))  # type: ignore[no-any-return]


def _attend(
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


def _sequences(operand: Any, k: int, batch_first: bool) -> Tensor:
    """``[T, E]`` of each thread, or its own batch of them, as ``[B, T, E]``."""
    data = rows(operand, k)
    if data.dim() == 3:
        return data
    return (data if batch_first else data.transpose(1, 2)).flatten(0, 1)


def _back(out: Tensor, k: int, dims: int, batch_first: bool) -> Batched:
    """The inverse of ``_sequences``."""
    if dims == 2:
        return Batched(out)
    data = unfolded(out, k).data
    return Batched(data if batch_first else data.transpose(1, 2))


def _padding(mask: Any, k: int) -> Tensor | None:
    """A key padding mask, ``[S]`` or ``[N, S]`` for one example, as ``[B, S]``."""
    if mask is None:
        return None
    return rows(mask, k) if event_dim(mask) == 1 else folded(mask, k)


def _pair_mask(mask: Any, k: int, heads: int, batch: int) -> Tensor | None:
    """An attention mask, ``[L, S]`` or ``[N * heads, L, S]``, as the module takes it for B sequences."""
    if mask is None or (type(mask) is not Batched and mask.dim() == 2):
        return mask  # type: ignore[no-any-return]
    if event_dim(mask) == 2:
        return rows(mask, k).repeat_interleave(batch // max(k, 1) * heads, 0)
    return folded(mask, k)




@register(F.multi_head_attention_forward)
def multi_head_attention_forward(
    info: Info, query: Any, key: Any, value: Any, *settings: Any, **keywords: Any
) -> Any:
    """What the module calls, for modules within code that runs under vmap: ``[L, N, E]``."""
    dims = event_dim(query)
    masks = {name: keywords.get(name) for name in ("key_padding_mask", "attn_mask")}
    if dims not in (2, 3) or any(isinstance(mask, Batched) for mask in masks.values()):
        return NotImplemented
    if any(mask is not None and mask.dim() == dims for mask in masks.values() if dims == 3):
        return NotImplemented
    if masks["key_padding_mask"] is not None:
        return NotImplemented
    if keywords.get("training", True) and settings[6] > 0:  # the seventh setting is the dropout
        info.allow_draws("multi_head_attention_forward")
    sequences = [_sequences(operand, info.k, False).transpose(0, 1) for operand in (query, key, value)]
    out, weights = F.multi_head_attention_forward(*sequences, *settings, **keywords)
    if weights is not None:
        weights = Batched(weights) if dims == 2 else unfolded(weights, info.k)
    return _back(out.transpose(0, 1), info.k, dims, False), weights


def _register_fast_path(function: Any, operands: int) -> None:
    """torch's inference kernels, ``[N, T, E]``: with masks they are left to run thread by thread."""

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
