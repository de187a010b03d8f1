"""Batched forms of the operators that ``torch.vmap`` refuses; ``registry`` says how to add one."""

from autobatch.batching.converters import (
    attention,
    decoder,
    dense,
    pointwise,
    recurrent,
    refused,
    shaped,
)
from autobatch.batching.converters.registry import Info, find, register, rows

__all__ = [
    "Info",
    "attention",
    "decoder",
    "dense",
    "find",
    "pointwise",
    "recurrent",
    "refused",
    "register",
    "rows",
    "shaped",
]
