"""What a workload is: inputs of any batch size, the per-example program, the loop by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from benchmarks.handwritten import Loop

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One batch: the per-example ``function``, its ``inputs`` ``[B, *E]``, the loop by hand.

    ``loop()`` makes the hand-written loop with all that precedes its first step, so that
    this is timed too.
    """

    function: Callable[..., Any]
    inputs: Inputs
    loop: Callable[[], Loop]


@dataclass(frozen=True, slots=True)
class Workload:
    """``make(batch)`` gives a problem; ``largest`` is the biggest batch that fits.

    Results agree to ``tolerance`` (absolute): where a batched kernel rounds otherwise, a
    loop that stops at a threshold may take one step more or less.
    """

    name: str
    make: Callable[[int], Problem]
    largest: int = 32_768
    tolerance: float = 0.0
