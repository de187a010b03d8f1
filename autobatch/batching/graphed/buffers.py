"""The memory of a captured replay: tensors as wide as it is, and their first rows.

A ``Layout`` is what a recording knows of a tensor, for any thread count: its shape and strides,
in which ``Count`` stands for multiples of that count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.trace.graph import Count, Meta
from autobatch.compat import foreach_copy


class Refused(Exception):
    """What cannot be captured, and why; it is replayed as recorded."""


def width_of(k: int) -> int:
    """The power of two that so many threads are padded to."""
    return 1 << (k - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor of ``k`` threads lies in memory."""

    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(meta: Meta | None, what: str) -> Layout:
        """That of a value of a recording; ``Refused`` where its rows cannot be told."""
        if meta is None:
            raise Refused(f"{what} is no tensor of the recording's")
        if any(size is None for size in (*meta.shape, *meta.stride)):
            raise Refused(f"{what} has a size that depends on more than the thread count")
        if any(type(size) is Count and size.multiple != 1 for size in meta.shape):
            raise Refused(f"{what} has not one row for each thread")
        return Layout(tuple(meta.shape), tuple(meta.stride), meta.dtype, meta.device)

    def empty(self, k: int) -> Tensor:
        """Fresh memory; what is repeated by a stride of 0 is there once."""
        pairs = zip(sizes(self.shape, k), self.stride, strict=True)
        shape = [min(size, 1) if stride == 0 else size for size, stride in pairs]
        return torch.empty_strided(
            shape, sizes(self.stride, k), dtype=self.dtype, device=self.device
        )

    def once(self, tensor: Tensor, k: int) -> Tensor:
        """Of a tensor as wide or wider, the first ``k`` rows, each element of memory once."""
        for dim, (size, stride) in enumerate(zip(self.shape, self.stride, strict=True)):
            if stride == 0:
                tensor = tensor.narrow(dim, 0, min(tensor.shape[dim], 1))
            elif type(size) is Count:
                tensor = tensor.narrow(dim, 0, k)
        return tensor

    def whole(self, made: Tensor, k: int) -> Tensor:
        """What ``empty`` has made, in its own shape."""
        return made.expand(sizes(self.shape, k)) if 0 in self.stride else made


def sizes(given: Iterable[Any], k: int) -> list[int]:
    return [size.multiple * k if type(size) is Count else size for size in given]


@dataclass(frozen=True, slots=True)
class Copies:
    """Which tensors go together in one launch: those of one dtype."""

    together: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> Copies:
        found: dict[torch.dtype, list[int]] = {}
        for place, tensor in enumerate(tensors):
            found.setdefault(tensor.dtype, []).append(place)
        return Copies(tuple(map(tuple, found.values())))

    @property
    def launches(self) -> int:
        return len(self.together)

    def copy(self, targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
        for places in self.together:
            foreach_copy([targets[i] for i in places], [sources[i] for i in places])
