"""Random words on the CPU: by numpy, and where there are many by machine code of their own.

Both give the same. numpy begins at once; machine code is made when it pays, once in a process, in
some 80 ms, if ``llvmlite`` is there (the extra ``compiled``). Two words for each of 32,768 threads
take 1.2 ms by numpy and 0.3 ms by machine code, where ``torch.randn`` of as many takes 0.15 ms.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.llvm import NotAssembled, assembled, is_installed
from autobatch.random.counters import LANES, Draw
from autobatch.random.philox import MASK, ROOM, philox
from autobatch.random.philox_text import BLOCK, philox_text

PART = 16384
"""Blocks that are computed together by numpy."""
MANY = 2**22
"""Blocks that numpy computes first: in some 150 ms."""
Shape = tuple[int, int]


def on_the_host(draw: Draw, blocks: int, words: int) -> list[Tensor]:
    """Lanes ``[k, blocks]``, all four or, of one block, as many as there are words."""
    lanes = words if blocks == 1 else LANES
    made = np.empty((lanes, draw.k, blocks), dtype=np.uint64)
    code = CODE.of(made)
    if code is None:
        by_numpy(draw, made)
    else:
        by_code(code, draw, made)
    return [torch.from_numpy(lane.view(np.int64)) for lane in made]


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


def by_code(code: Callable[..., None], draw: Draw, made: np.ndarray) -> None:
    k, blocks = made.shape[1:]
    each = (draw.number, draw.threads, draw.key)
    read = [np.ascontiguousarray(np.broadcast_to(one, k), dtype=np.int64) for one in each]
    code(made.ctypes.data, k, blocks, *(array.ctypes.data for array in read))


class Code:
    """The machine code of a process, once enough has been drawn; none where it cannot be made.

    There is a function for each number of lanes of one block, and one for several blocks of a
    thread. The first ``most`` blocks are numpy's.
    """

    def __init__(self, most: float = MANY) -> None:
        self.most = most
        self.blocks = 0
        self.functions: dict[str, tuple[Any, Callable[..., None] | None]] = {}

    def of(self, made: np.ndarray) -> Callable[..., None] | None:
        """What fills ``[lanes, k, blocks]``."""
        if self.blocks < self.most:
            self.blocks += made[0].size
            return None
        name = f"words_of_one{len(made)}" if made.shape[2] == 1 else "words"
        if name not in self.functions:
            self.functions[name] = function(name, len(made))
        return self.functions[name][1]


def function(name: str, lanes: int) -> tuple[Any, Callable[..., None] | None]:
    """A function, with what owns it."""
    try:
        engine = assembled("\n".join(text(name, lanes))) if is_installed() else None
    except NotAssembled:
        engine = None
    if engine is None:
        return None, None
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 6)
    return engine, kind(engine.get_function_address(name))


CODE = Code()


def text(name: str, lanes: int) -> Iterator[str]:
    """A loop that LLVM makes vectors of: over threads, or over the blocks of one."""
    yield from philox_text("alwaysinline")
    yield from head(name)
    yield from several(lanes) if name == "words" else single(lanes)


def head(name: str) -> Iterator[str]:
    given = ", ".join(f"ptr noalias %{name}" for name in ("numbers", "threads", "keys"))
    yield f"define void @{name}(ptr noalias %made, i64 %k, i64 %blocks, {given}) {{"
    yield "begin:"
    yield "  %size = mul i64 %k, %blocks"
    yield "  %none = icmp eq i64 %size, 0"
    yield "  br i1 %none, label %end, label %thread"


def read(row: str) -> Iterator[str]:
    for each in ("number", "thread", "key"):
        yield f"  %{each}at = getelementptr i64, ptr %{each}s, i64 {row}"
        yield f"  %{each}of = load i64, ptr %{each}at"


def stored(lanes: int, block: str, at: str) -> Iterator[str]:
    """The words of a block, at a place of each lane."""
    given = f"i64 {block}, i64 %numberof, i64 %threadof, i64 %keyof"
    yield f"  %found = call {BLOCK} @philox({given})"
    for lane in range(lanes):
        yield f"  %short{lane} = extractvalue {BLOCK} %found, {lane}"
        yield f"  %word{lane} = zext i32 %short{lane} to i64"
        yield f"  %before{lane} = mul i64 %size, {lane}"
        yield f"  %place{lane} = add i64 %before{lane}, {at}"
        yield f"  %to{lane} = getelementptr i64, ptr %made, i64 %place{lane}"
        yield f"  store i64 %word{lane}, ptr %to{lane}"


def single(lanes: int) -> Iterator[str]:
    yield "thread:"
    yield "  %row = phi i64 [0, %begin], [%next, %thread]"
    yield from read("%row")
    yield from stored(lanes, "0", "%row")
    yield from to_the_next()


def several(lanes: int) -> Iterator[str]:
    yield "thread:"
    yield "  %row = phi i64 [0, %begin], [%next, %done]"
    yield from read("%row")
    yield "  %first = mul i64 %row, %blocks"
    yield "  br label %block"
    yield "block:"
    yield "  %one = phi i64 [0, %thread], [%after, %block]"
    yield "  %here = add i64 %first, %one"
    yield from stored(lanes, "%one", "%here")
    yield "  %after = add i64 %one, 1"
    yield "  %again = icmp ult i64 %after, %blocks"
    yield "  br i1 %again, label %block, label %done"
    yield "done:"
    yield from to_the_next()


def to_the_next() -> Iterator[str]:
    """To the next thread, if there is one."""
    yield "  %next = add i64 %row, 1"
    yield "  %more = icmp ult i64 %next, %k"
    yield "  br i1 %more, label %thread, label %end"
    yield "end:"
    yield "  ret void"
    yield "}"
