"""Sums and products of finite numbers that overflow: from there on something may be infinite.

In: what an operation, or a recorded stretch, has made of finite operands while nothing was known to
be infinite. Out: the record of the run knows (``Record.is_wild``), and a stretch in which something
has overflowed on the way is to run once more, watched: its derivatives may be infinite already.

A look at a tensor is a sum and a read, some 3 us. On another device than the CPU the read would
wait for the device, in each step; there nobody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from autobatch.compat import within_duals, within_level
from autobatch.presence.record import (
    Record,
    has_sum,
    is_finite,
    may_be_infinite,
    record_at_work,
)
from autobatch.saving.savers import decided, is_noted

Look = Callable[[Tensor], bool]


def is_sound(tensor: Tensor) -> bool:
    """Whether all of it is finite, or nobody looks."""
    return not may_be_infinite(tensor) or tensor.device.type != "cpu" or is_finite(tensor)


def passed(tensor: Tensor) -> bool:
    """Instead of it where no derivative is wanted."""
    return True


def look() -> Look:
    """How a stretch at work is to look at what it makes, on the CPU."""
    if record_at_work() is None or not torch.is_grad_enabled():
        return passed
    return is_finite if within_level() or within_duals() else has_sum


def held(*seen: bool) -> bool:
    """Whether a stretch stays as it has run: all that it has looked at is sound."""
    if not is_noted() and all(seen):
        return True
    return decided(lambda: sound(*seen))


def sound(*seen: bool) -> bool:
    """Whether all that has been looked at is; if not, the run knows."""
    if all(seen):
        return True
    if (record := record_at_work()) is not None:
        record.is_wild = True
    return False


def heed(record: Record, made: Iterable[Any]) -> None:
    """An operation by itself has made this of finite operands."""
    if not all(map(is_sound, made)):
        record.is_wild = True
