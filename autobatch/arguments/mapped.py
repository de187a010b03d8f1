"""Leaves that differ by thread, the trees that hold them, and one thread's row of a tree.

``Mapped`` is such a leaf; ``objects`` is how a caller says so of Python objects. A row is private
to its thread: containers and tensors are copied, other objects are as they are.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch import firsthand, structure
from autobatch.errors import UnknownOptionError
from autobatch.ragged import Packed


class objects:
    """One Python object for each thread: ``f.batch(autobatch.objects(trees))``.

    Args:
        items: a sequence of B objects (trees, strings, dicts), or any other iterable.

    Raises ``OptionError`` for what has no items.
    """

    __slots__ = ("items",)

    def __init__(self, items: Iterable[Any]) -> None:
        if not isinstance(items, Iterable):
            raise UnknownOptionError(
                "autobatch.objects takes a sequence with one object for each example; "
                f"it got {items!r}, of type {type(items).__name__}."
            )
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"autobatch.objects({self.items!r})"


@dataclass(frozen=True, slots=True)
class Mapped:
    """A leaf that differs by thread: a tensor ``[B, *E]``, B objects, or tensors of B lengths."""

    data: Tensor | list[Any] | Packed

    def __len__(self) -> int:
        return self.data.shape[0] if isinstance(self.data, Tensor) else len(self.data)

    def chunk(self, start: int, stop: int) -> Mapped:
        return Mapped(self.data[start:stop])

    def rows(self, index: np.ndarray) -> Mapped:
        """The rows of some threads."""
        if isinstance(self.data, list):
            return Mapped([self.data[at] for at in index])
        return Mapped(self.data[torch.from_numpy(index)])


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of arguments; what all threads share is the caller's own, records as they are."""

    def is_leaf(part: Any) -> bool:
        return is_mapped(part) or (structure.is_record(part) and not has_mapped(part))

    return structure.mapped(function, tree, is_leaf)


def tree_row(
    tree: Any, index: int, scalars: str, copies: bool = True, memo: Memo | None = None
) -> Any:
    """One thread's tree of real Python values, private copies; see ``Batch.row``."""

    def pick(leaf: Any) -> Any:
        if not isinstance(leaf, Mapped):
            return firsthand.clone(leaf) if copies and isinstance(leaf, Tensor) else leaf
        item = part_of(leaf.data, index)
        if isinstance(item, Tensor) and (copies or not isinstance(leaf.data, list)):
            return row_of(item, scalars)
        return private(item, memo=memo) if copies else item

    if has_mapped(tree) or (copies and any(map(is_opaque, structure.leaves(tree, is_opaque)))):
        return tree_map(pick, tree)
    return private(tree, is_copied_part, memo) if copies else tree


def part_of(data: Tensor | list[Any] | Packed, index: int) -> Any:
    return firsthand.getitem(data, index) if isinstance(data, Tensor) else data[index]


def is_opaque(part: Any) -> bool:
    """Whether only torch's pytrees can copy it."""
    return structure.is_registered(part) and not is_copied_part(part)


def is_copied_part(part: Any) -> bool:
    """Whether it is copied within what all threads share: tuples of names, too."""
    return is_copied(part) or (isinstance(part, tuple) and hasattr(part, "_make"))


def has_mapped(tree: Any) -> bool:
    """Whether any of it differs by thread."""
    return any(isinstance(leaf, Mapped) for leaf in tree_leaves(tree))


def row_of(item: Tensor, scalars: str) -> Any:
    """One thread's row: a private, contiguous copy, or a number if ``scalars`` says so."""
    if scalars == "python" and not item.shape:
        return firsthand.item(item)
    if item.layout is not torch.strided:  # a sparse one lies in no order
        return firsthand.clone(item)
    return firsthand.clone(item, memory_format=torch.contiguous_format)


def tree_leaves(tree: Any) -> Iterator[Any]:
    return structure.leaves(tree, is_mapped)


def is_mapped(leaf: Any) -> bool:
    return isinstance(leaf, Mapped)


Memo = dict[int, Any]
COPIED = (list, dict, set, tuple, OrderedDict, defaultdict, deque)


def is_copied(part: Any) -> bool:
    return type(part) in COPIED or isinstance(part, Tensor) or structure.is_collection(part)


def private(
    item: Any, is_copied: Callable[[Any], bool] = is_copied, memo: Memo | None = None
) -> Any:
    """An object of a thread's own: its containers and tensors copied, other objects as they are.

    A tuple in which nothing is copied is itself. Data may be deeper than Python's stack.
    ``is_copied`` may know more of what is to be copied; ``memo`` has what has been copied for the
    thread so far, by ``id``: what is one list in two arguments stays one.
    """
    if not is_copied(item):
        return item
    memo = {} if memo is None else memo
    if id(item) in memo:
        return memo[id(item)]
    at_work = [copying(item, memo, is_copied)]
    made: Any = None
    while at_work:
        try:
            part = at_work[-1].send(made)
        except StopIteration as done:
            made = done.value
            at_work.pop()
        else:
            made = memo.get(id(part))
            if made is None:
                at_work.append(copying(part, memo, is_copied))
    return made


def copying(
    part: Any, memo: dict[int, Any], is_copied: Callable[[Any], bool]
) -> Generator[Any, Any, Any]:
    """Yields what is in ``part`` to be copied, is sent the copies, and returns its own."""
    made: Any
    if isinstance(part, np.ndarray | bytearray):
        memo[id(part)] = made = part.copy()
    elif type(part) not in COPIED and not isinstance(part, tuple):
        memo[id(part)] = made = firsthand.clone(part) if isinstance(part, Tensor) else part.clone()
    elif isinstance(part, list | deque):
        made = memo[id(part)] = deque(maxlen=part.maxlen) if isinstance(part, deque) else []
        for entry in part:
            made.append((yield entry) if is_copied(entry) else entry)
    elif isinstance(part, dict):
        made = memo[id(part)] = type(part)()
        if isinstance(part, defaultdict):
            made.default_factory = part.default_factory
        for key, entry in part.items():
            made[key] = (yield entry) if is_copied(entry) else entry
    elif type(part) is set:
        made = memo[id(part)] = set(part)
    else:
        entries = []
        for entry in part:
            entries.append((yield entry) if is_copied(entry) else entry)
        same = all(one is other for one, other in zip(entries, part, strict=True))
        again = getattr(part, "_make", tuple)
        made = memo.setdefault(id(part), part if same else again(entries))  # it may hold itself
    return made
