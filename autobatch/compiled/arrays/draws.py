"""torch's random operations on small tensors, from a thread's own words (``random.laws``).

As there, an operation's numbers take a known count of words, and lie in the blocks of a draw lane
by lane. What torch refuses (a probability beyond 1, a negative deviation) gives the thread up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from autobatch.compiled import numbers, tensors
from autobatch.compiled.arrays.mapping import mapped
from autobatch.compiled.arrays.memory import Operand, Strided, loop, room, store
from autobatch.compiled.drawing import Draw, double, scaled
from autobatch.compiled.machine import widened
from autobatch.compiled.types import (
    INT,
    MACHINE,
    Scalar,
    Static,
    Structure,
    Value,
    number,
    parts_of,
    refuse,
)
from autobatch.compiled.writer import Writer
from autobatch.llvm import literal
from autobatch.random.counters import LANES
from autobatch.random.transforms import BITS

Convert = Callable[[list[str]], list[str]]
"""From the words of a group to its numbers."""


def filled(
    w: Writer,
    shape: Sequence[int],
    dtype: torch.dtype,
    words: int,
    convert: Convert,
    each: int = 1,
) -> Operand:
    """Numbers of one draw; a group of ``words`` words gives ``each`` of them.

    The groups' first numbers come first, then the second ones; the last may be left over.
    """
    draw, n = Draw(w), prod(shape)
    groups = -(-n // each)
    blocks = -(-groups * words // LANES)
    if n == 1:
        leaf = convert(draw.block("0")[:words])[0]
        if not shape:
            return Value(Scalar(dtype), (leaf,))
        made = room(w, dtype, tuple(shape))
        store(w, made, "0", leaf)
        return made
    made = room(w, dtype, tuple(shape))

    def body(block: str) -> None:
        lanes = draw.block(block)
        for first in range(0, LANES, words):
            begin = first // words * blocks
            if begin >= groups:
                break
            at = w.made(f"add i64 {block}, {begin}")
            for place, leaf in enumerate(convert(lanes[first : first + words])):
                put(w, made, w.made(f"add i64 {at}, {place * groups}"), leaf, at, groups)

    loop(w, blocks, body)
    return made


def put(w: Writer, made: Strided, to: str, leaf: str, group: str, groups: int) -> None:
    """Write a number of a group to its place, if it has one."""
    inside = w.made(f"icmp slt i64 {group}, {groups}")
    inside = w.made(f"and i1 {inside}, {w.made(f'icmp slt i64 {to}, {prod(made.shape)}')}")
    writes, after = w.fresh(), w.fresh()
    w.emit(f"br i1 {inside}, label %{writes}, label %{after}")
    w.begin(writes)
    store(w, made, to, leaf)
    w.emit(f"br label %{after}")
    w.begin(after)


def uniforms(w: Writer, shape: Sequence[int], dtype: torch.dtype) -> Operand:
    """Evenly from [0, 1)."""
    if dtype is torch.float64:
        return filled(w, shape, dtype, 2, lambda words: [double(w, *words)])
    bits = BITS[dtype] if dtype is torch.float32 else refuse(f"a draw of {dtype}")

    def convert(words: list[str]) -> list[str]:
        whole = w.made(f"uitofp i64 {w.made(f'lshr i64 {words[0]}, {32 - bits}')} to float")
        return [w.made(f"fmul float {whole}, {literal(2.0**-bits, 'float')}")]

    return filled(w, shape, dtype, 1, convert)


def normals(w: Writer, shape: Sequence[int], dtype: torch.dtype) -> Operand:
    """Of mean 0 and deviation 1, by Box and Muller's pairs."""
    if dtype is not torch.float32:
        refuse(f"a normal draw of {dtype}: its last bits are those of a library's logarithm")
    names = ("cos", "sin") if prod(shape) > 1 else ("cos",)

    def convert(words: list[str]) -> list[str]:
        a, b, *_ = words
        return [w.made(f"call float @normal_{name}(i64 {a}, i64 {b})") for name in names]

    return filled(w, shape, dtype, 2, convert, 2)


def chances(w: Writer, shape: Sequence[int]) -> Operand:
    """Numbers of 32 bits in (0, 1), to compare with probabilities."""

    def convert(words: list[str]) -> list[str]:
        found = w.made(f"uitofp i64 {words[0]} to double")
        found = w.made(f"fadd double {found}, {literal(0.5, 'double')}")
        return [w.made(f"fmul double {found}, {literal(2.0**-32, 'double')}")]

    return filled(w, shape, torch.float64, 1, convert)


def integers(w: Writer, shape: Sequence[int], low: str, size: str) -> Operand:
    """Evenly from ``size`` ints from ``low`` on; there are 1 to 2**32."""

    def convert(words: list[str]) -> list[str]:
        return [w.made(f"add i64 {scaled(w, words[0], words[1], size)}, {low}")]

    return filled(w, shape, torch.int64, 2, convert)


# Operations, by their operands; ``like`` is what torch says of the result.


def rand(w: Writer, like: torch.Tensor, *_: Any, **__: Any) -> Operand:
    return uniforms(w, like.shape, like.dtype)


