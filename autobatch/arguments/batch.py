"""From the caller's batch to the cells of the threads' arguments.

``Batch`` is a call's arguments with what differs by thread told apart: leaves that are ``mapped``
(a tensor with its batch dimension, or ``objects``) and leaves that are the same for all threads.
Which are, ``in_dims`` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch import structure
from autobatch.arguments.cells import Given, cell_of
from autobatch.arguments.devices import home_of
from autobatch.arguments.mapped import (
    Mapped,
    has_mapped,
    is_mapped,
    tree_leaves,
    tree_map,
    tree_row,
)
from autobatch.presence.moves import keeping
from autobatch.ragged import Offsets, Packed
from autobatch.values.cells import Cell


@dataclass(frozen=True, slots=True)
class Batch:
    """Arguments of ``called`` as trees whose mapped leaves are ``Mapped``; ``size`` is B."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    size: int
    called: Any = None

    def chunk(self, start: int, stop: int) -> Batch:
        if stop - start == self.size:
            return self

        def cut(leaf: Any) -> Any:
            return leaf.chunk(start, stop) if isinstance(leaf, Mapped) else leaf

        with keeping():
            args, kwargs = tree_map(cut, (self.args, self.kwargs))
        return replace(self, args=args, kwargs=kwargs, size=stop - start)

    def rows(self, index: np.ndarray) -> Batch:
        """The arguments of some threads; all that is mapped are tensors or objects."""

        def pick(leaf: Any) -> Any:
            return leaf.rows(index) if isinstance(leaf, Mapped) else leaf

        with keeping():
            args, kwargs = tree_map(pick, (self.args, self.kwargs))
        return replace(self, args=args, kwargs=kwargs, size=len(index))

    def device(self) -> torch.device:
        """Where the numbers of the threads are to live: with the first tensor that there is."""
        for arg in self.args:
            if type(arg) is not Mapped:
                break
            if isinstance(arg.data, Tensor):  # the commonest call: no tree to look through
                return arg.data.device
        else:
            if not self.kwargs and not any(isinstance(arg.data, Packed) for arg in self.args):
                return home_of(self.called)
        for leaf in tree_leaves((self.args, self.kwargs)):
            if isinstance(leaf, Mapped) and isinstance(leaf.data, Tensor | Packed):
                return leaf.data.device
        for leaf in tree_leaves((self.args, self.kwargs)):
            if isinstance(leaf, Tensor):
                return leaf.device
        return home_of(self.called)

    def offsets(self) -> Offsets:
        """Those of its jagged tensors."""
        leaves = [leaf.data for leaf in tree_leaves((self.args, self.kwargs)) if is_mapped(leaf)]
        found = [leaf.offsets for leaf in leaves if isinstance(leaf, Packed)]
        return {tuple(each.tolist()): each for each in found if each is not None}

    def cells(self, scalars: str) -> tuple[list[Cell], dict[str, Cell]]:
        """The threads' arguments, private to them."""
        given = Given(scalars)
        with keeping():
            args = [cell_of(arg, given) for arg in self.args]
            return args, {name: cell_of(arg, given) for name, arg in self.kwargs.items()}

    def shared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """What of one thread's arguments may be the caller's; see ``row``."""
        pairs = [*zip(self.args, args, strict=True)]
        pairs += [(self.kwargs[name], value) for name, value in kwargs.items()]
        return tuple(part for pair in pairs for part in shared_parts(*pair))

    def row(
        self, index: int, scalars: str, copies: bool = True
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """One thread's arguments as real Python values, private copies.

        Without ``copies``, only rows of tensors are; all else is the caller's own.
        """
        with keeping():
            row = partial(tree_row, index=index, scalars=scalars, copies=copies, memo={})
            return tuple(map(row, self.args)), {name: row(arg) for name, arg in self.kwargs.items()}


def shared_parts(tree: Any, row: Any) -> Iterator[Any]:
    """What of one thread's argument may be the caller's: all but records of mapped leaves."""
    form = structure.form_of(tree) if has_mapped(tree) and not is_mapped(tree) else None
    if form is None:
        yield row
        return
    for part, own in zip(form.parts(tree), form.parts(row), strict=True):
        yield from shared_parts(part, own)


def is_of_tensors(batch: Batch) -> bool:
    """Whether all that differs by thread are tensors."""
    if not batch.kwargs and all(type(arg) is Mapped for arg in batch.args):
        return all(isinstance(arg.data, Tensor) for arg in batch.args)
    leaves = tree_leaves((batch.args, batch.kwargs))
    return all(isinstance(leaf.data, Tensor) for leaf in leaves if type(leaf) is Mapped)


def is_of_objects(batch: Batch) -> bool:
    """Whether what differs by thread are Python objects, not tensors or numbers."""
    mapped = [leaf for leaf in tree_leaves((batch.args, batch.kwargs)) if isinstance(leaf, Mapped)]
    return not any(isinstance(leaf.data, Tensor) for leaf in mapped)
