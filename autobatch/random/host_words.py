"""Random words and normal numbers of threads on the CPU: by machine code once there are many."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.random import host_code
from autobatch.random.counters import LANES, Draw
from autobatch.random.philox import MASK, ROOM, philox

PART = 16384
"""Blocks that are computed together by numpy."""
Shape = tuple[int, int]


def on_the_host(draw: Draw, blocks: int, words: int) -> list[Tensor]:
    """Lanes ``[k, blocks]``, all four or, of one block, as many as there are words."""
    lanes = words if blocks == 1 else LANES
    made = np.empty((lanes, draw.k, blocks), dtype=np.uint64)
    fill = host_code.CODE.words(lanes, blocks)
    if fill is None:
        host_code.CODE.blocks += made[0].size
        by_numpy(draw, made)
    else:
        fill(made, draw)
    return [torch.from_numpy(lane.view(np.int64)) for lane in made]


def code_of_normals(n: int) -> host_code.Filled | None:
    """What makes ``n`` normal numbers of a thread by machine code, if anything does."""
    return host_code.CODE.normals(*normal_shape(n)) if n else None


def normals(fill: host_code.Filled, draw: Draw, n: int) -> Tensor:
    """``n`` normal numbers of each thread, float32 ``[k, n]``, by such code."""
    lanes, blocks = normal_shape(n)
    made = np.empty((lanes, draw.k, blocks), dtype=np.float32)
    fill(made, draw)
    found = [torch.from_numpy(lane) for lane in made]
    if lanes == LANES:
        second = -(-n // 2) - blocks  # pairs behind the first of each block
        found = [found[0], found[1][:, :second], found[2], found[3][:, :second]]
    return found[0] if lanes == 1 else torch.cat(found, 1)[:, :n]


def normal_shape(n: int) -> tuple[int, int]:
    """Lanes and blocks of ``n`` normal numbers: two pairs to a block, of one number or two each."""
    return (n, 1) if n <= 2 else (LANES, -(-n // LANES))


def by_numpy(draw: Draw, made: np.ndarray) -> None:
    """Fill ``[lanes, k, blocks]``, some rows at a time, which stay in the processor's cache.

    numpy's kernels begin sooner than torch's, and multiply 64-bit integers faster.
    """
    k, blocks = made.shape[1:]
    block = 0 if blocks == 1 else np.arange(blocks, dtype=np.uint64)
    rows = max(PART // max(blocks, 1), 1)
    room = np.empty((ROOM, min(rows, k), blocks), dtype=np.uint64)
    given = draw.words()
    for first in range(0, k, rows):
        part = slice(first, first + rows)
        shape = (min(rows, k - first), blocks)

        def spread(values: Any, part: slice = part, shape: Shape = shape) -> Any:
            if isinstance(values, int):
                return values
            return np.broadcast_to(values[part].view(np.uint64)[:, None], shape)

        number, index, rest, low, high = map(spread, given)
        whole = block if isinstance(block, int) else np.broadcast_to(block, shape)
        found = philox((whole, number, index, rest), (low, high), room[:, : shape[0]])
        for lane, words_of_it in zip(made[:, part], found, strict=False):
            np.bitwise_and(words_of_it, MASK, out=lane)
