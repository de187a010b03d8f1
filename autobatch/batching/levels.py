"""Running torch code once for all threads of a group, under one vmap level.

A thread's tensor is a row of a ``Batched``; inside a ``level`` torch code sees it as one example's
tensor. Values go in and come out as trees: tuples, lists, dicts and slices over leaves, which are
``Batched`` tensors (the threads' own), plain tensors (the same for all threads) and other objects.

    apply(torch.add, (Batched([k, 3]), tensor[3]))  ->  Batched([k, 3])

Invariants: the batch dimension of a ``Batched`` is 0; an output on which no thread's own data
had an influence comes out plain; vmap's loop over examples is off, so what has no batching rule
raises ``NoRule``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from autobatch import compat


@dataclass(frozen=True, slots=True)
class Batched:
    """One tensor per thread: ``data`` is ``[k, *event]``."""

    data: Tensor


class NoRule(Exception):
    """This operation has no batched form for these operands; run it thread by thread."""


class Layout(NoRule):
    """There is no view of these rows; a contiguous copy of the operand's data would have one."""


class ExampleError(Exception):
    """The operation fails for one example too: ``original`` is what torch raised for it."""

    def __init__(self, original: Exception) -> None:
        super().__init__(original)
        self.original = original


class DrawError(RuntimeError):
    """An operation draws random numbers where the randomness option does not let it."""


_OPAQUE = (
    *(type(None), bool, int, float, complex, str, bytes, range, torch.Size, torch.dtype),
    *(torch.device, torch.layout, torch.memory_format, torch.Generator, type(Ellipsis)),
)


def map_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    """``tree`` with ``function`` applied to each leaf; a subtree that did not change is kept."""
    if isinstance(tree, torch.Size):
        return function(tree)
    if isinstance(tree, tuple | list):
        leaves = [map_tree(function, leaf) for leaf in tree]
        if all(new is old for new, old in zip(leaves, tree, strict=True)):
            return tree
        return type(tree)(*leaves) if hasattr(tree, "_fields") else type(tree)(leaves)
    if isinstance(tree, dict):
        return type(tree)((key, map_tree(function, leaf)) for key, leaf in tree.items())
    if isinstance(tree, slice):
        return slice(*(map_tree(function, leaf) for leaf in (tree.start, tree.stop, tree.step)))
    return function(tree)


def leaves_of(*trees: Any) -> list[Any]:
    """The leaves of all trees, in order."""
    found: list[Any] = []
    for tree in trees:
        if isinstance(tree, tuple | list) and not isinstance(tree, torch.Size):
            found += leaves_of(*tree)
        elif isinstance(tree, dict):
            found += leaves_of(*tree.values())
        elif isinstance(tree, slice):
            found += (tree.start, tree.stop, tree.step)
        else:
            found.append(tree)
    return found


def has_batched(*trees: Any) -> bool:
    """Whether any leaf is a thread's own."""
    return any(type(leaf) is Batched for leaf in leaves_of(*trees))


def event_dim(value: Batched | Tensor) -> int:
    """The number of dimensions that one example sees."""
    return value.data.dim() - (type(value) is Batched)


class level:
    """A vmap level of ``k`` threads: ``wrap`` on the way in, ``unwrap`` on the way out.

    ``randomness`` is torch.vmap's: "error", "different" (each thread draws its own) or "same".
    """

    __slots__ = ("_number", "k", "randomness")

    def __init__(self, k: int, randomness: str = "error") -> None:
        self.k = k
        self.randomness = randomness

    def __enter__(self) -> level:
        compat.FALLBACK_OFF.__enter__()
        try:
            self._number = compat.enter_level(self.k, self.randomness)
        except BaseException:
            compat.FALLBACK_OFF.__exit__()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        compat.leave_level()
        compat.FALLBACK_OFF.__exit__()

    def is_innermost(self) -> bool:
        """Whether no other functorch level was entered within this one."""
        return compat.current_level() == self._number

    def wrap(self, tree: Any) -> Any:
        """``tree`` as one example sees it: each ``Batched`` leaf a tensor of its event shape."""
        kind = type(tree)
        if kind is Batched:
            return compat.add_batch_dim(tree.data, 0, self._number)
        if kind is Tensor or kind is int or kind is float or kind is str or tree is None:
            return tree
        return map_tree(self._wrap_leaf, tree)

    def unwrap(self, tree: Any) -> Any:
        """The inverse of ``wrap`` for results: what differs by thread is ``Batched``."""
        if isinstance(tree, Tensor):
            return self._unwrap_leaf(tree)
        return map_tree(self._unwrap_leaf, tree)

    def _wrap_leaf(self, leaf: Any) -> Any:
        if type(leaf) is Batched:
            return compat.add_batch_dim(leaf.data, 0, self._number)
        return leaf

    def _unwrap_leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            inner, dim = compat.unwrap_batched(leaf, self._number)
            if dim is None:
                return inner
            if inner.shape[dim] != self.k:  # torch's rules for empty operands have faults
                raise NoRule("vmap lost the threads' dimension")
            return Batched(inner if dim == 0 else inner.movedim(dim, 0))
        if isinstance(leaf, _OPAQUE):
            return leaf
        raise NoRule(f"its result is {type(leaf).__name__}, which vmap cannot look into")
