"""The oracle of the batching tests: one example after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.levels import Batched, leaves_of, map_tree


def row_of(tree: Any, row: int) -> Any:
    """What thread ``row`` sees: a private copy of its rows, and of what all threads share."""

    def leaf(value: Any) -> Any:
        if type(value) is Batched:
            return value.data[row].clone()
        return value.clone() if isinstance(value, Tensor) and not value.requires_grad else value

    return map_tree(leaf, tree)


def loop(fn: Callable[..., Any], args: Any, kwargs: Any, k: int) -> list[Any]:
    """``fn`` for each thread: its result, or the exception it raised."""
    results: list[Any] = []
    for row in range(k):
        try:
            results.append(fn(*row_of(args, row), **row_of(kwargs or {}, row)))
        except Exception as error:
            results.append(error)
    return results


def difference(got: Any, want: Any, row: int) -> str:
    """How row ``row`` of a batched result differs from one example's; empty if it does not."""
    left, right = leaves_of(got), leaves_of(want)
    if len(left) != len(right):
        return "another structure"
    for mine, theirs in zip(left, right, strict=True):
        mine = mine.data[row] if type(mine) is Batched else mine
        if not isinstance(theirs, Tensor):
            if mine != theirs:
                return f"{mine} instead of {theirs}"
            continue
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
            return f"{mine.dtype}{list(mine.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
        if not close(mine, theirs):
            return f"{mine} instead of {theirs}"
    return ""


def close(mine: Tensor, theirs: Tensor) -> bool:
    wide = torch.complex128 if theirs.dtype.is_complex else torch.float64
    loose = theirs.dtype in (torch.float16, torch.bfloat16)
    rtol, atol = (1e-2, 1e-2) if loose else (1e-3, 1e-4)
    return torch.allclose(mine.to(wide), theirs.to(wide), rtol=rtol, atol=atol, equal_nan=True)


def check(got: Any, fn: Callable[..., Any], args: Any, kwargs: Any, k: int) -> None:
    """A batched result equals the loop's, row by row: values, dtype, shape, structure."""
    for row, want in enumerate(loop(fn, args, kwargs, k)):
        assert not isinstance(want, Exception), want
        assert not (found := difference(got, want, row)), f"row {row}: {found}"
