"""Random words for threads: for all of a group at once, or for one.

A source gives *columns*: for each of its ``k`` threads ``n`` groups of random words, as many
int64 tensors ``[k, n]`` as a group has words, of 32 bits each. Each request is one draw of each
thread (``counters``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from autobatch.compat import on_device
from autobatch.random import host_words
from autobatch.random.counters import LANES, Draw, above
from autobatch.random.paths import Paths, split
from autobatch.random.philox import MASK, philox

FEW = 8
"""Blocks of one thread that are computed with Python's ints: a kernel takes longer to begin."""
LARGEST = 2**48
"""Threads' indices and numbers of draws are below."""


class Source(Protocol):
    """Random words for ``k`` threads."""

    @property
    def k(self) -> int: ...

    def columns(self, n: int, words: int, device: torch.device) -> list[Tensor]:
        """``n`` groups of 1, 2 or 4 words for each thread: tensors ``[k, n]``."""
        ...

    def normals(self, n: int, device: torch.device) -> Tensor | None:
        """``n`` normal numbers for each thread, float32 ``[k, n]``, of one draw.

        None, and nothing is drawn, where they are to be made of columns.
        """
        ...

    def opened(self) -> Source:
        """The path of a call."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Threads:
    """The threads of a group; ``threads`` are their indices in the input."""

    paths: Paths
    threads: np.ndarray

    @property
    def k(self) -> int:
        return len(self.threads)

    def columns(self, n: int, words: int, device: torch.device) -> list[Tensor]:
        keys, numbers = self.paths.drawn()
        return columns(Draw(keys, numbers, self.threads), n, words, device)

    def normals(self, n: int, device: torch.device) -> Tensor | None:
        fill = host_words.code_of_normals(n) if device.type == "cpu" else None
        if fill is None:
            return None
        keys, numbers = self.paths.drawn()
        return host_words.normals(fill, Draw(keys, numbers, self.threads), n)

    def opened(self) -> Threads:
        return Threads(self.paths.opened(), self.threads)


@dataclass(slots=True, eq=False, repr=False)
class Thread:
    """One thread: its index, the key of its path, and the number of its next draw.

    ``flat``: no call opens a path, since Python itself makes it.
    """

    thread: int
    key: int
    number: int = 0
    flat: bool = False

    @property
    def k(self) -> int:
        return 1

    def columns(self, n: int, words: int, device: torch.device) -> list[Tensor]:
        blocks = -(-n * words // LANES)
        if 0 < blocks <= FEW:
            lanes = zip(*self.blocks(blocks), strict=True)
            data = [torch.tensor([lane], dtype=torch.int64, device=device) for lane in lanes]
            return gathered(data, n, words)
        self.number += 1
        draw = Draw(self.key, self.number - 1, np.array([self.thread]))
        return columns(draw, n, words, device)

    def normals(self, n: int, device: torch.device) -> Tensor | None:
        return None

    def blocks(self, count: int) -> list[tuple[int, ...]]:
        """The blocks of one draw as ints."""
        number, thread, key = self.number, self.thread, self.key
        self.number += 1
        rest = (number & MASK, thread & MASK, above(thread, number))
        halves = (key & MASK, key >> 32 & MASK)
        return [philox((block, *rest), halves) for block in range(count)]  # type: ignore[misc]

    def opened(self) -> Thread:
        return self if self.flat else self.path()

    def path(self) -> Thread:
        """A path of its own, which counts as a draw."""
        self.number += 1
        (key,) = split(np.array([self.key]), np.array([self.number - 1])).tolist()
        return Thread(self.thread, key)

    def inner(self, row: int) -> Thread:
        """Where an inner row draws."""
        (key,) = split(np.array([self.key]), np.array([row])).tolist()
        return Thread(self.thread, key, flat=True)


def columns(draw: Draw, n: int, words: int, device: torch.device) -> list[Tensor]:
    """Words of a draw."""
    blocks = -(-n * words // LANES)
    if device.type == "cpu":
        lanes = host_words.on_the_host(draw, blocks, n * words)
    else:
        lanes = on_a_device(draw, blocks, device)
    return gathered(lanes, n, words)


def on_a_device(draw: Draw, blocks: int, device: torch.device) -> list[Tensor]:
    """The four lanes ``[k, blocks]``."""
    shape = (draw.k, blocks)

    def spread(values: Any) -> Any:
        if isinstance(values, int):
            return values
        return on_device(values, device).view(-1, 1).expand(shape)

    block = 0 if blocks == 1 else torch.arange(blocks, device=device).expand(shape)
    number, index, rest, low, high = map(spread, draw.words())
    lanes: Any = philox((block, number, index, rest), (low, high))
    return [lane & MASK for lane in lanes]


def gathered(lanes: list[Tensor], n: int, words: int) -> list[Tensor]:
    """The lanes ``[k, blocks]`` of blocks, as ``words`` tensors ``[k, n]``."""
    found: list[Tensor] = []
    for word in range(words):
        parts = lanes[word::words]
        whole = torch.cat(parts, 1) if n > parts[0].shape[1] else parts[0]
        found.append(whole if whole.shape[1] == n else whole[:, :n])
    return found