def randn(w: Writer, like: torch.Tensor, *_: Any, **__: Any) -> Operand:
    return normals(w, like.shape, like.dtype)


def normal(
    w: Writer, like: torch.Tensor, mean: Any = 0.0, std: Any = 1.0, *_: Any, **__: Any
) -> Operand:
    operands = [number(x) if isinstance(x, int | float) else x for x in (mean, std)]
    if any(dtype_of(x) not in (None, like.dtype) for x in operands):
        refuse("a mean and a deviation of two dtypes")
    made = normals(w, like.shape, like.dtype)

    def at(values: Sequence[Value]) -> Value:
        one, middle, far = values
        leaf = tensors.cast(w, far, like.dtype)
        machine = MACHINE[like.dtype]
        w.give_up_if(w.made(f"fcmp ult {machine} {leaf}, {literal(0.0, machine)}"))
        return tensors.binary(w, "add", tensors.binary(w, "mul", one, far), middle)

    return mapped(w, tuple(like.shape), like.dtype, [made, *operands], at)


def bernoulli(w: Writer, like: torch.Tensor, *args: Any, **kwargs: Any) -> Operand:
    """``bernoulli(p)``, and ``bernoulli(x, p)``, which takes no more than the shape of ``x``."""
    p = args[-1]
    p = number(float(p)) if isinstance(p, int | float) else p

    def at(values: Sequence[Value]) -> Value:
        chance, given = values
        most = tensors.cast(w, given, torch.float64)
        least = w.made(f"fcmp oge double {most}, {literal(0.0, 'double')}")
        fits = w.made(f"fcmp ole double {most}, {literal(1.0, 'double')}")
        w.give_up_if(w.made(f"xor i1 {w.made(f'and i1 {least}, {fits}')}, true"))
        bit = w.made(f"fcmp olt double {chance.leaf}, {most}")
        leaf = tensors.cast(w, Value(Scalar(torch.bool), (bit,)), like.dtype)
        return Value(Scalar(like.dtype), (leaf,))

    return mapped(w, tuple(like.shape), like.dtype, [chances(w, like.shape), p], at)


def randint(w: Writer, like: torch.Tensor, *args: Any, **kwargs: Any) -> Operand:
    bounds = [arg for arg in args if isinstance(arg, int)]
    low, high = bounds if len(bounds) == 2 else (0, *bounds)
    if not 1 <= high - low <= 2**32 or like.dtype not in MACHINE:
        refuse("randint has a compiled form for up to 2**32 ints")
    made = integers(w, like.shape, str(low), str(high - low))
    if like.dtype is torch.int64:
        return made

    def at(values: Sequence[Value]) -> Value:
        return Value(Scalar(like.dtype), (tensors.cast(w, values[0], like.dtype),))

    return mapped(w, tuple(like.shape), like.dtype, [made], at)


def dtype_of(x: Operand) -> torch.dtype | None:
    if isinstance(x, Strided):
        return x.dtype
    return x.type.dtype if isinstance(x.type, Scalar) else None


RULES: dict[str, Callable[..., Operand]] = {
    "aten.rand.default": rand,
    "aten.randn.default": randn,
    "aten.rand_like.default": rand,
    "aten.randn_like.default": randn,
    "aten.normal.Tensor_float": normal,
    "aten.normal.float_Tensor": normal,
    "aten.normal.Tensor_Tensor": normal,
    "aten.normal.float_float": normal,
    "aten.bernoulli.default": bernoulli,
    "aten.bernoulli.p": bernoulli,
    "aten.randint.default": randint,
    "aten.randint.low": randint,
    "aten.randint_like.default": randint,
    "aten.randint_like.low_dtype": randint,
}


# Bounds of each thread's own


def bounded(w: Writer, args: Sequence[Value], named: Mapping[str, Value]) -> Operand | None:
    """``torch.randint(low, high, size)`` with bounds that are not known; None for another call."""
    names = ("low", "high", "size") if len(args) == 3 else ("high", "size")
    if len(args) != len(names) or named:
        return None
    given = {"low": number(0), **dict(zip(names, args, strict=True))}
    bounds, size = [given["low"], given["high"]], given["size"]
    if not all(is_int(x) for x in bounds) or all(x.known is not None for x in bounds):
        return None
    if not isinstance(size.type, Structure) or size.type.kind is dict:
        return None
    shape = [part.known for part in parts_of(size)]
    if not all(type(n) is int and n > 0 for n in shape):
        return None
    low, high = (as_int(w, x) for x in bounds)
    width = w.checked("ssub", high, low)
    less = w.made(f"icmp slt i64 {width}, 1")
    w.give_up_if(w.either(less, w.made(f"icmp sge i64 {width}, {2**32}")))
    return integers(w, shape, low, width)  # type: ignore[arg-type]


def is_int(x: Value) -> bool:
    if isinstance(x.type, Scalar):
        return not x.type.dtype.is_floating_point and x.type.dtype is not torch.bool
    return x.type == INT and not isinstance(x.type, Static)


def as_int(w: Writer, x: Value) -> str:
    if not isinstance(x.type, Scalar):
        return numbers.as_int(w, x)
    return widened(w, x.leaf, MACHINE[x.type.dtype], "i64", x.type.dtype is not torch.uint8)
