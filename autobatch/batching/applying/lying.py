"""Results lie in memory as one example's would, where the program at work sees that.

A kernel for all threads lays its result out in its own way: of ``x[:, i]`` it gathers the picked
dimension next to the threads. In: an operation and its result's leaves ``[k, *E]``. Out: the same
rows; those that lay otherwise than one example's have been copied to lie so (see
``values.layouts``).
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from autobatch.batching.applying import example
from autobatch.batching.levels import Batched, leaves_of, map_tree
from autobatch.compat import storage_id
from autobatch.values.layouts import (
    Strides,
    are_apart,
    are_seen,
    is_dense,
    overlap,
    row_strides,
    with_gaps,
    without_ones,
)
from autobatch.values.strides import as_contiguous, in_order

Steps = tuple[tuple[int, int] | None, ...]
"""For each dimension of a part that slices pick: that of the whole, and the slice's step."""


def as_one_example(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Any:
    """What ``fn`` gives for all threads, laid out as it gives it for one.

    A module, and a function of the user's, is not run once more to see how that is.
    """
    if not are_seen() or isinstance(fn, nn.Module | types.MethodType):
        return out
    if isinstance(fn, types.FunctionType) and not fn.__module__.startswith("torch."):
        return out
    found = [leaf.data for leaf in leaves_of(out) if type(leaf) is Batched]
    if not any(map(may_differ, found)) or shares_memory(found, (args, kwargs)):
        return out
    given = (leaf.data if type(leaf) is Batched else leaf for leaf in leaves_of(args, kwargs))
    tensors = (*found, *(each for each in given if isinstance(each, Tensor)))
    if all(each.layout is torch.strided and each.is_contiguous() for each in tensors):
        return out  # what makes something else of these does so for all threads, too
    known = example.expected(fn, args, kwargs)
    if known is None or len(known.strides) != len(leaves_of(out)):
        return out
    strides = iter(known.strides)
    return map_tree(lambda leaf: laid(leaf, next(strides)), out)


def may_differ(data: Tensor) -> bool:
    """Whether rows have more than one way to lie."""
    return data.layout is torch.strided and data.numel() > 0 and not data.is_conj()


def laid(leaf: Any, strides: Strides | None) -> Any:
    if type(leaf) is not Batched or strides is None or not may_differ(leaf.data):
        return leaf
    data = leaf.data
    if len(strides) != data.dim() - 1:
        return leaf
    if row_strides(data) == strides and (len(data) == 1 or are_apart(data)):
        return leaf
    shape = data.shape[1:]
    if not is_dense(shape, strides):
        return leaf if overlap(shape, strides) else Batched(with_gaps(data, strides))
    inner = sorted(range(len(shape)), key=lambda dim: -strides[dim])
    return Batched(in_order([data], (0, *(1 + dim for dim in inner)), as_contiguous))


def as_part(out: Any, whole: Any, steps: Steps) -> Any:
    """What has been gathered of a tensor ``whole`` of each thread's, as the part of it that it is
    for one example.
    """
    if type(out) is not Batched or not are_seen():
        return out
    strides = row_strides(whole.data if type(whole) is Batched else whole[None])
    sizes = out.data.shape[1:]
    known = [0 if step is None else strides[step[0]] * step[1] for step in steps]
    return laid(out, without_ones(sizes, known))


def shares_memory(found: list[Tensor], given: Any) -> bool:
    """Whether a result is a part of an operand, which it is to stay."""
    operands = {storage_id(leaf.data) for leaf in leaves_of(given) if type(leaf) is Batched}
    return any(storage_id(data) in operands for data in found)
