"""Modules made of modules: decoder layers, whole transformers and ``nn.Sequential``.

Each part is an operation of its own, so that the parts' converters apply.
"""

from __future__ import annotations

import operator
from typing import Any

import torch.nn.functional as F
from torch import nn

from autobatch.batching.converters.attention import allow_dropout
from autobatch.batching.converters.registry import Info, register, unhooked

_BLOCKS = ("self_attn", "multihead_attn", "linear1", "linear2", "norm1", "norm2", "norm3")
_DECODER_MASKS = (
    *("tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask"),
    *("tgt_is_causal", "memory_is_causal"),
)
_TYPES = (nn.MultiheadAttention, nn.Linear, nn.LayerNorm)


@register(nn.TransformerDecoderLayer)
def decoder_layer(
    info: Info,
    layer: nn.TransformerDecoderLayer,
    tgt: Any,
    memory: Any,
    tgt_mask: Any = None,
    memory_mask: Any = None,
    tgt_key_padding_mask: Any = None,
    memory_key_padding_mask: Any = None,
    tgt_is_causal: bool = False,
    memory_is_causal: bool = False,
) -> Any:
    """Self-attention, attention to the memory and feed-forward, each added and normed."""
    parts = [getattr(layer, name) for name in _BLOCKS]
    if not all(isinstance(part, _TYPES) and unhooked(part) for part in parts):
        return NotImplemented
    if layer.activation not in (F.relu, F.gelu):
        return NotImplemented
    rates = (layer.dropout.p, layer.dropout1.p, layer.dropout2.p, layer.dropout3.p)
    allow_dropout(info, layer, *rates, layer.self_attn.dropout, layer.multihead_attn.dropout)

    def run(module: Any, *operands: Any, **keywords: Any) -> Any:
        return info.apply(module, operands, keywords, info.k, randomness=info.randomness)

    def look(attention: Any, x: Any, at: Any, padding: Any, mask: Any, causal: bool) -> Any:
        keywords = {"attn_mask": mask, "key_padding_mask": padding, "is_causal": causal}
        return run(attention, x, at, at, need_weights=False, **keywords)[0]

    def itself(x: Any) -> Any:
        found = look(layer.self_attn, x, x, tgt_key_padding_mask, tgt_mask, tgt_is_causal)
        return run(layer.dropout1, found)

    def back(x: Any) -> Any:
        padding, mask = memory_key_padding_mask, memory_mask
        found = look(layer.multihead_attn, x, memory, padding, mask, memory_is_causal)
        return run(layer.dropout2, found)

    def feed(x: Any) -> Any:
        hidden = run(layer.dropout, run(layer.activation, run(layer.linear1, x)))
        return run(layer.dropout3, run(layer.linear2, hidden))

    x = tgt
    for block, norm in ((itself, layer.norm1), (back, layer.norm2), (feed, layer.norm3)):
        if layer.norm_first:
            x = run(operator.add, x, block(run(norm, x)))
        else:
            x = run(norm, run(operator.add, x, block(x)))
    return x


@register(nn.TransformerDecoder)
def decoder(info: Info, module: nn.TransformerDecoder, tgt: Any, memory: Any, **masks: Any) -> Any:
    """A stack of decoder layers. ``tgt_is_causal`` is a hint; without it the mask says the same."""
    masks["tgt_is_causal"] = bool(masks.get("tgt_is_causal"))
    out = tgt
    for layer in module.layers:
        out = info.apply(layer, (out, memory), masks, info.k, randomness=info.randomness)
    if module.norm is not None:
        out = info.apply(module.norm, (out,), None, info.k, randomness=info.randomness)
    return out


@register(nn.Transformer)
def transformer(info: Info, module: nn.Transformer, src: Any, tgt: Any, **masks: Any) -> Any:
    """An encoder, and a decoder that attends to what it made; masks by keyword."""

    def chosen(**names: str) -> dict[str, Any]:
        return {to: masks[name] for to, name in names.items() if masks.get(name) is not None}

    how = chosen(mask="src_mask", src_key_padding_mask="src_key_padding_mask")
    memory = info.apply(module.encoder, (src,), how, info.k, randomness=info.randomness)
    how = chosen(**{name: name for name in _DECODER_MASKS})
    return info.apply(module.decoder, (tgt, memory), how, info.k, randomness=info.randomness)


@register(nn.Sequential)
def sequential(info: Info, module: nn.Sequential, input: Any) -> Any:
    """One after the other, each as an operation of its own."""
    for child in module:
        input = info.apply(child, (input,), None, info.k, randomness=info.randomness)
    return input
