"""Functions whose one example is itself a batch, or that torch defines over leading dimensions.

The threads go in front of one example's own batch dimension: ``[k, N, C, L]`` is run as
``[k * N, C, L]``. Others take any number of leading dimensions, or have a short form in terms of
functions that do batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autobatch.batching.converters.pointwise import both
from autobatch.batching.converters.registry import (
    Info,
    event_dim,
    folded,
    register,
    rows,
    unfolded,
)
from autobatch.batching.levels import Batched, NoRule, leaves_of


def _register_unpool(function: Callable[..., Any], space: int) -> None:
    @register(function)
    def unpool(info: Info, input: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
        if event_dim(input) == space + 1:
            return Batched(function(rows(input, info.k), rows(indices, info.k), *args, **kwargs))
        return unfolded(
            function(folded(input, info.k), folded(indices, info.k), *args, **kwargs), info.k
        )


_register_unpool(F.max_unpool1d, 1)
_register_unpool(F.max_unpool2d, 2)
_register_unpool(F.max_unpool3d, 3)


@register(F.interpolate)
def interpolate(info: Info, input: Any, *args: Any, **kwargs: Any) -> Any:
    """``[N, C, *space]``: the threads join N."""
    return unfolded(F.interpolate(folded(input, info.k), *args, **kwargs), info.k)


def _register_leading(function: Callable[..., Any], *dims: int) -> None:
    """``function`` takes leading dimensions, its i-th tensor's own are ``dims[i]``."""

    @register(function)
    def leading(info: Info, *args: Any, **kwargs: Any) -> Any:
        if len(args) < len(dims) or any(isinstance(leaf, Batched) for leaf in leaves_of(kwargs)):
            return NotImplemented
        tensors = args[: len(dims)]
        extra = [event_dim(tensor) - own for tensor, own in zip(tensors, dims, strict=True)]
        if any(number != extra[0] for number in extra) or extra[0] < 0:
            raise NoRule("leading dimensions that broadcast")
        out = function(*(rows(tensor, info.k) for tensor in tensors), *args[len(dims) :], **kwargs)
        if isinstance(out, Tensor):
            return Batched(out)
        return type(out)(map(Batched, out))


_register_leading(torch.lu_solve, 2, 2, 1)
_register_leading(Tensor.lu_solve, 2, 2, 1)
_register_leading(torch.linalg.lu, 2)
_register_leading(torch.linalg.ldl_solve, 2, 1, 2)
_register_leading(torch.ormqr, 2, 1, 2)


