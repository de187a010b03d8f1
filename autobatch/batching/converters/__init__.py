"""Batched forms of the operators that ``torch.vmap`` refuses; ``registry`` says how to add one."""

from autobatch.batching.converters import (
    attention,
    convolutions,
    decoder,
    dense,
    distributions,
    encoder,
    losses,
    norms,
    places,
    pointwise,
    recurrent,
    refused,
    shaped,
    within,
)
from autobatch.batching.converters.registry import Info, find, is_drawing, register, rows

__all__ = [
    "Info",
    "attention",
    "convolutions",
    "decoder",
    "dense",
    "distributions",
    "encoder",
    "find",
    "is_drawing",
    "losses",
    "norms",
    "places",
    "pointwise",
    "recurrent",
    "refused",
    "register",
    "rows",
    "shaped",
    "within",
]
