"""torch's functions on operands that do not stack: once for the threads whose operands are alike.

In: tensors of different lengths or shapes (packed, or objects), Python numbers of each thread's
own in places that want one for all (``x.view(n, 2)``, ``torch.ones(n, n)``). Threads whose
operands have the same shapes, dtypes and numbers run as one batched operation. Out: one tensor for
all where the results are of one shape, packed rows where only their first dimension differs,
otherwise stacks (``values.stacks``), which the next operation takes as they are. Where hardly two
threads are alike, it goes thread by thread.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context, RowsFail
from autobatch.batching.host.from_rows import from_rows
from autobatch.batching.host.rower import Rower
from autobatch.batching.raising import lose_context
from autobatch.batching.tensors.aliases import by_thread, has_view, linked
from autobatch.batching.trees import is_plain
from autobatch.presence import moves
from autobatch.values import grouping, strides
from autobatch.values.cells import Cell, Column, Container, Objects, Uniform, read
from autobatch.values.layouts import seen_for_all, seen_layout
from autobatch.values.packs import is_packed

Apply = Callable[[Context, Callable[..., Any], list[Cell], dict[str, Cell], bool], Cell]
NO_STACK = "objects that do not stack"
BEFORE = frozenset({operator.getitem, Tensor.unsqueeze, torch.unsqueeze, torch.stack})
"""Functions that may put a dimension before the lengths."""
BEHIND = (
    "; it stays batched where the length is the first dimension: y[:, None], torch.stack(items, 1)"
)


@dataclass(frozen=True, slots=True)
class Operand:
    """``keys``: what must be equal for rows to run together, None if nothing need be.

    ``taken`` gives a cell for some rows that are alike.
    """

    keys: list[Any] | None
    taken: Callable[[list[int]], Cell]


def apply(
    context: Context,
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    run: Apply,
    why: str = NO_STACK,
) -> Cell:
    """A pure function, by ``run`` for the threads of each signature; ``why`` it is not for all."""
    rower = Rower(context)
    cells = [*args, *kwargs.values()]
    operands = [operand(rower, cell) for cell in cells]
    groups = grouped(context.k, operands)
    if groups is None or not grouping.repays(groups, context.k):
        told = reason(rower, function, cells) if why == NO_STACK else why
        return by_thread(context, function, args, kwargs, told)
    outs: list[Cell] = []
    is_part, handled = False, sys.exception()
    for rows in groups:
        made = [given.taken(rows) for given in operands]
        part = context.restricted(rows)
        named = dict(zip(kwargs, made[len(args) :], strict=True))
        try:
            outs.append(run(part, function, made[: len(args)], named, False))
            part.flush()
            is_part |= is_part_of(outs[-1], made)
        except RowsFail as failure:
            raise RowsFail(rows[failure.row], failure.error) from failure.error
        except Exception as error:
            lose_context(error, handled)
            raise
    if len(groups) == 1 and not is_part:
        return outs[0]
    result = together(context, groups, outs)
    return linked(context, result, function, args, kwargs, why) if is_part else result


def reason(rower: Rower, function: Callable[..., Any], cells: Sequence[Cell]) -> str:
    """Why a function goes thread by thread: which tensors are ragged, and what is batched."""
    for cell in cells:
        held = (tensors_in(item) for item in rower.rows(cell))
        shapes = list(dict.fromkeys(tuple(tensor.shape) for own in held for tensor in own[:1]))
        if len(shapes) > 1:
            told = f"it gets ragged tensors, of shapes {shapes[0]}, {shapes[1]} and so on"
            return told + (BEHIND if function in BEFORE else "")
    return NO_STACK


def tensors_in(item: Any) -> list[Tensor]:
    """A tensor, or those in a list or tuple."""
    items = item if isinstance(item, tuple | list) else [item]
    return [each for each in items if isinstance(each, Tensor)]


def is_part_of(out: Cell, made: list[Cell]) -> bool:
    """Whether a result is a view, or an operand itself, or from before the call."""
    value = read(out)
    return has_view(out) or is_outside(value) or any(read(cell) is value for cell in made)


def is_outside(value: Any) -> bool:
    """Whether it is, or holds, a part of what existed before the call."""
    if type(value) is Container:
        return any(is_outside(read(cell)) for cell in value.children())
    if type(value) is Column:
        return value.outside is not False
    return type(value) is Uniform and value.shared and isinstance(value.obj, Tensor)


def grouped(k: int, operands: Sequence[Operand]) -> list[list[int]] | None:
    """The rows that run together; None where some never stack."""
    unlike = [given.keys for given in operands if given.keys is not None]
    if any(None in keys for keys in unlike):
        return None
    groups: dict[Any, list[int]] = {}
    for row, key in enumerate(zip(*unlike, strict=True) if unlike else [()] * k):
        groups.setdefault(key, []).append(row)
    return list(groups.values())


# Operands


def operand(rower: Rower, cell: Cell) -> Operand:
    value = read(cell)
    if type(value) is Uniform and (is_plain(value.obj) or isinstance(value.obj, Tensor)):
        return Operand(None, lambda _: Cell(value))
    if type(value) is Column and value.tag == "tensor" and value.outside is False:
        return Operand(None, lambda rows: Cell(Column(at_rows(value, rows))))
    if type(value) is Objects and (stacks := value.stacks) is not None:
        return Operand(stacks.signatures(), lambda rows: Cell(Column(stacks.taken(rows))))
    items = rower.rows(cell)
    return Operand(list(map(row_key, items)), lambda rows: stacked([items[row] for row in rows]))


def at_rows(column: Column, rows: list[int]) -> Tensor:
    return moves.taken(column.data, torch.tensor(rows, device=column.table.device))


def row_key(item: Any) -> Any:
    """What must be equal for two rows' operands to stack; None if they never do."""
    if isinstance(item, Tensor):
        return (item.dtype, item.shape, item.device, seen_for_all(item))
    if item is None or isinstance(item, int | float | str | torch.dtype | slice):
        return (type(item), str(item))
    if isinstance(item, tuple | list):
        parts = tuple(map(row_key, item))
        return None if None in parts else (type(item), parts)
    return None


