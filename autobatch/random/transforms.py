"""From random words to numbers of a law: uniform, normal, integers, and what rests on them.

In: a source of words for ``k`` threads, and how many numbers each is to get. Out: ``[k, n]``. Each
number takes a known count of words, so a draw of a thread depends on nothing but its own words.

- A uniform number has as many random bits as its dtype has of precision (8 in bfloat16, 11 in
  float16, 24 in float32, 53 in float64), so it lies in [0, 1) and is never rounded to 1.
- Normal numbers are those of Box and Muller (1958), in float64 from 53-bit uniforms, else in
  float32 from 32-bit ones: of a pair of uniforms, two. None is farther out than 6.7 (8.6). In
  float32, logarithms, cosines, sines and roots are rounded from float64 on the CPU, where machine
  code has its own (``normal_text``): of all 84 million operands there are, both give the same.
- An integer of ``r`` is the upper part of ``r`` times a number of 64 random bits, of 128 bits
  where r is above 2**32. So no integer is likelier than another by more than 2**-32 of itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from autobatch.random.philox import MASK
from autobatch.random.sources import Source

BITS = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24}


def uniform(source: Source, n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Evenly from [0, 1)."""
    if dtype is torch.float64:
        return double(*source.columns(n, 2, device))
    bits = BITS[dtype]
    (words,) = source.columns(n, 1, device)
    return (words >> (32 - bits)).to(torch.float32).mul_(2.0**-bits).to(dtype)


def double(high: Tensor, low: Tensor) -> Tensor:
    """53 bits of two words, as a number in [0, 1)."""
    whole = high >> 5 << 26 | low >> 6
    return whole.to(torch.float64).mul_(2.0**-53)


def within(source: Source, n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Evenly from (0, 1), in float64: neither end is met. 32 bits, 52 for float64."""
    if dtype is torch.float64:
        high, low = source.columns(n, 2, device)
        whole = high >> 6 << 26 | low >> 6
        return (whole.to(torch.float64) + 0.5).mul_(2.0**-52)
    (words,) = source.columns(n, 1, device)
    return (words.to(torch.float64) + 0.5).mul_(2.0**-32)


def normal(source: Source, n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Normal numbers of mean 0 and deviation 1."""
    made = None if dtype is torch.float64 else source.normals(n, device)
    if made is not None:
        return made.to(dtype)
    pairs = -(-n // 2)
    if dtype is torch.float64:
        a, b, c, d = source.columns(pairs, 4, device)
        radius, angle = 1.0 - double(a, b), double(c, d)
    else:
        a, b = source.columns(pairs, 2, device)
        radius = a.to(torch.float32).add_(1.0).mul_(2.0**-32)
        angle = b.to(torch.float32).mul_(2.0**-32)
    radius = rounded(torch.sqrt_, rounded(torch.log_, radius).mul_(-2.0))
    angle.mul_(2.0 * math.pi)
    if n == 1:
        return rounded(torch.cos_, angle).mul_(radius).to(dtype)
    both = [rounded(function, angle).mul_(radius) for function in (torch.cos_, torch.sin_)]
    return torch.cat(both, 1)[:, :n].to(dtype)


def rounded(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A function, in place, of a copy of numbers; on the CPU that of float64, as they have it."""
    exact = torch.float64 if x.device.type == "cpu" else x.dtype
    return function(x.to(exact, copy=True)).to(x.dtype)


def integers(source: Source, n: int, size: int | Tensor, device: torch.device) -> Tensor:
    """Evenly from 0 to ``size`` - 1, modulo 2**64; ``size`` is 1 to 2**64.

    One for each thread, ``[k, 1]``, is less than 2**32.
    """
    if isinstance(size, Tensor):
        high, low = source.columns(n, 2, device)
        return upper(high * size + upper(low * size))
    if size == 2**64:
        high, low = source.columns(n, 2, device)
        return high << 32 | low
    if size <= 2**32:
        high, low = source.columns(n, 2, device)
        if size == 2**32:
            return high
        return upper(high * size + upper(low * size))
    return scaled(source.columns(n, 4, device), size)


def upper(product: Tensor) -> Tensor:
    """The upper 32 of 64 bits."""
    return product >> 32 & MASK


def scaled(words: list[Tensor], size: int) -> Tensor:
    """The upper 64 bits of ``size`` times the number whose 32-bit words these are."""
    factors = (size & MASK, size >> 32)
    sums = [torch.zeros_like(words[0]) for _ in range(len(words) + 2)]
    for place, word in enumerate(reversed(words)):
        carry = torch.zeros_like(word)
        for at, factor in enumerate(factors):
            product = as_product(word, factor)
            total = (product & MASK) + sums[place + at] + carry
            sums[place + at] = total & MASK
            carry = upper(product) + (total >> 32)
        sums[place + 2] = carry
    return sums[-1] << 32 | sums[-2]


def as_product(word: Tensor, factor: int) -> Tensor:
    """The product of two 32-bit numbers, its 64 bits as those of a signed number."""
    return word * factor
