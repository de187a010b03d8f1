"""Where vmap would answer wrongly, or accept what one example refuses: thread by thread instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from autobatch.batching.converters.dense import refuse_no_bools
from autobatch.batching.converters.pointwise import both
from autobatch.batching.converters.registry import Info, event_dim, register, rows
from autobatch.batching.converters.within import looked_up
from autobatch.batching.levels import Batched, NoRule


@register(*both("tril", "triu"))
def triangle(info: Info, input: Any, *args: Any, **kwargs: Any) -> Any:
    """A row vector under vmap is a matrix to these kernels, which one example's is not."""
    if event_dim(input) < 2:
        raise NoRule("a matrix is needed")
    return NotImplemented


@register(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
def conv_transpose(
    info: Info, input: Any, weight: Any, bias: Any = None, *args: Any, **kw: Any
) -> Any:
    """vmap adds a bias of any shape."""
    if bias is not None and event_dim(bias) != 1:
        raise NoRule("a bias that is not a vector")
    return NotImplemented


@register(*both("trace"))
def trace(info: Info, input: Any) -> Any:
    """vmap makes a sum of it, which there is of bools, too."""
    if rows(input, info.k).dtype == torch.bool:
        raise NoRule("a matrix of bools")
    return NotImplemented


@register(*both("roll"))
def roll(info: Info, input: Any, *args: Any, **kwargs: Any) -> Any:
    """vmap rolls numbers from thread to thread."""
    if event_dim(input) == 0:
        raise NoRule("a single number")
    return NotImplemented


@register(*both("dot", "vdot", "inner"))
def product(info: Info, input: Any, other: Any) -> Any:
    refuse_no_bools(input, other)
    return NotImplemented


@register(*both("index_fill"))
def index_fill(info: Info, input: Any, dim: int, index: Any, value: Any) -> Any:
    """vmap's rule fills every thread with the first one's value, and reads it as a number.

    It lays threads end to end, so a place beyond one is in the next.
    """
    if isinstance(value, Batched):
        raise NoRule("a value of the thread's own")
    if isinstance(value, Tensor) and value.requires_grad:
        raise NoRule("a value that is differentiated")
    if (
        isinstance(index, Batched)
        and type(dim) is int
        and -event_dim(input) <= dim < event_dim(input)
    ):
        size = rows(input, info.k).shape[1:][dim]
        looked_up(torch.where(index.data < 0, index.data + size, index.data), size)
    return NotImplemented


@register(*both("select_scatter"))
def select_scatter(info: Info, input: Any, src: Any, dim: Any, index: Any) -> Any:
    """vmap broadcasts a source that one example finds too small, and doubles its gradient."""
    dims = event_dim(input)
    if event_dim(src) != dims - 1:
        raise NoRule("a source that is not a slice")
    if isinstance(dim, Batched) or isinstance(index, Batched) or not -dims <= dim < dims:
        return NotImplemented
    at = dim % dims + 1
    return Batched(torch.select_scatter(rows(input, info.k), rows(src, info.k), at, index))


@register(*both("slice_scatter", "diagonal_scatter"))
def part_scatter(info: Info, input: Any, src: Any, *args: Any, **kwargs: Any) -> Any:
    """As ``select_scatter``."""
    if event_dim(src) == 0:
        raise NoRule("a source that is not a slice")
    return NotImplemented


def _register_spaced(function: Callable[..., Any]) -> None:
    @register(function)
    def spaced(info: Info, *bounds: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        """Bounds are converted to the dtype before the steps are taken; vmap does it after.

        That is the default dtype, whatever the bounds are, and no gradient flows into them.
        """
        chosen = dtype or torch.get_default_dtype()
        ends = {name: kwargs.pop(name) for name in ("start", "end") if name in kwargs}
        given = [*bounds[:2], *ends.values()]
        if chosen not in (torch.float32, torch.float64):
            raise NoRule("narrow numbers between bounds of the thread's own")
        if any(is_complex(bound) for bound in given):
            raise NoRule("complex bounds")
        if dtype is not None and not any(is_lent(bound, dtype) for bound in given):
            return NotImplemented
        kwargs.update((name, in_dtype(bound, chosen)) for name, bound in ends.items())
        first = (in_dtype(bound, chosen) for bound in bounds[:2])
        return info.apply(function, (*first, *bounds[2:]), {**kwargs, "dtype": chosen}, info.k)


def is_complex(bound: Any) -> bool:
    if isinstance(bound, Batched | Tensor):
        return bound.data.is_complex()
    return isinstance(bound, complex)


def is_lent(bound: Any, dtype: torch.dtype) -> bool:
    """Whether it is a tensor of another dtype, or one that is differentiated."""
    return isinstance(bound, Batched | Tensor) and (
        bound.data.dtype != dtype or rows(bound, 1).requires_grad
    )


def in_dtype(bound: Any, dtype: torch.dtype) -> Any:
    if isinstance(bound, Tensor):
        return bound.detach().to(dtype)
    return Batched(bound.data.detach().to(dtype)) if type(bound) is Batched else bound


_register_spaced(torch.linspace)
_register_spaced(torch.logspace)


def linear_cross_entropy(
    info: Info, input: Any, linear_weight: Any, target: Any, *, options: Any = None, **kwargs: Any
) -> Any:
    """In chunks it computes gradients of what ``requires_grad``, which says nothing under vmap."""
    if options is not None:
        raise NoRule("it looks at what is differentiated")
    return NotImplemented


if hasattr(F, "linear_cross_entropy"):  # since torch 2.13
    register(F.linear_cross_entropy)(linear_cross_entropy)


def _register_truth(function: Callable[..., Any], reduce: Callable[[Tensor, int], Tensor]) -> None:
    @register(function)
    def truth(info: Info, input: Any) -> Any:
        """vmap's rule asks the elements of all threads at once."""
        return Batched(reduce(input.data.reshape(info.k, -1), 1))


_register_truth(torch._is_all_true, torch.all)
_register_truth(torch._is_any_true, torch.any)
