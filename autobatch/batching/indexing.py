"""``x[index]`` and ``x[index] = value`` where ``x``, parts of the index or the value differ by thread.

Under vmap a 0-d integer index asks for ``.item()``, so indices are read here. For one example an
index is a series of basic parts (int, slice, None, Ellipsis) and of tensors; a 0-d integer tensor
counts as an int. An int that differs by thread becomes one gather over (thread, index):

    x[:, i]   with x ``[k, a, b]`` and i ``[k]``  ->  x.movedim(2, 1)[arange(k), i]
    w[i]      with w the same for all threads     ->  w[i]

Basic parts alone index the physical tensor, one dimension further on. Index tensors go to vmap's
rules. What would be ragged (a slice with a thread's own bounds, a thread's own mask) is a
``NoRule``, except a mask that is assigned to, which is a ``where``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.levels import Batched, NoRule, has_batched, level

_INDEX_DTYPES = frozenset({torch.int64, torch.int32, torch.int16, torch.int8})


@dataclass(frozen=True, slots=True)
class _Split:
    """An index taken apart: ``basic`` has a full slice at each of ``places``.

    ``places[j]`` is the dimension, of ``x[basic]`` for one example, that ``picks[j]`` selects from.
    """

    basic: tuple[Any, ...]
    places: tuple[int, ...]
    picks: tuple[Batched, ...]


def getitem(x: Any, index: Any, k: int) -> Any:
    """``x[index]`` for each thread, indices unchecked (out of range fails as torch fails)."""
    parts = _parts(index)
    if not any(_is_pick(part) for part in parts):
        return _getitem_plain(x, parts, k)
    if _has_tensors(parts):
        return _getitem_in_turn(x, parts, k)
    split = _split(x, parts)
    return _gather(_basic(x, split.basic), split, k)


def getitem_checked(x: Any, index: Any, k: int) -> tuple[Any, Tensor | None]:
    """``getitem`` with each thread's own integers clamped into range.

    The second result says in which rows (``[k]``) one was out of range, None if no row can be;
    such a row holds an arbitrary value. On CUDA an index out of range ends the process, so it
    must never reach a kernel.
    """
    x, parts, failed = _check(x, _parts(index))
    return getitem(x, parts, k), failed


def setitem(x: Batched, index: Any, value: Any, k: int) -> Batched:
    """``x`` after ``x[index] = value``; ``x`` itself must be private: it may be written."""
    parts = _parts(index)
    if len(parts) == 1 and _is_mask(parts[0]):
        return _set_masked(x, parts[0], value)
    if not any(_is_pick(part) for part in parts):
        _setitem_plain(x, parts, value, k)
        return x
    if _has_tensors(parts):
        raise NoRule("an index mixes a thread's own integer with index tensors in an assignment")
    split = _split(x, parts)
    region = _fronted(x.data[(slice(None), *split.basic)], split, 1)
    rows = torch.arange(k, device=x.data.device)
    place = (rows, *(pick.data for pick in split.picks))
    region[place] = _aligned(value, region.dim() - len(split.places) - 1, x.data)
    return x


def setitem_checked(x: Batched, index: Any, value: Any, k: int) -> tuple[Batched, Tensor | None]:
    """``setitem`` as ``getitem_checked`` reads: a failed row holds an arbitrary value."""
    x, parts, failed = _check(x, _parts(index))
    return setitem(x, parts, value, k), failed


def _parts(index: Any) -> tuple[Any, ...]:
    parts = tuple(index) if isinstance(index, tuple) else (index,)
    for part in parts:
        if isinstance(part, slice) and has_batched(part):
            raise NoRule("a slice whose bounds differ by thread gives rows of unequal length")
        if type(part) is Batched and part.data.dtype is torch.bool and part.data.dim() == 1:
            raise NoRule("a bool that differs by thread gives rows of unequal shape")
    return tuple(_list_to_tensor(part) if isinstance(part, list) else part for part in parts)


def _list_to_tensor(part: list[Any]) -> Any:
    """``x[[i, j]]``: a list of integers is an index tensor."""
    if not has_batched(part):
        return part
    rows = [leaf.data if type(leaf) is Batched else leaf for leaf in part]
    like = next(row for row in rows if isinstance(row, Tensor) and row.dim() == 1)
    columns = [
        row if isinstance(row, Tensor) and row.dim() == 1 else torch.full_like(like, row)
        for row in rows
    ]
    return Batched(torch.stack(columns, 1))


def _is_pick(part: Any) -> bool:
    """An int of the thread's own: selects from one dimension and drops it."""
    return type(part) is Batched and part.data.dim() == 1 and part.data.dtype in _INDEX_DTYPES


