"""Machine code that fills arrays with the random words of threads, or with their normal numbers.

It is made when it pays, once in a process, in some 80 ms a function, if ``llvmlite`` is there (the
extra ``compiled``). Before, numpy makes the words, which begins at once, and torch the numbers;
both give the same. For 32,768 threads, where ``torch.randn`` of as many takes 0.11 ms: two words
each take 1.2 ms by numpy and 0.3 ms by machine code, a normal number of each another 0.8 ms by
torch, and 0.25 ms in all by machine code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from autobatch.llvm import NotAssembled, assembled, is_installed
from autobatch.random.counters import LANES, Draw
from autobatch.random.normal_text import normal_text
from autobatch.random.philox_text import BLOCK, philox_text

MANY = 2**22
"""Blocks that numpy computes first: in some 150 ms."""
Filled = Callable[[np.ndarray, Draw], None]


class Code:
    """The machine code of a process, once enough has been drawn; none where it cannot be made.

    There is a function for each number of lanes of one block, and one for several blocks of a
    thread. The first ``most`` blocks are numpy's, which counts them.
    """

    def __init__(self, most: float = MANY) -> None:
        self.most = most
        self.blocks = 0
        self.functions: dict[str, tuple[Any, Callable[..., None] | None]] = {}

    def words(self, lanes: int, blocks: int) -> Filled | None:
        """What fills uint64 ``[lanes, k, blocks]`` with a draw's words."""
        return self.of("words", lanes, blocks)

    def normals(self, lanes: int, blocks: int) -> Filled | None:
        """What fills float32 ``[lanes, k, blocks]`` with the numbers of a draw.

        Each pair of words makes two: lanes are the cosines of a block's pairs, then the sines; of
        one block's first pair alone 1 or 2.
        """
        return self.of("normals", lanes, blocks)

    def of(self, what: str, lanes: int, blocks: int) -> Filled | None:
        if self.blocks < self.most:
            return None
        one = blocks == 1
        name = f"{what}_of_one{lanes}" if one else what
        if name not in self.functions:  # two host threads may both make one: the first is kept
            self.functions.setdefault(name, function(name, text(name, what, lanes, one)))
        code = self.functions[name][1]
        if code is None:
            return None

        def fill(made: np.ndarray, draw: Draw) -> None:
            k, blocks = made.shape[1:]
            each = (draw.number, draw.threads, draw.key)
            read = [np.ascontiguousarray(np.broadcast_to(one, k), dtype=np.int64) for one in each]
            code(made.ctypes.data, k, blocks, *(array.ctypes.data for array in read))

        return fill


def function(name: str, lines: Iterator[str]) -> tuple[Any, Callable[..., None] | None]:
    """A function, with what owns it."""
    try:
        engine = assembled("\n".join(lines)) if is_installed() else None
    except NotAssembled:
        engine = None
    if engine is None:
        return None, None
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 6)
    return engine, kind(engine.get_function_address(name))


def text(name: str, what: str, lanes: int, one: bool) -> Iterator[str]:
    """A loop that LLVM makes vectors of: over threads, or over the blocks of one."""
    yield from philox_text()
    if what == "normals":
        yield from normal_text()
    yield from head(name)
    yield from (single if one else several)(what, lanes)


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


def stored(what: str, lanes: int, block: str, at: str) -> Iterator[str]:
    """The words or numbers of a block, at a place of each lane."""
    given = f"i64 {block}, i64 %numberof, i64 %threadof, i64 %keyof"
    yield f"  %found = call {BLOCK} @philox({given})"
    for lane in range(LANES):
        yield f"  %short{lane} = extractvalue {BLOCK} %found, {lane}"
        yield f"  %word{lane} = zext i32 %short{lane} to i64"
    kind, name = "i64", "word"
    if what == "normals":
        kind, name = "float", "normal"
        yield from numbers(lanes)
    for lane in range(lanes):
        yield f"  %before{lane} = mul i64 %size, {lane}"
        yield f"  %place{lane} = add i64 %before{lane}, {at}"
        yield f"  %to{lane} = getelementptr {kind}, ptr %made, i64 %place{lane}"
        yield f"  store {kind} %{name}{lane}, ptr %to{lane}"


def numbers(lanes: int) -> Iterator[str]:
    """The normal numbers of a block, or of its first pair."""
    pairs = LANES // 2 if lanes == LANES else 1
    for lane in range(lanes):
        turn, pair = divmod(lane, pairs)
        given = f"i64 %word{2 * pair}, i64 %word{2 * pair + 1}"
        yield f"  %normal{lane} = call float @normal_{('cos', 'sin')[turn]}({given})"


def single(what: str, lanes: int) -> Iterator[str]:
    yield "thread:"
    yield "  %row = phi i64 [0, %begin], [%next, %thread]"
    yield from read("%row")
    yield from stored(what, lanes, "0", "%row")
    yield from to_the_next()


def several(what: str, lanes: int) -> Iterator[str]:
    yield "thread:"
    yield "  %row = phi i64 [0, %begin], [%next, %done]"
    yield from read("%row")
    yield "  %first = mul i64 %row, %blocks"
    yield "  br label %block"
    yield "block:"
    yield "  %one = phi i64 [0, %thread], [%after, %block]"
    yield "  %here = add i64 %first, %one"
    yield from stored(what, lanes, "%one", "%here")
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


CODE = Code()
