"""Convolutions with a weight that all threads share and each differentiates (see ``convolving``).

vmap has a rule for weights of each thread's own, as many groups as there are threads; for one that
all share and nobody differentiates it convolves once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from autobatch.batching.converters.registry import Info, event_dim, register, rows
from autobatch.batching.levels import Batched
from autobatch.batching.trace.recorder import is_recording
from autobatch.compat import any_autocast, within_level, within_modes
from autobatch.values.convolving import CONVOLVED, Way, convolved
from autobatch.values.repeated import repeats


def _register(function: Callable[..., Any], space: int) -> None:
    @register(function)
    def convolution(
        info: Info,
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        tensors = [input, weight] if bias is None else [input, weight, bias]
        if not _fits(tensors, space) or isinstance(padding, str):
            return NotImplemented
        whole = rows(input, info.k)
        each = whole if event_dim(input) == space + 2 else whole[:, None]
        way = Way(spread(stride, space), spread(padding, space), spread(dilation, space), groups)
        own = None if bias is None else rows(bias, info.k)
        if is_recording():
            found = CONVOLVED(each, weight.data, own, way.stride, way.padding, way.dilation, groups)
        else:
            found = convolved(each, weight.data, own, way)
        return Batched(found if each is whole else found.squeeze(1))


def spread(number: int | Sequence[int], space: int) -> tuple[int, ...]:
    """A number for each dimension."""
    given = (number,) if isinstance(number, int) else tuple(number)
    return given * space if len(given) == 1 else given


def _fits(tensors: list[Any], space: int) -> bool:
    """Whether they are an input, a weight that repeats one tensor and a bias, of one dtype.

    A weight that is differentiated may do so where a recording is replayed.
    """
    if not all(isinstance(each, Batched | Tensor) for each in tensors):
        return False
    input, weight, *_ = tensors
    if type(weight) is not Batched or any_autocast():
        return False
    if is_recording():
        if within_level() or not weight.data.requires_grad:
            return False
    elif not repeats(weight.data) or within_modes():
        return False
    data = [each.data for each in tensors]  # of a tensor, itself without its gradient
    return len({each.dtype for each in data}) == 1 and event_dim(input) in (space + 1, space + 2)


_register(F.conv1d, 1)
_register(F.conv2d, 2)
_register(F.conv3d, 3)