@register(F.embedding_bag)
def embedding_bag(
    info: Info, input: Any, weight: Any, offsets: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Bags ``[B, N]`` of each thread, folded into one batch of bags."""
    weights = kwargs.get("per_sample_weights")
    if isinstance(weight, Batched) or offsets is not None or event_dim(input) != 2:
        raise NoRule("bags given by offsets, or weights of the thread's own")
    if kwargs.get("max_norm") is not None or (args and args[0] is not None):
        raise NoRule("an embedding with max_norm writes its weight")
    keywords = dict(kwargs)
    if weights is not None:
        keywords["per_sample_weights"] = folded(weights, info.k)
    return unfolded(F.embedding_bag(folded(input, info.k), weight, None, *args, **keywords), info.k)


@register(nn.EmbeddingBag)
def embedding_bag_module(
    info: Info,
    module: nn.EmbeddingBag,
    input: Any,
    offsets: Any = None,
    per_sample_weights: Any = None,
) -> Any:
    return embedding_bag(
        info,
        *(input, module.weight, offsets, module.max_norm, module.norm_type),
        *(module.scale_grad_by_freq, module.mode, module.sparse),
        per_sample_weights=per_sample_weights,
        include_last_offset=module.include_last_offset,
        padding_idx=module.padding_idx,
    )


def _register_quantile(function: Callable[..., Any]) -> None:
    @register(function)
    def quantile(
        info: Info, input: Any, q: Any, dim: int | None = None, keepdim: bool = False, **kwargs: Any
    ) -> Any:
        """Along one dimension of one example, or of all of it flattened."""
        if isinstance(q, Batched):
            raise NoRule("a quantile of the thread's own")
        dims = event_dim(input)
        data = input.data
        if dim is None or dims == 0:
            out = function(data.reshape(info.k, -1), q, 1, **kwargs)
            ones = (1,) * dims if keepdim else ()
            out = out.reshape(*out.shape, *ones)
        else:
            out = function(data, q, dim if dim < 0 else dim + 1, keepdim, **kwargs)
        many = isinstance(q, Tensor) and q.dim() == 1
        return Batched(out.movedim(1, 0) if many else out)


for _function in both("quantile", "nanquantile"):
    _register_quantile(_function)


@register(*both("narrow"))
def narrow(info: Info, input: Any, dim: int, start: Any, length: int) -> Any:
    """From a start of the thread's own: the length is one for all, so this is a gather."""
    if not isinstance(start, Batched):
        return NotImplemented
    if event_dim(start) or start.data.is_floating_point() or start.data.dtype is torch.bool:
        raise NoRule("a start that is not one integer")
    size = input.data.shape[(dim % max(event_dim(input), 1)) - event_dim(input)]
    if size < length:
        raise NoRule("a length beyond the dimension")
    data = rows(input, info.k).movedim(dim % event_dim(input) + 1, 1)
    first = torch.where(start.data < 0, start.data + size, start.data)
    places = first.reshape(-1, 1) + torch.arange(length, device=data.device)
    threads = torch.arange(info.k, device=data.device).unsqueeze(1)
    return Batched(data[threads, places].movedim(1, dim % event_dim(input) + 1))


@register(*both("take"))
def take(info: Info, input: Any, index: Any) -> Any:
    """An index into the flattened input."""
    flat = rows(input, info.k).flatten(1) if event_dim(input) else rows(input, info.k).unsqueeze(1)
    places = rows(index, info.k)
    threads = torch.arange(info.k, device=flat.device)
    return Batched(flat[threads.reshape(-1, *(1,) * (places.dim() - 1)), places])


@register(torch.column_stack)
def column_stack(info: Info, tensors: Any) -> Any:
    """``[n]`` counts as ``[n, 1]``."""
    columns = [rows(tensor, info.k) for tensor in tensors]
    columns = [data.reshape(info.k, -1, 1) if data.dim() < 3 else data for data in columns]
    return Batched(torch.cat(columns, 2))


@register(torch.block_diag)
def block_diag(info: Info, *tensors: Any) -> Any:
    """Each block between zeros, one below the other; torch's rule takes the threads one by one."""
    if len({tensor.data.dtype for tensor in tensors}) > 1:
        raise NoRule("blocks of several dtypes")
    if any(event_dim(tensor) > 2 for tensor in tensors):
        return NotImplemented
    blocks = []
    for tensor in tensors:
        block = rows(tensor, info.k)
        blocks.append(block.reshape(info.k, *(1,) * (3 - block.dim()), *block.shape[1:]))
    width, left, parts = sum(block.shape[2] for block in blocks), 0, []
    for block in blocks:
        parts.append(F.pad(block, (left, width - left - block.shape[2])))
        left += block.shape[2]
    return Batched(torch.cat(parts, 1))


@register(torch.stft)
def stft(info: Info, input: Any, *args: Any, **kwargs: Any) -> Any:
    """A signal ``[T]``, or one example's own batch of them."""
    if any(isinstance(leaf, Batched) for leaf in leaves_of(args, kwargs)):
        raise NoRule("a window of the thread's own")
    if event_dim(input) == 1:
        return Batched(torch.stft(input.data, *args, **kwargs))
    return unfolded(torch.stft(folded(input, info.k), *args, **kwargs), info.k)


def _register_extreme(name: str) -> None:
    over = getattr(torch, f"a{name}")

    @register(*both(name))
    def extreme(info: Info, input: Any, *args: Any, **kwargs: Any) -> Any:
        """Of all elements: equal ones share the gradient, which ``x.max(dim)`` gives to one."""
        if args or kwargs or not isinstance(input, Batched) or input.data.is_complex():
            return NotImplemented
        if not input.data.shape[1:].numel():
            return NotImplemented
        return Batched(over(input.data.reshape(input.data.shape[0], -1), 1))


_register_extreme("max")
_register_extreme("min")


def _register_middle(name: str) -> None:
    over = getattr(torch, name)

    @register(*both(name))
    def middle(info: Info, input: Any, *args: Any, **kwargs: Any) -> Any:
        """Of all elements: equal ones share the gradient, which ``x.median(dim)`` gives to one."""
        if args or kwargs or not isinstance(input, Batched):
            return NotImplemented
        elements = input.data.reshape(input.data.shape[0], -1)
        if not elements.is_floating_point() or not elements.shape[1]:
            return NotImplemented
        found = over(elements.detach(), 1, keepdim=True).values
        base = torch.where(found.isfinite(), found, 0)
        is_found = (elements == found) | (elements.isnan() & found.isnan())
        beyond = torch.where(is_found, elements - base, 0)  # zeros, or all that is not finite
        return Batched(base.squeeze(1) + beyond.sum(1) / is_found.sum(1))


_register_middle("median")
_register_middle("nanmedian")
