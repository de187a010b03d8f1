"""``x[a:b]`` whose bounds differ by thread and whose length does not: a window of its own for each.

Such a slice is a gather: the integers ``a .. b - 1`` take its place in the index, ``[k, n]``.
Several of them, and the slices that stand between, are lined up to broadcast as slices would:

    x[:, a:b, c:d]  ->  x[:, rows, columns]      [k, n, 1] and [k, m]
    x[a:b, :, c:d]  ->  x[rows, all, columns]    [k, n, 1, 1], [s, 1] and [k, m]

Whether the lengths are equal is read on the host, once for all slices of an index. An index whose
slices differ in length is left as it is: it runs thread by thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.applying.index_parts import INTEGERS
from autobatch.batching.context import Context
from autobatch.batching.levels import Batched, event_dim, has_batched
from autobatch.batching.tensors.views import own_data
from autobatch.batching.trees import NotATree, cell_of, tree_of
from autobatch.values import packs
from autobatch.values.cells import Cell, Container, fits_column

LARGEST_STEP = 2**31


@dataclass(frozen=True, slots=True)
class Window:
    """Where each thread's slice begins, and how long it is, ``[k]``; its step."""

    begin: Tensor | int
    length: Tensor
    step: int

    def places(self, count: int) -> Tensor:
        """The integers that it picks, ``[k, count]``."""
        steps = torch.arange(count, device=self.length.device) * self.step
        begin = self.begin if isinstance(self.begin, Tensor) else self.length.new_tensor(self.begin)
        return (begin.reshape(-1, 1) + steps).expand(len(self.length), count)


def spread(context: Context, shape: torch.Size, index: Cell) -> Cell:
    """The index of a tensor of a ``shape``, slices of one length as integers; else as it is."""
    try:
        tree = tree_of(index, None)
    except NotATree:
        return index
    given = list(tree) if type(tree) is tuple else [tree]
    if not context.k or not any(map(is_own, given)) or not all(map(is_basic, given)):
        return index
    parts = spelled_out(given, len(shape))
    own = [place for place, part in enumerate(parts) if is_own(part)]
    sizes = sizes_at(parts, shape)
    if sizes is None:
        return index
    windows = {place: window(parts[place], sizes[place], context) for place in own}
    ends = [end for each in windows.values() for end in torch.aminmax(each.length)]
    least, most = context.host(torch.stack(ends).reshape(-1, 2).T, "slice")
    if least != most:
        return index
    counts = dict(zip(own, most, strict=True))
    between = range(own[0], own[-1] + 1)
    lines = [place for place in between if parts[place] is None or type(parts[place]) is slice]
    for after, place in enumerate(reversed(lines)):
        if place in windows:
            found = windows[place].places(counts[place])
            parts[place] = Batched(found.reshape(*found.shape, *(1,) * after))
        elif parts[place] is not None:
            line = torch.arange(sizes[place], device=context.device)[parts[place]]
            parts[place] = line.reshape(-1, *(1,) * after)
    # A new dimension between them is one that nothing but the broadcast makes.
    kept = [part for place, part in enumerate(parts) if part is not None or place not in lines]
    return Cell(Container(tuple, list(map(cell_of, kept))))


def slice_of_ints(index: Cell) -> slice | None:
    """The slice that an index is, its bounds ints or None; None for any other index."""
    try:
        part = tree_of(index, None)
    except NotATree:
        return None
    return part if type(part) is slice and is_basic(part) else None


def is_own(part: Any) -> bool:
    """Whether it is a slice with a bound of the thread's own."""
    return type(part) is slice and has_batched(part)


def is_basic(part: Any) -> bool:
    """Whether it picks a part that shares memory with the whole, by ints."""
    if type(part) is not slice:
        return part is None or part is Ellipsis or is_single(part)
    step = 1 if part.step is None else part.step
    if type(step) is not int or not 0 < step < LARGEST_STEP:
        return False
    return all(end is None or is_single(end) for end in (part.start, part.stop))


def is_single(part: Any) -> bool:
    """Whether it is one int, the thread's own or shared by all."""
    if isinstance(part, Batched | Tensor):
        return part.data.dtype in INTEGERS and event_dim(part) == 0
    return type(part) is int and fits_column(part)


def spelled_out(parts: list[Any], dims: int) -> list[Any]:
    """The parts with slices in the place of the first ellipsis."""
    dots = next((place for place, part in enumerate(parts) if part is ...), None)
    if dots is None:
        return parts
    free = dims - sum(part is not None for part in parts) + 1
    return [*parts[:dots], *[slice(None)] * free, *parts[dots + 1 :]]


def sizes_at(parts: list[Any], shape: torch.Size) -> dict[int, int] | None:
    """The size of the dimension that each part takes; None where there are too many."""
    taking = [place for place, part in enumerate(parts) if part is not None]
    fits = len(taking) <= len(shape) and not any(part is ... for part in parts)
    return dict(zip(taking, shape, strict=False)) if fits else None


def window(part: slice, size: int, context: Context) -> Window:
    """A slice of a dimension of this size."""
    sizes = torch.full((context.k,), size, device=context.device)
    bounds = slice(*map(own_data, (part.start, part.stop, part.step)))
    begin, length = packs.extent(sizes, bounds)
    return Window(begin, length, part.step or 1)
