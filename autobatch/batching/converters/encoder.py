"""Encoder layers, always on torch's plain path.

The fast path that torch takes in inference is one kernel that can neither be looked into nor
differentiated, so a recorded graph must not hold it.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from autobatch.batching.converters.attention import (
    allow_dropout,
    attend,
    joined,
    padding_mask,
    pair_mask,
    parted,
)
from autobatch.batching.converters.registry import Info, event_dim, register, unhooked
from autobatch.batching.levels import NoRule


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
    x = joined(src, info.k, first)
    mask = pair_mask(src_mask, info.k, layer.self_attn.num_heads, x.shape[0])
    out = _encode(layer, x, mask, padding_mask(src_key_padding_mask, info.k), is_causal)
    return parted(out, info.k, dims, first)


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
    x = joined(src, info.k, first)
    pairs = pair_mask(mask, info.k, layers[0].self_attn.num_heads, x.shape[0])
    padding = padding_mask(src_key_padding_mask, info.k)
    for layer in layers:
        x = _encode(layer, x, pairs, padding, bool(is_causal))
    if module.norm is not None:
        x = module.norm(x)
    return parted(x, info.k, dims, first)


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
    """One layer on ``[B, T, E]``: attention and feed-forward, each added and normed."""

    def look(y: Tensor) -> Tensor:
        how = (False, True, is_causal and mask is not None)
        return layer.dropout1(attend(layer.self_attn, (y, y, y), padding, mask, how)[0])  # type: ignore[no-any-return]

    def feed(y: Tensor) -> Tensor:
        hidden = layer.dropout(layer.activation(layer.linear1(y)))
        return layer.dropout2(layer.linear2(hidden))  # type: ignore[no-any-return]

    if layer.norm_first:
        x = x + look(layer.norm1(x))
        return x + feed(layer.norm2(x))
    x = layer.norm1(x + look(x))
    return layer.norm2(x + feed(x))  # type: ignore[no-any-return]
