"""Pointwise functions without a vmap rule: one kernel on aligned operands.

A pointwise function broadcasts one example's operands on the right; with ones put between the
threads' dimension and a shorter event it broadcasts all threads' at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.converters.registry import Info, aligned, event_dim, register
from autobatch.batching.levels import Batched, NoRule, leaves_of, map_tree

_NAMES = ("isclose", "fill", "heaviside")
_SPECIAL = (
    *("airy_ai", "log_ndtr", "chebyshev_polynomial_t", "chebyshev_polynomial_u"),
    *("chebyshev_polynomial_v", "chebyshev_polynomial_w", "hermite_polynomial_h"),
    *("hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"),
    *("shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u"),
    *("shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w"),
)


def both(*names: str) -> list[Any]:
    """The torch functions of these names, and the tensor methods."""
    found = [getattr(owner, name, None) for name in names for owner in (torch, Tensor)]
    return [function for function in found if function is not None]


def one_dtype(*trees: Any) -> None:
    """Promotion of 0-d rows is not these kernels' to do."""
    tensors = [leaf for leaf in leaves_of(trees) if isinstance(leaf, Batched | Tensor)]
    if len({tensor.data.dtype for tensor in tensors}) > 1:
        raise NoRule("a pointwise function of operands of several dtypes")


def aligned_all(*trees: Any) -> Any:
    """The operands, lined up so that physical tensors broadcast as one example's do."""
    tensors = [leaf for leaf in leaves_of(trees) if isinstance(leaf, Batched | Tensor)]
    dims = max(event_dim(tensor) for tensor in tensors)
    return tuple(map_tree(lambda leaf: aligned(leaf, dims), tree) for tree in trees)


def _register_pointwise(function: Callable[..., Any]) -> None:
    @register(function)
    def pointwise(info: Info, *args: Any, **kwargs: Any) -> Any:
        one_dtype(args, kwargs)
        physical, keywords = aligned_all(args, kwargs)
        return Batched(function(*physical, **keywords))


for _function in (*both(*_NAMES), *(getattr(torch.special, name) for name in _SPECIAL)):
    _register_pointwise(_function)


@register(*both("masked_fill"))
def masked_fill(info: Info, input: Any, mask: Any, value: Any) -> Any:
    """A value of the thread's own has no rule; it is a ``where`` in the input's dtype."""
    if not isinstance(value, Batched):
        return NotImplemented
    if event_dim(value) != 0:
        return NotImplemented
    own, bits, new = aligned_all(input, mask, value)
    if new.dtype != own.dtype and torch.promote_types(new.dtype, own.dtype) != own.dtype:
        return NotImplemented
    return Batched(torch.where(bits, new.to(own.dtype), own))


@register(*both("clamp", "clip"))
def clamp(info: Info, input: Any, min: Any = None, max: Any = None) -> Any:
    """Between two tensors: torch has no derivative where the input is smaller than they are."""
    operands = (input, min, max)
    if not all(isinstance(operand, Batched | Tensor) for operand in operands):
        return NotImplemented
    if len({operand.data.dtype for operand in operands}) > 1:
        return NotImplemented
    value, *bounds = aligned_all(*operands)
    shapes = (value.shape, *(bound.shape for bound in bounds))
    shape = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    return Batched(torch.clamp(value.expand(shape), *bounds))


@register(*both("isin"))
def isin(
    info: Info,
    elements: Any,
    test_elements: Any,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Any:
    """Each element against each of the thread's test elements."""
    if not isinstance(elements, Batched | Tensor) or not isinstance(
        test_elements, Batched | Tensor
    ):
        return NotImplemented
    if elements.data.dtype != test_elements.data.dtype:
        return NotImplemented
    tests = test_elements.data
    tests = tests.flatten(1) if type(test_elements) is Batched and tests.dim() > 1 else tests
    if type(test_elements) is Batched:
        tests = tests.reshape(tests.shape[0], *(1,) * event_dim(elements), -1)
    else:
        tests = tests.flatten()
    found = (elements.data.unsqueeze(-1) == tests).any(-1)
    return Batched(~found if invert else found)
