"""The dtype of a result is the one that a single example gives, not the one that vmap gives.

Torch promotes by category: a 0-d tensor is weak against tensors with dimensions. Under vmap some
rules (``where``, ``clamp``, ``addcmul``, among others) see the physical ``[k]`` instead, others
compute a comparison in the wrong dtype, and some accept what one example refuses (``mm`` of two
dtypes). Operands of one dtype are safe, which ``differs`` finds at the price of a scan. Of others

- ``example.expected`` evaluates the function once per signature on ones: a result of another dtype
  from vmap is a ``NoRule``, a failure makes the caller look at the first row;
- functions that bring their operands to one common dtype (``_PROMOTING``) get operands that are
  already in it, so that their result has one example's dtype and value: ``settle``. On the CPU a
  product with one number in another dtype, and a quotient by it, are float32's, rounded once: of
  tensors of half precision, torch does not round that number first (``in_full``);
- of those that give floats of integers (``_FLOATING``) integers become floats at once: the sum of
  bytes, an int64, is no byte where these are divided by it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.levels import Batched, event_dim, leaves_of, map_tree

_NAMES = """add sub subtract mul multiply div divide true_divide floor_divide remainder fmod pow
 atan2 arctan2 hypot maximum minimum max min fmax fmin eq ne lt le gt ge not_equal less
 less_equal greater greater_equal bitwise_and bitwise_or bitwise_xor bitwise_left_shift
 bitwise_right_shift copysign nextafter where clamp clip addcmul addcdiv logaddexp logaddexp2 xlogy
 logical_and logical_or logical_xor
 gcd lcm rsub __radd__ __rsub__ __rmul__ __rtruediv__ __rpow__ __rfloordiv__ __rmod__ __and__
 __or__ __xor__ __lshift__ __rshift__ __add__ __sub__ __mul__ __truediv__ __floordiv__ __mod__
 __pow__ __lt__ __le__ __eq__ __ne__ __gt__ __ge__ clamp_min clamp_max"""
_FLOATING_NAMES = """div divide true_divide __truediv__ truediv atan2 arctan2 copysign xlogy xlog1py
 zeta ldexp"""
_OPERATORS = "add sub mul truediv floordiv mod pow lshift rshift and_ or_ xor lt le eq ne gt ge"


def _promoting() -> frozenset[Callable[..., Any]]:
    owners = (torch, Tensor, torch.special)
    found = [getattr(owner, name, None) for owner in owners for name in _NAMES.split()]
    found += [getattr(operator, name) for name in _OPERATORS.split()]
    return frozenset(function for function in found if function is not None)


_PROMOTING = _promoting()
_SCALING = frozenset(
    {
        *(torch.mul, torch.multiply, torch.div, torch.divide, torch.true_divide),
        *(Tensor.mul, Tensor.multiply, Tensor.div, Tensor.divide, Tensor.true_divide),
        *(Tensor.__mul__, Tensor.__rmul__, Tensor.__truediv__, operator.mul, operator.truediv),
    }
)
_FLOATING = frozenset(
    getattr(owner, name)
    for owner in (torch, Tensor, torch.special, operator)
    for name in _FLOATING_NAMES.split()
    if hasattr(owner, name)
)
_HALVES = (torch.float16, torch.bfloat16)
_WHERE = frozenset({torch.where, Tensor.where})


def differs(*trees: Any) -> bool:
    """Whether tensor operands have more than one dtype, so that promotion is to be looked into."""
    first = None
    for leaf in leaves_of(*trees):
        if type(leaf) is Batched or isinstance(leaf, Tensor):
            dtype = leaf.data.dtype
            if first is None:
                first = dtype
            elif dtype is not first:
                return True
    return False


def settle(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], torch.dtype | None]:
    """The operands, cast to their common dtype if ``fn`` is known to cast them so.

    And the dtype that the result is to be rounded to, if it is to be.
    """
    if fn not in _PROMOTING and fn not in _FLOATING:
        return args, kwargs, None
    condition = _condition(fn, args, kwargs)
    tensors = [
        leaf
        for leaf in leaves_of(args, kwargs)
        if isinstance(leaf, Tensor | Batched) and leaf is not condition
    ]
    common = common_dtype(tensors)
    if common is None:
        return args, kwargs, None
    if fn in _FLOATING and kwargs.get("rounding_mode") is None and _counts(common):
        common = torch.get_default_dtype()
    elif fn not in _PROMOTING:
        return args, kwargs, None
    rounded = common if common in _HALVES and in_full(fn, args, kwargs, common) else None
    if rounded is not None:
        common = torch.float32

    def cast(leaf: Any) -> Any:
        if leaf is condition:
            return leaf
        if type(leaf) is Batched:
            return leaf if leaf.data.dtype is common else Batched(leaf.data.to(common))
        return leaf.to(common) if isinstance(leaf, Tensor) else leaf

    return map_tree(cast, args), map_tree(cast, kwargs), rounded


def in_full(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], common: torch.dtype
) -> bool:
    """Whether ``fn`` takes its second operand, one number of another dtype, as it is."""
    other = args[1] if len(args) > 1 else kwargs.get("other")
    if fn not in _SCALING or kwargs.get("rounding_mode") is not None:
        return False
    if not isinstance(other, Batched | Tensor) or other.data.dtype is common:
        return False
    shape = other.data.shape[1:] if type(other) is Batched else other.data.shape
    return shape.numel() == 1 and other.data.is_cpu


def _condition(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operand that takes no part in promotion: c in ``where(c, x, y)``, ``x.where(c, y)``."""
    if fn not in _WHERE:
        return None
    if "condition" in kwargs:
        return kwargs["condition"]
    return args[0] if fn is torch.where else args[1] if len(args) > 1 else None


def common_dtype(tensors: list[Tensor | Batched]) -> torch.dtype | None:
    """What one example's operands promote to: those with dimensions first, then the 0-d ones."""
    strong = [t for t in tensors if event_dim(t) > 0]
    weak = [t for t in tensors if event_dim(t) == 0]
    groups = [functools.reduce(torch.promote_types, map(_dtype, g)) for g in (strong, weak) if g]
    if not groups:
        return None
    if len(groups) == 1:
        return groups[0]
    return _joined(*groups)


@functools.lru_cache(maxsize=256)
def _joined(with_dims: torch.dtype, without: torch.dtype) -> torch.dtype:
    """What a tensor with dimensions and a 0-d one promote to."""
    strong = torch.empty(1, dtype=with_dims, device="meta")
    return torch.result_type(strong, torch.empty((), dtype=without, device="meta"))


def _counts(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)


def _dtype(tensor: Tensor | Batched) -> torch.dtype:
    return tensor.data.dtype


def weaken(target: Batched, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands of an in-place operation, 0-d rows in the target's dtype where they would join."""

    def cast(leaf: Any) -> Any:
        weak = type(leaf) is Batched and leaf.data.dim() == 1
        if weak and common_dtype([target, leaf]) is target.data.dtype:
            return Batched(leaf.data.to(target.data.dtype))
        return leaf

    return tuple(map_tree(cast, operand) for operand in operands)