def _is_index(part: Any) -> bool:
    return type(part) is Batched and part.data.dtype in _INDEX_DTYPES


def _is_mask(part: Any) -> bool:
    return isinstance(part, Batched | Tensor) and part.data.dtype in (torch.bool, torch.uint8)


def _has_tensors(parts: tuple[Any, ...]) -> bool:
    """Whether torch would use advanced indexing for other parts than the picks."""
    return any(
        isinstance(part, list | Batched) or (isinstance(part, Tensor) and part.dim() > 0)
        for part in parts
        if not _is_pick(part)
    )


def _event_dim(x: Any) -> int:
    return int(x.data.dim() - 1 if type(x) is Batched else x.dim())


def _taken(part: Any) -> int:
    """How many dimensions of one example an index part consumes."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    if _is_mask(part):
        return int(part.data.dim() - (type(part) is Batched))
    return 1


def _split(x: Any, parts: tuple[Any, ...]) -> _Split:
    free = _event_dim(x) - sum(_taken(part) for part in parts)
    if free < 0:
        raise IndexError(f"too many indices for tensor of dimension {_event_dim(x)}")
    basic: list[Any] = []
    places: list[int] = []
    picks: list[Batched] = []
    dim = 0
    for part in parts:
        if _is_pick(part):
            places.append(dim)
            picks.append(part)
            part = slice(None)
        basic.append(part)
        if part is Ellipsis:
            dim += free
        elif part is None or isinstance(part, slice):
            dim += 1
    return _Split(tuple(basic), tuple(places), tuple(picks))


def _basic(x: Any, basic: tuple[Any, ...]) -> Any:
    if all(type(part) is slice and part == slice(None) for part in basic):
        return x
    if type(x) is Batched:
        return Batched(x.data[(slice(None), *basic)])
    return x[basic]


def _fronted(x: Tensor, split: _Split, start: int) -> Tensor:
    """``x`` with the picked dimensions first, from ``start`` on."""
    if split.places == tuple(range(len(split.places))):
        return x
    ends = tuple(range(start, start + len(split.places)))
    return x.movedim(tuple(start + place for place in split.places), ends)


def _gather(x: Any, split: _Split, k: int) -> Batched:
    picks = tuple(pick.data for pick in split.picks)
    if type(x) is Batched:
        rows = torch.arange(k, device=x.data.device)
        return Batched(_fronted(x.data, split, 1)[(rows, *picks)])
    return Batched(_fronted(x, split, 0)[picks])


def _getitem_plain(x: Any, parts: tuple[Any, ...], k: int) -> Any:
    """No part is an int of the thread's own."""
    if any(_is_mask(part) and (type(part) is Batched) for part in parts):
        raise NoRule("a mask that differs by thread gives rows of unequal length")
    if not _has_tensors(parts) and type(x) is Batched:
        return Batched(x.data[(slice(None), *parts)])
    with level(k) as threads:
        return threads.unwrap(threads.wrap(x)[threads.wrap(parts)])


def _getitem_in_turn(x: Any, parts: tuple[Any, ...], k: int) -> Any:
    """Ints select before tensors index, as torch does for one example."""
    first = tuple(part if _is_pick(part) or _taken(part) == 0 else slice(None) for part in parts)
    if any(_taken(part) > 1 for part in parts) or None in first:
        raise NoRule("an index mixes a thread's own integer with a mask or None")
    selected = getitem(x, first, k)
    rest = tuple(part for part in parts if not _is_pick(part))
    return getitem(selected, rest, k)


