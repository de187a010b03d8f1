"""Where the gradients of a repeated tensor add up: one buffer ``[k, *E]`` for all of its products.

Each product with a parameter that the threads share gives a gradient of its size for every thread.
Autograd would make each of them and then their sum. While a ``Gathering`` is at work, a product
leaves its two factors here instead; those of several steps are multiplied at once, and added to the
buffer where they belong: a sum over steps is a product over one more column.

In: repeated tensors ``[k, m, n]``, leaves of autograd's. Out: ``total``, by leaf. What a product
reads of a leaf is the matrix or its transpose, for all threads or for some (``repeated.Rows``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from autobatch.compat import within_level

VIEWS = frozenset({"PermuteBackward0", "TransposeBackward0", "TBackward0"})
MOST_FACTORS = 32
"""Columns of factors that wait for each other: beyond, they are no smaller than what they make."""


@dataclass(slots=True, eq=False, repr=False)
class Sum:
    """Products ``left @ right``, ``[k, m, c] @ [k, c, n]``, for all threads of a leaf, in order."""

    leaf: Tensor
    buffer: Tensor | None = None
    left: list[Tensor] = field(default_factory=list)
    right: list[Tensor] = field(default_factory=list)
    waiting: int = 0

    def add(self, left: Tensor, right: Tensor, rows: Tensor | None) -> None:
        """Add a product; ``rows`` says which threads its own are of, None: all, in order."""
        if rows is not None:
            self.whole().index_add_(0, rows, torch.bmm(left, right))
            return
        self.left.append(left)
        self.right.append(right)
        self.waiting += left.shape[2]
        if self.waiting >= MOST_FACTORS:
            self.multiply()

    def whole(self) -> Tensor:
        if self.buffer is None:
            self.buffer = torch.zeros(
                self.leaf.shape, dtype=self.leaf.dtype, device=self.leaf.device
            )
        return self.buffer

    def multiply(self) -> None:
        """Add what waits to the buffer."""
        if not self.left:
            return
        with torch.no_grad():
            left, right = torch.cat(self.left, 2), torch.cat(self.right, 1)
            self.left, self.right, self.waiting = [], [], 0
            if self.buffer is None:
                self.buffer = multiplied(left, right)
            else:
                self.buffer.baddbmm_(left, right)

    def total(self) -> Tensor | None:
        self.multiply()
        return self.buffer


def multiplied(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right``; of a column and a row it is faster element by element."""
    return left * right if left.shape[2] == 1 else torch.bmm(left, right)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Share:
    """What a product reads of a leaf: it or its transpose; of these threads, None: of all."""

    sum: Sum
    turned: bool
    rows: Tensor | None

    def add(self, left: Tensor, right: Tensor) -> None:
        """Add a gradient of what was read, as a product."""
        if self.turned:
            left, right = right.mT, left.mT
        self.sum.add(left, right, self.rows)


@dataclass(slots=True, eq=False, repr=False)
class Gathering:
    """The sums of a run's leaves."""

    sums: list[Sum]

    @classmethod
    def of(cls, leaves: Sequence[Tensor]) -> Gathering:
        return cls([Sum(leaf) for leaf in leaves])

    def share(self, operand: Tensor) -> Share | None:
        """What an operand of a product is of a leaf; None if it is something else."""
        found = origin(operand)
        if found is None:
            return None
        leaf, rows = found
        for each in self.sums:
            if each.leaf is leaf and leaf.dim() == 3:
                if like(operand, leaf):
                    return Share(each, False, rows)
                if like(operand, leaf.mT):
                    return Share(each, True, rows)
        return None


def like(operand: Tensor, matrix: Tensor) -> bool:
    """Whether each row of an operand is the very matrix that a leaf repeats."""
    return (
        operand.shape[1:] == matrix.shape[1:]
        and operand.stride()[1:] == matrix.stride()[1:]
        and operand.data_ptr() == matrix.data_ptr()
    )


def origin(operand: Tensor) -> tuple[Tensor, Tensor | None] | None:
    """The leaf that an operand is a view of, and which of its rows it has."""
    node: Any = operand.grad_fn
    rows: Tensor | None = None
    if node is None:
        return operand, None
    while not hasattr(node, "variable"):
        if node.name() == "RowsBackward":
            index = node.saved_tensors[0]
            rows = index if rows is None else index[rows]
        elif node.name() not in VIEWS:
            return None
        node = node.next_functions[0][0]
        if node is None:
            return None
    return node.variable, rows


_AT_WORK: ContextVar[Gathering | None] = ContextVar("autobatch.gathering", default=None)


@contextmanager
def gathering(at_work: Gathering) -> Iterator[None]:
    """Products made inside leave the gradients of these leaves' with it."""
    token = _AT_WORK.set(at_work)
    try:
        yield
    finally:
        _AT_WORK.reset(token)


def share_of(operand: Tensor) -> Share | None:
    """What an operand is of a leaf of the gathering at work, if there is one."""
    at_work = _AT_WORK.get()
    return None if at_work is None or within_level() else at_work.share(operand)
