"""``x[index]`` and ``x[index] = value`` where ``x``, parts of the index or the value differ by thread.

Under vmap a 0-d integer index asks for ``.item()``, and an assignment through index tensors may be
laid out wrongly, so indices are read here. For one example an index is a series of basic parts (int,
slice, None, Ellipsis), which make a view, and of integer tensors, which gather from it; a 0-d tensor
counts as an int. For all threads the basic parts stand one dimension further on, and a row index
``arange(k)`` joins the tensors:

    x[:, i]   with x ``[k, a, b]`` and i ``[k]``     ->  x[rows, :, i]            [k, a]
    x[:, t]   with x ``[k, a, b]`` and t ``[k, n]``  ->  x[rows[:, None], :, t]   [k, n, a] -> [k, a, n]

torch puts the gathered dimensions first when the tensors do not stand side by side, which the row
index sees to; where one example's do stand side by side they are moved back to their place. What
would be ragged (a slice with a thread's own bounds, a thread's own mask) is a ``NoRule``, except a
mask that is assigned to, which is a ``where``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.levels import Batched, NoRule, has_batched

_INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8})
_SMALL = frozenset({torch.int16, torch.int8})
_MASKS = frozenset({torch.bool, torch.uint8})
_ALL = slice(None)


@dataclass(frozen=True, slots=True)
class _Plan:
    """An index taken apart, for one example.

    ``basic`` has a full slice where a tensor stands; ``tensors`` says at which dimension of
    ``x[basic]`` each does. ``gathered`` is how many dimensions the tensors make, which end up at
    ``place`` of the result.
    """

    basic: tuple[Any, ...]
    tensors: dict[int, Batched | Tensor]
    gathered: int
    place: int

    @property
    def is_whole(self) -> bool:
        """Whether the basic parts leave ``x`` as it is."""
        return all(type(part) is slice and part == _ALL for part in self.basic)


def getitem(x: Any, index: Any, k: int) -> Any:
    """``x[index]`` for each thread, indices unchecked (out of range fails as torch fails)."""
    if not has_batched(x, index):
        return x[index]
    return _read(x, _plan(_event_dim(x), _parts(index)), k)


def getitem_checked(x: Any, index: Any, k: int) -> tuple[Any, Tensor | None]:
    """``getitem`` with the integers of index tensors clamped into range.

    The second result says in which rows (``[k]``) one was out of range, None if no row can be;
    such a row holds an arbitrary value. On CUDA an index out of range ends the process, so it
    must never reach a kernel.
    """
    if not has_batched(x, index):
        return x[index], None
    x, parts, failed = _check(x, _parts(index), k)
    return _read(x, _plan(_event_dim(x), parts), k), failed


def setitem(x: Batched, index: Any, value: Any, k: int) -> Batched:
    """``x`` after ``x[index] = value``; ``x`` itself must be private: it may be written."""
    mask = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    if type(mask) is Batched and mask.data.dtype in _MASKS:
        return _set_masked(x, mask, value)
    return _write(x, _plan(_event_dim(x), _parts(index)), value, k)


def setitem_checked(x: Batched, index: Any, value: Any, k: int) -> tuple[Batched, Tensor | None]:
    """``setitem`` as ``getitem_checked`` reads: a failed row holds an arbitrary value."""
    if type(index) is Batched and index.data.dtype in _MASKS:
        return setitem(x, index, value, k), None
    x, parts, failed = _check(x, _parts(index), k)
    return _write(x, _plan(_event_dim(x), parts), value, k), failed


def _parts(index: Any) -> list[Any]:
    """The index as basic parts and integer tensors."""
    parts: list[Any] = []
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, list):
            if has_batched(part):
                raise NoRule("a list of the thread's own numbers or tensors as an index")
            part = torch.tensor(part)
        if isinstance(part, slice) and has_batched(part):
            raise NoRule("a slice whose bounds differ by thread gives rows of unequal length")
        if not isinstance(part, Batched | Tensor):
            parts.append(part)
        elif part.data.dtype in _INTEGERS:
            small = part.data.dtype in _SMALL and _event_dim(part) == 0
            parts.append(_long(part) if small else part)
        elif part.data.dtype not in _MASKS:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        elif type(part) is Batched or part.dim() == 0:  # type: ignore[union-attr]
            raise NoRule("a mask that differs by thread gives rows of unequal length")
        else:
            parts += torch.nonzero(part, as_tuple=True)  # type: ignore[arg-type]
    return parts


def _long(part: Batched | Tensor) -> Batched | Tensor:
    """A 0-d integer of any width selects; index kernels want 32 bits or more."""
    return Batched(part.data.long()) if type(part) is Batched else part.data.long()


def _event_dim(x: Any) -> int:
    return int(x.data.dim() - (type(x) is Batched))


def _takes(part: Any) -> bool:
    """Whether a part consumes a dimension."""
    return not (part is None or part is Ellipsis or isinstance(part, bool))


def _free(event_dim: int, parts: list[Any]) -> int:
    """How many dimensions an ellipsis stands for."""
    free = event_dim - sum(map(_takes, parts))
    if free < 0:
        raise IndexError(f"too many indices for tensor of dimension {event_dim}")
    return free


def _plan(event_dim: int, parts: list[Any]) -> _Plan:
    free = _free(event_dim, parts)
    basic: list[Any] = []
    tensors: dict[int, Batched | Tensor] = {}
    dim = 0
    for part in parts:
        if isinstance(part, Batched | Tensor):
            tensors[dim] = part
            part = _ALL
        basic.append(part)
        if part is Ellipsis:
            dim += free
        elif part is None or isinstance(part, bool | slice):
            dim += 1
    gathering = [place for place, tensor in tensors.items() if _event_dim(tensor) > 0]
    gathered = max((_event_dim(tensor) for tensor in tensors.values()), default=0)
    place = 0
    if gathering:
        selected = [place for place in tensors if place not in gathering]
        kept = [place - sum(other < place for other in selected) for place in gathering]
        side_by_side = kept == list(range(kept[0], kept[0] + len(kept)))
        place = kept[0] if side_by_side else 0
    return _Plan(tuple(basic), tensors, gathered, place)


def _read(x: Any, plan: _Plan, k: int) -> Any:
    if type(x) is not Batched:
        if plan.is_whole and list(plan.tensors) == [0]:
            return Batched(x[plan.tensors[0].data])
        x = Batched(x.expand(k, *x.shape))
    view = x.data if plan.is_whole else x.data[(_ALL, *plan.basic)]
    if not plan.tensors:
        return Batched(view)
    out = view[_full_index(view, plan, k)]
    return Batched(_moved(out, 1, 1 + plan.place, plan.gathered))


def _full_index(view: Tensor, plan: _Plan, k: int) -> tuple[Any, ...]:
    """Rows and tensors, lined up to broadcast as ``[k, *gathered]``; slices for the other dimensions."""
    full: list[Any] = [_ALL] * view.dim()
    full[0] = torch.arange(k, device=view.device).reshape((k, *(1,) * plan.gathered))
    for place, tensor in plan.tensors.items():
        data = tensor.data
        if type(tensor) is Batched:
            data = data.reshape((k, *(1,) * (plan.gathered - data.dim() + 1), *data.shape[1:]))
        full[1 + place] = data
    return tuple(full)


def _moved(data: Tensor, start: int, end: int, count: int) -> Tensor:
    """``count`` dimensions from ``start`` moved to ``end``."""
    if start == end or count == 0:
        return data
    return data.movedim(tuple(range(start, start + count)), tuple(range(end, end + count)))


def _write(x: Batched, plan: _Plan, value: Any, k: int) -> Batched:
    view = x.data if plan.is_whole else x.data[(_ALL, *plan.basic)]
    if not plan.tensors:
        view.copy_(_tensor(_aligned(value, view.dim() - 1, x.data), x.data))
        return x
    if plan.gathered and isinstance(value, Batched | Tensor) and value.data.dtype != x.data.dtype:
        raise NoRule("an assignment through an index tensor, of another dtype")
    event = view.dim() - 1 - len(plan.tensors) + plan.gathered
    new = _tensor(_aligned(value, event, x.data), x.data)
    if plan.gathered and plan.place and new.dim() > 0:
        new = new.reshape((*(1,) * (event + 1 - new.dim()), *new.shape))
        new = _moved(new, 1 + plan.place, 1, plan.gathered)
    view[_full_index(view, plan, k)] = new
    return x


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
    return data.reshape((*data.shape[:own], *(1,) * (-extra * own), *data.shape[own:]))


def _tensor(value: Any, like: Tensor) -> Tensor:
    """A value to be assigned, if a number then in the target's dtype."""
    if isinstance(value, Tensor):
        return value
    return torch.full((), value, dtype=like.dtype, device=like.device)


