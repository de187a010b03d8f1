"""Pointwise operations on rows of one dtype: the kernel itself, without a vmap level.

Most operations of a program are pointwise, on operands of the same dtype and number of dimensions.
For these the physical operation is one example's, one dimension further on, and calling it costs
a quarter of what a level does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.levels import Batched

_BINARY = """add sub subtract mul multiply div divide true_divide floor_divide remainder fmod pow
 atan2 hypot maximum minimum fmax fmin eq ne lt le gt ge logical_and logical_or logical_xor
 bitwise_and bitwise_or bitwise_xor clamp clip clamp_min clamp_max where lerp addcmul addcdiv
 __radd__ __rsub__ __rmul__ __rtruediv__ __rpow__ __rfloordiv__ __rmod__ __add__ __sub__ __mul__
 __truediv__ __floordiv__ __mod__ __pow__ __lt__ __le__ __eq__ __ne__ __gt__ __ge__ __and__
 __or__"""
_UNARY = """abs neg negative sign exp exp2 expm1 log log1p log2 log10 sqrt rsqrt reciprocal square
 sin cos tan asin acos atan sinh cosh tanh sigmoid relu erf floor ceil trunc round frac isnan isinf
 isfinite logical_not bitwise_not __neg__ __abs__ __invert__ __pos__"""
_OPERATORS = (
    """add sub mul truediv floordiv mod pow lt le eq ne gt ge neg pos invert and_ or_ xor abs"""
)


def _pointwise() -> frozenset[Callable[..., Any]]:
    names = (*_BINARY.split(), *_UNARY.split())
    found = [getattr(owner, name, None) for owner in (torch, Tensor) for name in names]
    found += [getattr(operator, name) for name in _OPERATORS.split()]
    return frozenset(function for function in found if function is not None)


POINTWISE = _pointwise()
_WHERE = torch.where
_BETWEEN = frozenset({torch.clamp, torch.clip, Tensor.clamp, Tensor.clip})
"""With two bounds that are tensors these have a converter (``converters.pointwise``)."""
_PLAIN = (int, float, bool, type(None))


def direct(fn: Callable[..., Any], args: tuple[Any, ...]) -> Batched | None:
    """``fn(*args)`` for all threads; None if the operands are not of the simple kind."""
    if fn not in POINTWISE or (fn is _WHERE and len(args) != 3):
        return None
    if fn in _BETWEEN and all(isinstance(bound, Batched | Tensor) for bound in args[:3]):
        return None
    dims = 0
    for arg in args:
        if type(arg) is Batched:
            dims = max(dims, arg.data.dim())
    if dims == 0 or not _one_dtype(args[1:] if fn is _WHERE else args, dims):
        return None
    if fn is _WHERE and not _broadcasts(args[0], dims):
        return None
    return Batched(fn(*(_physical(arg, dims) if type(arg) is Batched else arg for arg in args)))


def _one_dtype(args: tuple[Any, ...], dims: int) -> bool:
    """Whether all operands are numbers, or tensors of one dtype that broadcast."""
    dtype = None
    for arg in args:
        if isinstance(arg, Batched | Tensor):
            data = arg.data
            dtype = dtype or data.dtype
            if dtype is not data.dtype or not _broadcasts(arg, dims):
                return False
        elif type(arg) not in _PLAIN:
            return False
    return True


def _broadcasts(operand: Any, dims: int) -> bool:
    """Whether no dimension of a tensor that threads share would meet theirs."""
    return not isinstance(operand, Tensor) or operand.dim() < dims


def _physical(operand: Batched, dims: int) -> Tensor:
    """An operand with ones before its event dimensions, ``dims`` in all."""
    data = operand.data
    if data.dim() == dims:
        return data
    return data.reshape(data.shape[0], *(1,) * (dims - data.dim()), *data.shape[1:])
