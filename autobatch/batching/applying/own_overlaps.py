"""The overlaps of ``overlaps``, of parts that a thread's own numbers pick.

In: the cell to write, the operands and an index. Out: in which threads torch refuses the write,
told from where in memory each element of the parts lies.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor

from autobatch.batching.applying import vmapped
from autobatch.batching.applying.overlaps import (
    Varies,
    gathers,
    masks,
    outline,
    plain,
    root_of,
    ungathered,
)
from autobatch.batching.levels import Batched
from autobatch.batching.trees import tree_of
from autobatch.values.cells import Cell, Column, Uniform, View, read
from autobatch.values.heap import walks

CLASH = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
    "single memory location. Please clone() the tensor before performing the operation."
)
"""What torch says of it."""


def own_overlap(
    target: Cell,
    operands: Iterable[Cell],
    index: Cell | None,
    k: int,
    copies: bool = False,
    is_window: bool = False,
) -> Tensor | None:
    """In which threads torch refuses a write, bools ``[k]``; None where it refuses in none.

    For parts that lie elsewhere by thread, of a length that all have; ``Unknown`` for others.
    ``copies``: the operand is copied, where torch looks at what it is broadcast to; ``is_window``:
    the index stands for slices of each thread's own.
    """
    root = root_of(target)
    parts = [part for cell in operands for part in walks.parts(cell)]
    others = [part for part in parts if part is not target or index is not None]
    others = [part for part in others if root_of(part) is root]
    known: dict[int, Tensor | None] = {}
    varies = index is not None and varied(index)
    through = index is not None and not is_window and gathers(index)
    others = [
        part
        for part in others
        if (varies or outline(target, known) is None or outline(part, known) is None)
        and (through or not are_apart(target, index, part))
    ]
    if not others or not k:
        return None
    if through and masks(index):  # type: ignore[arg-type]
        raise Unknown
    own = written_places(target, index, through, k)
    looks = partial(clash, own, copies=copies and not through, through=through)
    refused = [looks(places(part, k)) for part in others]
    found = [each for each in refused if each is not None]
    return torch.stack(found).any(0) if found else None


def written_places(target: Cell, index: Cell | None, through: bool, k: int) -> Tensor:
    """Where what is written lies, ``[k, *E]``; ``through`` what gathers, all that may be."""
    own = places(target, k)
    if index is not None:
        basic = partial(tree_of, like=None)
        tree = ungathered(index, basic) if through else basic(index)
        own = vmapped.apply(operator.getitem, (Batched(own), tree), {}, k).data
    return own


def varied(index: Cell) -> bool:
    if gathers(index):
        return True
    try:
        plain(index)
    except Varies:
        return True
    return False


def are_apart(target: Cell, index: Cell | None, part: Cell) -> bool:
    """Whether two parts are one and the same or have no element in common, wherever they lie."""
    view = part.value
    if type(view) is not View:
        return False
    if view.recipe.key == getattr(target.value, "recipe", view.recipe).key and part is target:
        return True
    if index is not None and view.base is target and view.args == (index,):
        return True  # ``y[k] += x``: what has just been written in place is written again
    first = index is not None and is_first(index) and view.base is target
    return first and len(view.args) <= 1 and all(map(is_first, view.args))


def is_first(index: Cell) -> bool:
    """Whether an index is one place of the first dimension."""
    value = index.value
    if type(value) is Column:
        return value.table.dim() == 1 and not value.table.dtype.is_floating_point
    return type(value) is Uniform and type(value.obj) is int


class Unknown(Exception):
    """Where parts lie is not told in one tensor for all threads."""


def places(cell: Cell, k: int) -> Tensor:
    """Where in its root's memory each element of a thread's tensor lies, ``[k, *E]``."""
    match cell.value:
        case View(base=base, recipe=recipe, args=args):
            part = recipe.read(Column(places(base, k)), [read(arg) for arg in args])
            if type(part) is Column:
                return part.data
            if type(part) is Uniform and isinstance(part.obj, Tensor):
                return part.obj.expand(k, *part.obj.shape)
            raise Unknown
        case Column(event_shape=shape, data=data) | Uniform(obj=Tensor(shape=shape) as data):
            line = torch.arange(math.prod(shape), device=data.device).reshape(1, *shape)
            return line.expand(k, *shape).contiguous()
    raise Unknown


def clash(one: Tensor, other: Tensor, copies: bool, through: bool) -> Tensor | None:
    """Whether places ``[k, *E]`` of two parts are of dense ones that overlap.

    Of the same part torch refuses only a write ``through`` what gathers; what is of another shape,
    or lies otherwise, is not the same.
    """
    alike = one.shape == other.shape
    one, other = (each.reshape(len(each), -1) for each in (one, other))
    if not one.shape[1] or not other.shape[1] or (copies and one.shape != other.shape):
        return None
    (begin, end), (start, stop) = one.aminmax(dim=1), other.aminmax(dim=1)
    dense = (end - begin == one.shape[1] - 1) & (stop - start == other.shape[1] - 1)
    met = dense & (begin <= stop) & (start <= end)
    if through or not (alike or copies):
        return met
    return met & (one != other).any(1)
