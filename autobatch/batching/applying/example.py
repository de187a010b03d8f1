"""What one example gives, told without its values: dtypes and strides of a result, errors of shape.

A torch function is evaluated once per signature on ones that lie as the operands do, by torch's
own kernels, since evaluation without data (meta and fake tensors) is laxer than they are.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch import compat
from autobatch.batching.levels import Batched, leaves_of, map_tree
from autobatch.values.layouts import Strides, contiguous, row_strides, without_ones


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A tensor operand as one example sees it, without its values."""

    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    device: torch.device


@dataclass(frozen=True, slots=True)
class Expected:
    """What one example gives: the dtypes of the result's leaves (None: not a tensor), and their
    strides, 0 where a size is 1.

    ``sure`` if torch's kernels ran on ones of the operands' shapes; otherwise they refused, for
    which the reason may be the ones, and the dtypes come from an evaluation without data.
    """

    dtypes: tuple[torch.dtype | None, ...]
    strides: tuple[Strides | None, ...]
    sure: bool


def expected(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Expected | None:
    """The dtypes that one example gives; None if there is no telling without its data.

    A torch function's answer is kept, since it depends on the operands' dtypes and shapes alone.
    """
    leaves = (map_tree(_leaf, args), map_tree(_leaf, kwargs))
    key = _key(leaves)
    if isinstance(fn, torch.nn.Module | types.FunctionType | types.MethodType) or key is None:
        return _evaluate(fn, *leaves)
    return _known(fn, key, (torch.get_default_dtype(), *_autocast()), _Unhashed(leaves))


def _autocast() -> tuple[object, ...]:
    """What autocast is set to on the devices that have it."""
    return tuple(
        torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        for device in ("cpu", "cuda")
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Unhashed:
    """Operands that go along with a key that says the same."""

    leaves: tuple[Any, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unhashed)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=4096)
def _known(fn: Callable[..., Any], key: Any, ambient: Any, operands: _Unhashed) -> Expected | None:
    return _evaluate(fn, *operands.leaves)


def _evaluate(fn: Callable[..., Any], args: Any, kwargs: Any) -> Expected | None:
    try:
        with compat.outside_everything():
            out = fn(*map_tree(_ones, args), **map_tree(_ones, kwargs))
        return _told(out, True)
    except Exception:
        pass
    try:
        return _told(_run_without_data(fn, args, kwargs), False)
    except Exception:
        return None


def _told(out: Any, sure: bool) -> Expected:
    leaves = [leaf if isinstance(leaf, Tensor) else None for leaf in leaves_of(out)]
    return Expected(
        tuple(None if leaf is None else leaf.dtype for leaf in leaves),
        tuple(None if leaf is None else _strides(leaf) for leaf in leaves),
        sure,
    )


def _strides(leaf: Tensor) -> Strides | None:
    """Without an operation of torch's: somebody may record those."""
    if leaf.layout is not torch.strided:
        return None
    return without_ones(leaf.shape, leaf.stride())


def _ones(leaf: Any) -> Any:
    if type(leaf) is _Leaf:
        return _empty_there(leaf).fill_(1)
    return leaf


def _key(tree: Any) -> Any:
    """A hashable twin of ``tree`` that keeps 1, 1.0 and True apart; None if a leaf has no hash."""
    parts: list[Any] = []
    for leaf in leaves_of(tree):
        if not isinstance(leaf, Hashable):
            return None
        parts += (type(leaf), leaf)
    return (*parts, _shape(tree))


def _shape(tree: Any) -> Any:
    """The nesting of a tree, and its keywords."""
    if isinstance(tree, tuple | list) and not isinstance(tree, torch.Size):
        return (type(tree), *map(_shape, tree))
    if isinstance(tree, dict):
        return (dict, *((key, _shape(leaf)) for key, leaf in tree.items()))
    return None


def without_data(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``fn`` for one example, on tensors that have a dtype, shape and strides but no data."""
    return _run_without_data(fn, map_tree(_leaf, args), map_tree(_leaf, kwargs))


def _run_without_data(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    is_module = isinstance(fn, torch.nn.Module)
    with compat.outside_everything(), compat.no_data(is_module), compat.quiet():
        # A module's parameters are real, so what it gets is to be where they are; else all is meta.
        empty = _empty_there if is_module else _empty
        return fn(*map_tree(empty, args), **map_tree(empty, kwargs))


def _leaf(leaf: Any) -> Any:
    if type(leaf) is Batched:
        data = leaf.data
        if data.layout is not torch.strided:
            return _Leaf(data.dtype, data.shape[1:], contiguous(data.shape[1:]), data.device)
        return _Leaf(data.dtype, data.shape[1:], row_strides(data), data.device)
    if isinstance(leaf, Tensor):
        return _Leaf(leaf.dtype, leaf.shape, leaf.stride(), leaf.device)
    return leaf


def _empty(leaf: Any) -> Any:
    if type(leaf) is _Leaf:
        return torch.empty_strided(leaf.size, leaf.stride, dtype=leaf.dtype, device="meta")
    return leaf


def _empty_there(leaf: Any) -> Any:
    if type(leaf) is _Leaf:
        return torch.empty_strided(leaf.size, leaf.stride, dtype=leaf.dtype, device=leaf.device)
    return leaf
