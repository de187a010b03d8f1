"""How one example's tensor lies in memory, and whether the program at work can see that.

Whether ``y.reshape(-1)`` is a view or a copy, what ``y.stride()`` is and whether ``y.view(-1)`` is
an error go by the strides that ``y`` has for one example. Most programs ask nothing of the kind
(see ``vm.asking``), and then rows are kept as is cheapest. In: tensors ``[k, *E]``. A layout is
``()`` where a row is contiguous, as most are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Strides = tuple[int, ...]
Layout = tuple[Any, ...]
CONJUGATE = "conjugate"


def row_strides(data: Tensor) -> Strides:
    """The strides of a row, as if no other rows lay between its elements; 0 where a size is 1."""
    step, k = data.stride(0), data.shape[0]
    strides: list[int] = []
    for size, stride in zip(data.shape[1:], data.stride()[1:], strict=True):
        within = k > 1 and step and stride >= step * k and not stride % k
        strides.append(0 if size == 1 else stride // k if within else stride)
    return tuple(strides)


def gaps_of(data: Tensor) -> Strides | None:
    """The strides of rows that have gaps between elements, or repeat some; None if dense."""
    if data.layout is not torch.strided or data.is_contiguous() or not data.numel():
        return None
    strides = row_strides(data)
    return None if is_dense(data.shape[1:], strides) else strides


def is_dense(shape: Sequence[int], strides: Strides) -> bool:
    """Whether elements lie side by side, each by itself, in whatever order of the dimensions."""
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def without_ones(shape: Sequence[int], strides: Sequence[int]) -> Strides:
    """Strides as they count: 0 where a size is 1, which nobody goes on from."""
    return tuple(0 if n == 1 else stride for n, stride in zip(shape, strides, strict=True))


def are_apart(data: Tensor) -> bool:
    """Whether all of a row lies before the next one begins."""
    ends = [stride * size for stride, size in zip(data.stride(), data.shape, strict=True)]
    return data.stride(0) >= max(ends[1:], default=0)


def layout_of(data: Tensor) -> Layout:
    """What tells the layouts of columns' rows apart."""
    if data.layout is not torch.strided:
        return ()
    lazy = data.is_conj()
    if (not lazy and data.is_contiguous()) or not data.numel():
        return ()
    strides = row_strides(data)
    plain = strides == contiguous(data.shape[1:])
    return ((CONJUGATE,) if lazy else ()) + (() if plain else strides)


def layout_for_all(tensor: Tensor) -> Layout:
    """The same of a tensor that all threads share, as that of the column that it would make."""
    if tensor.layout is not torch.strided:
        return ()
    is_plain = tensor.is_contiguous() and not tensor.is_conj()
    return () if is_plain else layout_of(tensor[None])


def contiguous(shape: Sequence[int]) -> Strides:
    """The strides of a contiguous tensor, 0 where a size is 1."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(range(len(shape))):
        if shape[dim] != 1:
            strides[dim] = step
            step *= shape[dim]
    return tuple(strides)


def repeats(data: Tensor) -> bool:
    """Whether rows have an element more than once, as the program at work sees."""
    gaps = gaps_of(data)
    return gaps is not None and are_seen() and overlap(data.shape[1:], gaps)


def overlap(shape: Sequence[int], strides: Strides) -> bool:
    """Whether two elements may be one place in memory."""
    end = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride <= end:
                return True
            end += stride * (size - 1)
    return False


def with_gaps(rows: Tensor, strides: Strides) -> Tensor:
    """The same rows with these strides; what they repeat, they have once."""
    k, shape = rows.shape[0], rows.shape[1:]
    once = [1 if stride == 0 else size for size, stride in zip(shape, strides, strict=True)]
    step = 1 + sum((size - 1) * stride for size, stride in zip(once, strides, strict=True))
    first = rows[(slice(None), *map(slice, once))]
    if overlap(once, strides):
        whole = at_places(first, strides, step)
    else:
        whole = rows.new_zeros(k, step)
        whole.as_strided((k, *once), (step, *strides)).copy_(first)
    return whole.as_strided((k, *shape), (step, *strides))


def at_places(rows: Tensor, strides: Strides, step: int) -> Tensor:
    """The memory ``[k, step]`` of rows of these strides, some of whose elements are one place."""
    places = [0]
    for size, stride in zip(rows.shape[1:], strides, strict=True):
        places = [place + at * stride for place in places for at in range(size)]
    firsts: dict[int, int] = {}
    for element, place in enumerate(places):
        firsts.setdefault(place, element)
    at = torch.tensor(list(firsts), device=rows.device)
    flat = rows.flatten(1)[:, list(firsts.values())]
    return rows.new_zeros(len(rows), step).index_copy(1, at, flat)


_AT_WORK: ContextVar[Callable[[], bool] | None] = ContextVar("autobatch.layouts", default=None)


def carried(job: Callable[[], T]) -> Callable[[], T]:
    """``job`` as the program at work here has it, in another host thread."""
    by = _AT_WORK.get()

    def run() -> T:
        with nullcontext() if by is None else seen(by):
            return job()

    return run


@contextmanager
def seen(by: Callable[[], bool]) -> Iterator[None]:
    """Inside, ``by`` says whether the program at work sees layouts."""
    token = _AT_WORK.set(by)
    try:
        yield
    finally:
        _AT_WORK.reset(token)


def are_seen() -> bool:
    """Whether there is a program at work that sees layouts."""
    by = _AT_WORK.get()
    return by is not None and by()


def seen_layout(data: Tensor) -> Layout:
    """The layout of a column's rows if the program at work sees it."""
    if data.layout is torch.strided and data.is_contiguous() and not data.is_conj():
        return ()
    found = layout_of(data)
    return found if found and are_seen() else ()


def seen_for_all(tensor: Tensor) -> Layout:
    """The same of a tensor that all threads share."""
    found = layout_for_all(tensor)
    return found if found and are_seen() else ()