def _setitem_plain(x: Batched, parts: tuple[Any, ...], value: Any, k: int) -> None:
    if any(_is_mask(part) and (type(part) is Batched) for part in parts):
        raise NoRule("an assignment mixes a thread's own mask with other indices")
    if _has_tensors(parts):
        with level(k) as threads:
            threads.wrap(x)[threads.wrap(parts)] = threads.wrap(value)
        return
    region = x.data[(slice(None), *parts)]
    region[...] = _aligned(value, region.dim() - 1, x.data)


def _aligned(value: Any, event_dim: int, like: Tensor) -> Any:
    """A value to be assigned, its event dimensions lined up on the right as torch broadcasts."""
    if not isinstance(value, Batched | Tensor):
        return value
    own = 1 if type(value) is Batched else 0
    data = value.data.to(like.dtype)
    extra = data.dim() - own - event_dim
    while extra > 0 and data.shape[own] == 1:  # torch drops leading ones of an assigned value
        data, extra = data.squeeze(own), extra - 1
    if extra > 0:
        raise NoRule("the assigned value has more dimensions than the place it goes to")
    return data.reshape(*data.shape[:own], *(1,) * (-extra * own), *data.shape[own:])


def _set_masked(x: Batched, mask: Any, value: Any) -> Batched:
    """``x[mask] = value`` is a ``where`` as long as the value does not run over the true places."""
    target = x.data
    bits = (mask.data if type(mask) is Batched else mask.unsqueeze(0)).bool()
    depth = bits.dim() - 1
    if bits.shape[1:] != target.shape[1 : 1 + depth]:
        raise NoRule("the mask's shape is not that of the tensor it indexes")
    trailing = target.dim() - 1 - depth
    if isinstance(value, Batched | Tensor) and _event_dim(value) > trailing:
        raise NoRule("a mask that differs by thread takes a different number of values")
    new = _aligned(value, target.dim() - 1, target)
    if not isinstance(new, Tensor):
        new = torch.full((), new, dtype=target.dtype, device=target.device)
    return Batched(torch.where(bits.reshape(*bits.shape, *(1,) * trailing), new, target))


def _dims(x: Any, parts: tuple[Any, ...]) -> list[int]:
    """For each part the dimension of one example at which it starts."""
    free = _event_dim(x) - sum(_taken(part) for part in parts)
    if free < 0:
        raise IndexError(f"too many indices for tensor of dimension {_event_dim(x)}")
    dims = [0]
    for part in parts:
        dims.append(dims[-1] + (free if part is Ellipsis else _taken(part)))
    return dims[:-1]


def _check(x: Any, parts: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...], Tensor | None]:
    """The operands with every thread's own integers in range, and the rows that had one out."""
    start = 1 if type(x) is Batched else 0
    failed: Tensor | None = None
    checked: list[Any] = []
    for part, dim in zip(parts, _dims(x, parts), strict=True):
        if _is_index(part):
            size = x.data.shape[start + dim]
            if size == 0:
                x, size = _with_one(x, start + dim), 1
                bad = torch.ones_like(part.data, dtype=torch.bool)
                part = Batched(torch.zeros_like(part.data))
            else:
                inside = part.data.clamp(-size, size - 1)
                bad = inside != part.data
                part = Batched(inside)
            bad = bad if bad.dim() == 1 else bad.flatten(1).any(1)
            failed = bad if failed is None else failed | bad
        checked.append(part)
    return x, tuple(checked), failed


def _with_one(x: Any, dim: int) -> Any:
    """Zeros like ``x`` with one element in the empty dimension that was indexed."""
    shape = list(x.data.shape)
    shape[dim] = 1
    zeros = x.data.new_zeros(shape)
    return Batched(zeros) if type(x) is Batched else zeros
