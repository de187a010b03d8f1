"""Where vmap would answer wrongly, or accept what one example refuses: thread by thread instead."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from autobatch.batching.converters.pointwise import both
from autobatch.batching.converters.registry import Info, event_dim, register
from autobatch.batching.levels import Batched, NoRule


@register(*both("tril", "triu"))
def triangle(info: Info, input: Any, *args: Any, **kwargs: Any) -> Any:
    """A row vector under vmap is a matrix to these kernels, which one example's is not."""
    if event_dim(input) < 2:
        raise NoRule("a matrix is needed")
    return NotImplemented


@register(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
def conv_transpose(
    info: Info, input: Any, weight: Any, bias: Any = None, *args: Any, **kw: Any
) -> Any:
    """vmap adds a bias of any shape."""
    if bias is not None and event_dim(bias) != 1:
        raise NoRule("a bias that is not a vector")
    return NotImplemented


@register(*both("index_fill"))
def index_fill(info: Info, input: Any, dim: int, index: Any, value: Any) -> Any:
    """vmap's rule fills every thread with the first one's value."""
    if isinstance(value, Batched):
        raise NoRule("a value of the thread's own")
    return NotImplemented


@register(*both("select_scatter"))
def select_scatter(info: Info, input: Any, src: Any, *args: Any, **kwargs: Any) -> Any:
    """vmap broadcasts a source that one example finds too small."""
    if event_dim(src) != event_dim(input) - 1:
        raise NoRule("a source that is not a slice")
    return NotImplemented


@register(*both("slice_scatter", "diagonal_scatter"))
def part_scatter(info: Info, input: Any, src: Any, *args: Any, **kwargs: Any) -> Any:
    """As ``select_scatter``."""
    if event_dim(src) == 0:
        raise NoRule("a source that is not a slice")
    return NotImplemented
