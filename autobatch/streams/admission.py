"""From what a stream draws to the cells of the threads' arguments.

``Source`` draws examples, ``Admission`` makes arguments of them. What the examples of an admission
have in common decides the kind of a cell: tensors of one dtype and shape, and numbers of one type,
are columns, tuples of them are taken apart; everything else is one private object for each thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch import structure
from autobatch.arguments.batch_size import tensor_of
from autobatch.arguments.cells import Given, cell_of, column_of
from autobatch.arguments.devices import home_of
from autobatch.arguments.mapped import Memo, is_copied, private, row_of, tree_row
from autobatch.batching.context import Context
from autobatch.batching.host.from_rows import SHARABLE, numbers_from, signature
from autobatch.errors import OptionError
from autobatch.values.cells import NUMBER_TAGS, Cell, Container, Objects, uniform

SLOW = 0.1
"""Seconds that an iterable may take for an example before the threads in flight go on."""
QUIET = (type(iter(list[Any]())), type(iter(())), type(iter(range(0))))
"""The iterators that run no code of others."""
NUMERIC = "biufc"
"""The kinds of arrays that come as tensors."""


@dataclass(frozen=True, slots=True)
class Example:
    """The arguments of one call, without those that all share; ``index`` is its place."""

    index: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, index: int, item: Any, shared: Mapping[str, Any]) -> Example:
        """A tuple has positional arguments, a dict has them by name, all else is the only one."""
        if type(item) is tuple:
            return cls(index, item, {})
        if not isinstance(item, dict):
            return cls(index, (item,), {})
        for name in item:
            if type(name) is not str:
                raise OptionError(
                    f"Example {index} is a dict with the key {name!r}; an example's dict has its "
                    "arguments by name. Wrap one that is an argument in a tuple: (example,)."
                )
            if name in shared:
                raise OptionError(f"Example {index} has the argument {name!r}, and so has shared.")
        return cls(index, (), dict(item))

    def kept(self) -> Example:
        """The example as it is now, whatever the iterable does with it once it is asked for more:
        it may fill one buffer again and again.
        """
        kwargs = {name: kept(arg) for name, arg in self.kwargs.items()}
        return Example(self.index, kept(self.args), kwargs)

    @property
    def form(self) -> tuple[int, tuple[str, ...]]:
        """How its arguments are given; ``**kwargs`` have the order in which they are."""
        return len(self.args), tuple(self.kwargs)


@dataclass(slots=True, eq=False, repr=False)
class Source:
    """Draws examples from an iterable; ``error`` is what it has raised, ``slow`` the seconds that
    the last one took, if that was long.
    """

    examples: Iterator[Any]
    shared: Mapping[str, Any]
    drawn: int = 0
    is_open: bool = True
    error: Exception | None = None
    slow: float | None = None

    @property
    def keeps(self) -> bool:
        """Whether ``some`` are private copies, since drawing one may change those before it."""
        return not isinstance(self.examples, QUIET)

    def draw(self) -> Example | None:
        """The next example; None when there is none, for whatever reason."""
        if not self.is_open:
            return None
        try:
            example = Example.of(self.drawn, next(self.examples), self.shared)
        except Exception as error:
            self.is_open = False
            self.error = None if isinstance(error, StopIteration) else error
            return None
        self.drawn += 1
        return example

    def some(self, count: int) -> list[Example]:
        """As many examples, or fewer: those that are left, or those that do not keep it waiting."""
        found: list[Example] = []
        self.slow = None
        while len(found) < count and self.slow is None:
            started = monotonic()
            example = self.draw()
            if example is None:
                break
            found.append(example.kept() if self.keeps else example)
            took = monotonic() - started
            self.slow = took if took > SLOW else None
        return found


@dataclass(frozen=True, slots=True)
class Admission:
    """How examples become arguments: ``scalars`` as for a batch, ``device`` where rows go.

    ``copies``: whether containers are to be copied, for they are the iterable's; ``function``: what
    is called.
    """

    shared: Mapping[str, Any]
    scalars: str
    device: torch.device | None
    copies: bool = True
    function: Any = None

    def home(self, examples: Sequence[Example]) -> torch.device:
        """Where the numbers of the threads are to live: with the first tensor of an example."""
        if self.device is not None:
            return self.device
        first = examples[0]
        for leaf in structure.leaves((first.args, first.kwargs, dict(self.shared))):
            if isinstance(leaf, Tensor):
                return leaf.device
        return home_of(self.function)

    def cells(
        self, context: Context, examples: Sequence[Example]
    ) -> tuple[list[Cell], dict[str, Cell]]:
        """The arguments of examples of one form, and what is the same for all."""
        first, given = examples[0], Given(self.scalars)
        args = zip(*(example.args for example in examples), strict=True)
        kwargs = {
            name: self.cell(context, [example.kwargs[name] for example in examples], given)
            for name in first.kwargs
        }
        for name, value in self.shared.items():
            kwargs[name] = cell_of(value, given)
        return [self.cell(context, list(items), given) for items in args], kwargs

    def cell(self, context: Context, items: list[Any], given: Given) -> Cell:
        """One argument of each thread."""
        items = [from_array(item) for item in items]
        first, kind = items[0], type(items[0])
        if all(type(item) is kind for item in items):
            if kind in NUMBER_TAGS:
                return numbers_from(context, items, kind)
            if isinstance(first, Tensor) and len({signature(item) for item in items}) == 1:
                return column_of(self.moved(torch.stack(items)), self.scalars)
            if kind is tuple and first and len({len(item) for item in items}) == 1:
                parts = [self.cell(context, list(part), given) for part in zip(*items, strict=True)]
                return Cell(Container(tuple, parts))
            lasting = first is None or isinstance(first, SHARABLE)
            if lasting and all(item is first for item in items):
                return uniform(first, shared=first is not None)
        own = enumerate(items)
        return Cell(Objects([self.private(item, given.rows[row]) for row, item in own]))

    def row(self, example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """One thread's arguments as real Python values, private copies."""
        own: Memo = {}
        args = tuple(self.private(from_array(arg), own) for arg in example.args)
        kwargs = {name: self.private(from_array(arg), own) for name, arg in example.kwargs.items()}
        return args, {**kwargs, **tree_row(dict(self.shared), 0, self.scalars, self.copies)}

    def private(self, item: Any, own: Memo) -> Any:
        """A thread's own copy of its argument, where it is to be."""
        if isinstance(item, Tensor):
            return row_of(self.moved(item), self.scalars)
        if type(item) is tuple:
            return tuple(self.private(from_array(part), own) for part in item)
        moved = self.moved(item)
        return private(moved, memo=own) if self.copies else moved

    def moved(self, item: Any) -> Any:
        if self.device is None or not any(
            isinstance(leaf, Tensor) for leaf in structure.leaves(item)
        ):
            return item
        return structure.mapped(
            lambda leaf: leaf.to(self.device) if isinstance(leaf, Tensor) else leaf, item
        )


def from_array(item: Any) -> Any:
    """Arrays of numbers come as tensors, as those of a batch do."""
    if isinstance(item, np.ndarray | np.generic) and item.dtype.kind in NUMERIC:
        return tensor_of(np.asarray(item), lambda: "An example")
    return item


def kept(item: Any) -> Any:
    """An argument as it is now: containers, tensors, arrays and bytes that may change copied."""
    return tuple(map(kept, item)) if type(item) is tuple else private(item, is_kept)


def is_kept(part: Any) -> bool:
    is_named = isinstance(part, tuple) and hasattr(part, "_fields")
    return is_named or isinstance(part, np.ndarray | bytearray) or is_copied(part)


def by_form(examples: Sequence[Example]) -> Iterator[list[Example]]:
    """Examples whose arguments are given in the same way, those with the lowest index first."""
    forms: dict[Any, list[Example]] = {}
    for example in examples:
        forms.setdefault(example.form, []).append(example)
    yield from forms.values()