def stacked(items: list[Any]) -> Cell:
    first = items[0]
    if isinstance(first, Tensor):
        rows = strides.stacked(items)
        assert rows is not None  # they are alike
        return Cell(Column(rows))
    if isinstance(first, tuple | list):
        parts = [stacked(list(part)) for part in zip(*items, strict=True)]
        return Cell(Container(type(first), parts))
    return Cell(Uniform(first))


# Results


def together(context: Context, groups: list[list[int]], outs: list[Cell]) -> Cell:
    """One cell for what the threads of each group have got."""
    values: list[Any] = list(map(read, outs))
    first = values[0]
    if type(first) is Container and isinstance(first.cells, list):
        alike = {(type(v), getattr(v, "type", None)) for v in values} == {(Container, first.type)}
        if alike and len({len(value.cells) for value in values}) == 1 and is_tuple(first.type):
            columns = zip(*(value.cells for value in values), strict=True)
            return Cell(first.rebuilt(together(context, groups, list(part)) for part in columns))
    tensors = [tensor_of(value, len(rows)) for value, rows in zip(values, groups, strict=True)]
    if all(isinstance(tensor, Tensor) for tensor in tensors) and are_laid_alike(tensors):  # type: ignore[arg-type]
        found = grouping.together(list(zip(groups, tensors, strict=True)))  # type: ignore[arg-type]
        if is_packed(found):
            context.counter.launch()
        return Cell(found)
    results: list[Any] = [None] * context.k
    for rows, out in zip(groups, outs, strict=True):
        for row, item in zip(rows, Rower(context.restricted(rows)).rows(out), strict=True):
            results[row] = item
    return from_rows(context, results)


def are_laid_alike(tensors: Sequence[Tensor]) -> bool:
    """Whether the program sees no layouts, or that these are of one."""
    return not any(map(seen_layout, tensors))


def is_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple)


def tensor_of(value: Any, k: int) -> Tensor | None:
    """The tensors of some threads, none of them from before the call, ``[k, *E]``."""
    if type(value) is Column and value.tag == "tensor" and value.outside is False:
        return value.data if value.table.layout is torch.strided else None
    obj = value.obj if type(value) is Uniform and not value.shared else None
    if isinstance(obj, Tensor) and obj.layout is torch.strided:
        return obj.expand(k, *obj.shape)
    return None
