"""Products of matrices and vectors, in loops whose inner one goes along memory.

Sums may be taken in another order than torch's, and multiplications be fused with additions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from autobatch.compiled.arrays.memory import (
    Operand,
    Strided,
    advanced,
    element,
    loop,
    nest,
    room,
    store,
)
from autobatch.compiled.arrays.reductions import added, multiplied, sum_of
from autobatch.compiled.types import MACHINE, Scalar, Value, refuse
from autobatch.compiled.writer import Writer
from autobatch.llvm import literal

MOST_PRODUCTS = 2**14
"""Multiplications of one product: larger ones are faster for many threads at once."""


PRODUCTS_A_NANOSECOND = 8
"""For one thread; for many at once there are about ten times as many."""


def matrix(x: Operand, dims: int) -> Strided:
    if not isinstance(x, Strided) or len(x.shape) != dims:
        return refuse("a product of such tensors has no compiled form")
    return x


def computed(w: Writer, x: Strided, y: Strided, count: int) -> torch.dtype:
    if x.dtype is not y.dtype or x.dtype is torch.bool:
        refuse(f"a product of tensors of {x.dtype} and {y.dtype} has no compiled form")
    if count >= MOST_PRODUCTS:
        refuse(f"a product takes {count} multiplications, which is faster for many at once")
    w.cost += count // PRODUCTS_A_NANOSECOND
    return x.dtype


def dot(w: Writer, shape: Any, dtype: torch.dtype, x: Operand, y: Operand) -> Operand:
    a, b = matrix(x, 1), matrix(y, 1)
    computed(w, a, b, a.shape[0])
    return dotted(w, a, b, "0", "0", a.shape[0], a.strides[0], b.strides[0])


def dotted(
    w: Writer, a: Strided, b: Strided, i: str, j: str, size: int, step: int, other: int
) -> Value:
    """The sum over ``size`` products of elements from the places ``i`` and ``j`` on."""
    dtype, machine = a.dtype, MACHINE[a.dtype]
    so_far = w.slot(machine)
    w.emit(f"store {machine} {literal(0, machine)}, ptr {so_far}")

    def body(at: str) -> None:
        one = element(w, a, advanced(w, i, at, step))
        two = element(w, b, advanced(w, j, at, other))
        before = Value(Scalar(dtype), (w.made(f"load {machine}, ptr {so_far}"),))
        w.emit(f"store {machine} {added(w, before, multiplied(w, one, two)).leaf}, ptr {so_far}")

    loop(w, size, body)
    return Value(Scalar(dtype), (w.made(f"load {machine}, ptr {so_far}"),))


def product(w: Writer, made: Strided, a: Strided, b: Strided, at: tuple[str, str, str]) -> None:
    """``made = a @ b`` of ``[m, k]`` and ``[k, n]`` that begin at places of their tensors."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    (row, along), (down, across) = a.strides[-2:], b.strides[-2:]
    mine = made.strides[-2:]
    if across == 1 and n > 1:
        _by_rows(w, made, a, b, at)
    elif row == 1 and m > 1:  # the same of (b.T @ a.T).T
        flipped = [turned(x) for x in (made, b, a)]
        _by_rows(w, flipped[0], flipped[1], flipped[2], (at[0], at[2], at[1]))
    else:

        def body(places: list[str]) -> None:
            there, left, right = (sum_of(w, *each) for each in zip(at, places, strict=True))
            store(w, made, there, dotted(w, a, b, left, right, k, along, down).leaf)

        nest(w, (m, n), [mine, (row, 0), (0, across)], body)


def turned(x: Strided) -> Strided:
    """The transpose of a matrix, or of each of several."""
    *rest, m, n = x.shape
    *steps, down, across = x.strides
    return Strided(x.dtype, (*rest, n, m), x.leaf, (*steps, across, down))


def _by_rows(w: Writer, made: Strided, a: Strided, b: Strided, at: tuple[str, str, str]) -> None:
    """Rows of the result as sums of rows of ``b``, whose elements lie side by side."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    zero = Value(Scalar(a.dtype), (literal(0, MACHINE[a.dtype]),))

    def row(i: str) -> None:
        mine = advanced(w, at[0], i, made.strides[-2])
        loop(w, n, lambda j: store(w, made, advanced(w, mine, j, made.strides[-1]), zero.leaf))
        theirs = advanced(w, at[1], i, a.strides[-2])

        def sum_over(kk: str) -> None:
            factor = element(w, a, advanced(w, theirs, kk, a.strides[-1]))
            line = advanced(w, at[2], kk, b.strides[-2])

            def body(j: str) -> None:
                there = advanced(w, mine, j, made.strides[-1])
                term = multiplied(w, factor, element(w, b, advanced(w, line, j, b.strides[-1])))
                store(w, made, there, added(w, element(w, made, there), term).leaf)

            loop(w, n, body)

        loop(w, k, sum_over)

    loop(w, m, row)


def of_matrices(w: Writer, shape: Any, dtype: torch.dtype, x: Operand, y: Operand) -> Operand:
    a, b = matrix(x, 2), matrix(y, 2)
    made = room(w, computed(w, a, b, a.shape[0] * a.shape[1] * b.shape[1]), shape)
    product(w, made, a, b, ("0", "0", "0"))
    return made


def of_vector(w: Writer, shape: Any, dtype: torch.dtype, x: Operand, y: Operand) -> Operand:
    """``mv``: a matrix and a vector, as one column."""
    a, v = matrix(x, 2), matrix(y, 1)
    b = Strided(v.dtype, (v.shape[0], 1), v.leaf, (v.strides[0], 1))
    made = room(w, computed(w, a, b, a.shape[0] * a.shape[1]), shape)
    column = Strided(made.dtype, (made.shape[0], 1), made.leaf, (1, 1))
    product(w, column, a, b, ("0", "0", "0"))
    return made


def of_several(w: Writer, shape: Any, dtype: torch.dtype, x: Operand, y: Operand) -> Operand:
    """``bmm``."""
    a, b = matrix(x, 3), matrix(y, 3)
    count, m, k = a.shape
    made = room(w, computed(w, a, b, count * m * k * b.shape[2]), shape)

    def body(i: str) -> None:
        at = [advanced(w, "0", i, each.strides[0]) for each in (made, a, b)]
        product(w, made, a, b, (at[0], at[1], at[2]))

    loop(w, count, body)
    return made


RULES: dict[str, Callable[..., Operand]] = {
    "aten.dot.default": dot,
    "aten.mv.default": of_vector,
    "aten.mm.default": of_matrices,
    "aten.bmm.default": of_several,
}
