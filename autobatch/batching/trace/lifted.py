"""Numbers of a replay as tensors: torch wraps a number anew at every call, which takes longer than
to compare a thousand rows with it.

``x > self.limit`` gets the number at each replay, and most often the same one. So its tensor is
looked up: 256 rows compared with a float in 1.9 µs, as against 7.2.

In: an operation of a graph that takes a number which the replay is given. Out: what has the tensors
of such numbers, in the dtype to which torch would convert them, so that no value and no dtype
changes; None where it stays a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from autobatch.batching.trace.bindings import Example
from autobatch.batching.trace.graph import Meta, Node, Ref, Symbol
from autobatch.batching.trace.rewrite import WITH_TENSOR
from autobatch.compat import within_level, within_modes

MOST = 256
"""Numbers of a dtype that are kept."""


class Lifted(dict[float, Any]):
    """The tensors of numbers, of one dtype, that are met for a second time: to make one for each of
    those that differ from round to round takes longer than they save.

    A number is its own where a tensor made now would be another's: of a transform at work, or of
    what sees each operator. So is zero, of which there are two that are equal.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.met: set[float] = set()

    def __missing__(self, number: float) -> Any:
        if not number or within_level() or within_modes():
            return number
        if number not in self.met:
            if len(self.met) >= MOST:
                self.met.clear()
            self.met.add(number)
            return number
        if len(self) >= MOST:
            self.clear()
        with torch.inference_mode(False):
            made = self[number] = torch.tensor(number, dtype=self.dtype, device="cpu")
        return made


@cache
def lifted_of(dtype: torch.dtype) -> Lifted:
    return Lifted(dtype)


def lifted(node: Node, function: Any, metas: Mapping[int, Meta], example: Example) -> Lifted | None:
    """What has the tensors of an operation's last operand; ``function`` runs it."""
    if node.op not in WITH_TENSOR or len(node.args) != 2 or isinstance(function, OpOverload):
        return None
    one, number = node.args
    if (
        type(one) is not Ref
        or type(number) is not Symbol
        or number.offset
        or "alpha" in node.kwargs
    ):
        return None
    meta = metas[one.value]
    is_float = type(example.numbers.get(number.position)) is float
    if not is_float or meta.dtype not in (torch.float32, torch.float64):
        return None
    return lifted_of(meta.dtype) if meta.shape and None not in meta.shape else None
