"""``x[index]`` where ``x`` or parts of the index differ by thread.

Under vmap a 0-d integer index asks for ``.item()``, and an assignment through index tensors may be
laid out wrongly, so indices are read here. For one example an index is a series of basic parts
(int, slice, None, Ellipsis), which make a view, and of integer tensors, which gather from it; a 0-d
tensor counts as an int, and a bool is an index tensor of one zero, or of none, into a new
dimension. For all threads the basic parts stand one dimension further on, and a row
index ``arange(k)`` joins the tensors (x is ``[k, a, b]``, i ``[k]``, t ``[k, n]``):

    x[:, i]  ->  x[rows, :, i]             [k, a]
    x[:, t]  ->  x[rows[:, None], :, t]    [k, n, a], moved to [k, a, n]

torch puts the gathered dimensions first when the tensors do not stand side by side, which the row
index sees to; where one example's do stand side by side they are moved back to their place. What
would be ragged (a slice with a thread's own bounds, a thread's own mask) is a ``NoRule``.
``assignment`` writes through the same plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.applying.index_parts import ALL, free_of, parts_of, takes
from autobatch.batching.levels import Batched, event_dim, has_batched
from autobatch.presence import moves

LONG_ROW = 16
"""Elements from which a row is copied whole, by a kernel that needs its number to be from 0 on."""


@dataclass(frozen=True, slots=True)
class Plan:
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
        return all(type(part) is slice and part == ALL for part in self.basic)


def getitem(x: Any, index: Any, k: int) -> Any:
    """``x[index]`` for each thread, indices unchecked (out of range fails as torch fails)."""
    if not has_batched(x, index):
        return x[index]
    return _read(x, plan_of(event_dim(x), parts_of(x, index)), k)


def getitem_checked(x: Any, index: Any, k: int, inside: bool = False) -> tuple[Any, Tensor | None]:
    """``getitem`` with the integers of index tensors clamped into range.

    The second result says in which rows (``[k]``) one was out of range, None if no row can be;
    such a row holds an arbitrary value. On CUDA an index out of range ends the process, so it
    must never reach a kernel. ``inside``: it is known that none is.
    """
    if not has_batched(x, index):
        return x[index], None
    if inside:
        return _read(x, plan_of(event_dim(x), parts_of(x, index)), k, in_range=True), None
    x, parts, failed = checked(x, parts_of(x, index), k)
    return _read(x, plan_of(event_dim(x), parts), k, in_range=True), failed


def plan_of(dims: int, parts: list[Any]) -> Plan:
    """The plan of an index into ``dims`` dimensions."""
    free = free_of(dims, parts)
    basic: list[Any] = []
    tensors: dict[int, Batched | Tensor] = {}
    dim = 0
    for part in parts:
        if isinstance(part, Batched | Tensor):
            tensors[dim] = part
            part = ALL
        elif isinstance(part, bool):
            tensors[dim] = torch.zeros(int(part), dtype=torch.int64, device="cpu")
            part = None
        basic.append(part)
        if part is Ellipsis:
            dim += free
        elif part is None or isinstance(part, slice):
            dim += 1
    gathered = max((event_dim(tensor) for tensor in tensors.values()), default=0)
    return Plan(tuple(basic), tensors, gathered, _place(tensors))


def _place(tensors: dict[int, Batched | Tensor]) -> int:
    """Where one example has the gathered dimensions: where the tensors stand, if side by side."""
    gathering = [place for place, tensor in tensors.items() if event_dim(tensor) > 0]
    if not gathering:
        return 0
    selected = [place for place in tensors if place not in gathering]
    kept = [place - sum(other < place for other in selected) for place in gathering]
    return kept[0] if kept == list(range(kept[0], kept[0] + len(kept))) else 0


def _rows(x: Tensor, index: Tensor, in_range: bool) -> Tensor:
    """``x[index]``; rows that are no mere numbers by the kernel that copies them whole."""
    if in_range and index.dim() == 1 and x[0].numel() >= LONG_ROW:
        return x.index_select(0, index.remainder(x.shape[0]))
    return x[index]


def _read(x: Any, plan: Plan, k: int, in_range: bool = False) -> Any:
    if type(x) is not Batched:
        if plan.is_whole and list(plan.tensors) == [0]:
            return Batched(_rows(x, plan.tensors[0].data, in_range))
        x = Batched(x.expand(k, *x.shape))
    view = x.data if plan.is_whole else x.data[(ALL, *plan.basic)]
    if not plan.tensors:
        return Batched(view)
    out = moves.kept(view[full_index(view, plan, k)])
    return Batched(moved(out, 1, 1 + plan.place, plan.gathered))


def full_index(view: Tensor, plan: Plan, k: int) -> tuple[Any, ...]:
    """Rows and tensors, lined up to broadcast as ``[k, *gathered]``; slices for the rest."""
    full: list[Any] = [ALL] * view.dim()
    full[0] = torch.arange(k, device=view.device).reshape((k, *(1,) * plan.gathered))
    for place, tensor in plan.tensors.items():
        data = tensor.data
        if type(tensor) is Batched:
            data = data.reshape((k, *(1,) * (plan.gathered - data.dim() + 1), *data.shape[1:]))
        full[1 + place] = data
    return tuple(full)


def moved(data: Tensor, start: int, end: int, count: int) -> Tensor:
    """``count`` dimensions from ``start`` moved to ``end``."""
    if start == end or count == 0:
        return data
    return data.movedim(tuple(range(start, start + count)), tuple(range(end, end + count)))


def checked(x: Any, parts: list[Any], k: int) -> tuple[Any, list[Any], Tensor | None]:
    """The operands with every tensor's integers in range, and the rows that had one out."""
    free = free_of(event_dim(x), parts)
    dim = 1 if type(x) is Batched else 0
    failed: Tensor | None = None
    inner: list[Any] = []
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
            bad = in_any(bad) if own else bad.any().expand(k)
            failed = bad if failed is None else failed | bad
        inner.append(part)
        dim += free if part is Ellipsis else takes(part)
    return x, inner, failed


def in_any(bad: Tensor) -> Tensor:
    """The threads in which an index has a fault, ``[k]``; there may be no threads."""
    return bad.flatten(1).any(1) if bad.dim() > 1 else bad


def _with_one(x: Any, dim: int) -> Any:
    """Zeros like ``x`` with one element in the empty dimension that was indexed."""
    shape = list(x.data.shape)
    shape[dim] = 1
    zeros = x.data.new_zeros(shape)
    return Batched(zeros) if type(x) is Batched else zeros