def _set_masked(x: Batched, mask: Batched, value: Any) -> Batched:
    """``x[mask] = value`` is a ``where`` as long as the value does not run over the true places."""
    target, bits = x.data, mask.data.bool()
    depth = bits.dim() - 1
    if bits.shape[1:] != target.shape[1 : 1 + depth]:
        raise NoRule("the mask's shape is not that of the tensor it indexes")
    trailing = target.dim() - 1 - depth
    if isinstance(value, Batched | Tensor) and _event_dim(value) > trailing:
        raise NoRule("a mask that differs by thread takes a different number of values")
    if isinstance(value, Batched | Tensor) and value.data.dtype != target.dtype:
        if _event_dim(value) > 0:
            raise NoRule("an assignment through a mask, of another dtype")
    new = _tensor(_aligned(value, target.dim() - 1, target), target)
    return Batched(torch.where(bits.reshape((*bits.shape, *(1,) * trailing)), new, target))


def _check(x: Any, parts: list[Any], k: int) -> tuple[Any, list[Any], Tensor | None]:
    """The operands with every tensor's integers in range, and the rows that had one out."""
    free = _free(_event_dim(x), parts)
    dim = 1 if type(x) is Batched else 0
    failed: Tensor | None = None
    checked: list[Any] = []
    for part in parts:
        if isinstance(part, Batched | Tensor):
            if x.data.shape[dim] == 0:
                x = _with_one(x, dim)
                inside, bad = torch.zeros_like(part.data), torch.ones_like(part.data).bool()
            else:
                inside = part.data.clamp(-x.data.shape[dim], x.data.shape[dim] - 1)
                bad = inside != part.data
            own = type(part) is Batched
            part = Batched(inside) if own else inside
            bad = bad.reshape(k, -1).any(1) if own else bad.any().expand(k)
            failed = bad if failed is None else failed | bad
        checked.append(part)
        dim += free if part is Ellipsis else _takes(part)
    return x, checked, failed


def _with_one(x: Any, dim: int) -> Any:
    """Zeros like ``x`` with one element in the empty dimension that was indexed."""
    shape = list(x.data.shape)
    shape[dim] = 1
    zeros = x.data.new_zeros(shape)
    return Batched(zeros) if type(x) is Batched else zeros
