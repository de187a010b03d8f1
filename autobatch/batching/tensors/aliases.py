"""Torch functions thread by thread, where their results may share memory with an operand.

``y = x[:n]`` with a thread's own ``n`` has no batched form, and for one example ``y`` still is a
view: ``y += 1`` changes ``x``. One thread's run shows which results share memory with which
operand; their cells become views of the operand's cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch import compat
from autobatch.batching.context import Context
from autobatch.batching.foreign import lent_by, memory_of
from autobatch.batching.host.rower import Rower
from autobatch.batching.host.rows import run_rows
from autobatch.batching.kinds import is_tensor
from autobatch.batching.tensors.views import TorchRecipe, mark_outside, viewed
from autobatch.batching.trace import Untraceable
from autobatch.random.drawing import is_named, serving, spare
from autobatch.values.cells import (
    Cell,
    Column,
    Container,
    Mark,
    Objects,
    Uniform,
    Value,
    View,
    read,
    seen,
    shown_memory,
)
from autobatch.values.heap import selecting
from autobatch.values.layouts import seen_for_all


def by_thread(
    context: Context,
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    why: str,
) -> Cell:
    """A pure torch function, thread by thread."""
    result = run_rows(context, function, args, kwargs, why)
    return linked(context, result, function, args, kwargs, why) if context.k else result


def linked(
    context: Context,
    result: Cell,
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    why: str,
) -> Cell:
    """``result`` with what shares memory with an operand, for one example, as views of it.

    Where the threads' results have no common structure, what they share is the rows' own memory.
    What a function that is given a closure of the program's gives back need not be a part of the
    operand in all threads: neither of the two may be written.
    """
    rower = Rower(context)
    computes = any(is_marked(read(arg)) for arg in (*args, *kwargs.values()))
    found = shared(rower, function, args, kwargs)
    if found is None:
        return of_own_memory(context, args, function, args, kwargs, why)
    for path, base in found.items():
        cell = at(result, path)
        origin = read(base)
        if cell is not None and is_from_outside(origin):
            mark_outside(cell.value, shown_memory(origin) or True)
        elif cell is not None and computes:
            tie(context, cell.value, [base])
        elif cell is not None:
            link(rower, cell, function, args, kwargs, base, path)
        elif not context.services.blind():
            return of_own_memory(context, [base], function, args, kwargs, why)
    return result


def is_from_outside(origin: Value) -> bool:
    """Whether what a result shares memory with existed before the call; a lender is no tensor."""
    if type(origin) is Objects:
        return not any(isinstance(item, Tensor) for item in origin.items)
    return not is_tensor(origin) or (type(origin) is Uniform and origin.shared)


def of_own_memory(
    context: Context,
    bases: list[Cell],
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    why: str,
) -> Cell:
    """The results of the rows' own tensors, in the memory of these where Python has them there."""
    rower = Rower(context, keep=True)
    for base in bases:
        if is_own(base) and not is_number(read(base)):
            rower.rows(base)
    return run_rows(context, function, args, kwargs, why, fresh=False)


def shared(
    rower: Rower, function: Callable[..., Any], args: list[Cell], kwargs: dict[str, Cell]
) -> dict[tuple[int, ...], Cell] | None:
    """Which results share memory with which operand, as rows show that have elements.

    Of a tensor without any, torch may give that itself where it gives a new one of others. None
    where that is not the same in all rows, and the program may see it: of rows that lie otherwise
    in memory, or are of another type, ``reshape`` or ``double`` gives a part of some and a new
    tensor of others.
    """
    rows = telling_rows(rower, [*args, *kwargs.values()])
    found = shared_at(rower, rows[0], function, args, kwargs)
    for row in () if rower.context.services.blind() else rows[1:]:
        if shared_at(rower, row, function, args, kwargs) != found:
            return None
    return found


def shared_at(
    rower: Rower,
    row: int,
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
) -> dict[tuple[int, ...], Cell]:
    first = Rower(rower.context.restricted([row]))
    cells = selecting.select([*args, *kwargs.values()], np.array([row]))
    source = rower.context.source()
    own = [at_hand(first.rows(cell)[0], source is not None) for cell in cells]
    own, named = own[: len(args)], dict(zip(kwargs, own[len(args) :], strict=True))
    with serving(source), spare():
        out = function(*own, **named)
    bases = {
        compat.storage_id(item): arg
        for item, arg in zip(own, args, strict=True)
        if is_strided(item) and item.numel() and is_own(arg)
    }
    lending = {place: arg for item, arg in zip(own, args, strict=True) for place in lent_by(item)}
    parts: dict[tuple[int, ...], Any] = {(): out} if isinstance(out, Tensor) else {}
    if isinstance(out, tuple | list):
        parts = {(place,): part for place, part in enumerate(out)}
    found: dict[tuple[int, ...], Cell] = {}
    for path, part in parts.items():
        if is_strided(part):
            base = bases.get(compat.storage_id(part)) or lending.get(memory_of(part))
            if base is not None:
                found[path] = base
    return found


def at_hand(item: Any, is_seeded: bool) -> Any:
    """What an operation is to be tried on: for a generator, another one that draws the same.

    Under a seed nothing draws from torch's own.
    """
    if not isinstance(item, torch.Generator) or (is_seeded and not is_named(item)):
        return item
    return item.clone_state()


def itself(cell: Cell) -> Cell:
    """The tensor that an operation gives back as it is: the cell of ``x``, for ``x.float()``."""
    while type(cell.value) is View and gives_base(cell.value):
        cell = cell.value.base
    return cell


@torch.no_grad()
def gives_base(view: View) -> bool:
    """Whether for one example a part of a tensor is that tensor, as the first row shows."""
    base = read(view.base)
    if type(base) is not Column or type(view.recipe) is not TorchRecipe or not len(base.data):
        return False
    own = base.data[0]
    return view.recipe.row(own, [first(read(arg)) for arg in view.args]) is own


def first(value: Value) -> Any:
    """What the first thread has of another operand."""
    if type(value) is Column:
        return value.data[0] if value.tag == "tensor" else value.data[0].item()
    return value.items[0] if type(value) is Objects else value.obj  # type: ignore[union-attr]


def telling_rows(rower: Rower, args: list[Cell]) -> list[int]:
    """The first row of each kind in which no operand is empty; row 0 where there is none."""
    columns = [kinds(rower, arg) for arg in args if type(read(arg)) is Objects]
    rows: dict[Any, int] = {}
    for row, key in enumerate(zip(*columns, strict=True)):
        if None not in key:
            rows.setdefault(key, row)
    return list(rows.values()) or [0]


def kinds(rower: Rower, arg: Cell) -> list[Any]:
    """What of each row tells whether a function gives a part of it; None of an empty one."""
    return [kind_of(item) for item in rower.rows(arg)]


def kind_of(item: Any) -> Any:
    if not isinstance(item, Tensor):
        return type(item)
    return (item.dtype, seen_for_all(item)) if item.numel() else None


def is_strided(item: Any) -> bool:
    return isinstance(item, Tensor) and item.layout is torch.strided


def is_own(cell: Cell) -> bool:
    return type(read(cell)) in (Column, Objects, Uniform)


def at(result: Cell, path: tuple[int, ...]) -> Cell | None:
    """A part of a result; None where the results of the threads have no common structure."""
    if not path:
        return result
    value = result.value
    if type(value) is Container and isinstance(value.cells, list):
        return value.cells[path[0]]
    return None


def link(
    rower: Rower,
    cell: Cell,
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    base: Cell,
    path: tuple[int, ...],
) -> None:
    """Make a result a view. Numbers among the operands stay on the host, where they are read."""
    made = viewed(function, args, kwargs, base, path)
    made.args = tuple(
        Cell(Objects(rower.rows(arg))) if is_number(read(arg)) else arg for arg in made.args
    )
    origin = read(base)
    if type(origin) is Column or (type(origin) is Objects and origin.stacks is not None):
        made.cache, made.seen = cell.value, seen(origin)
    cell.value = made


def is_number(value: Any) -> bool:
    return type(value) is Column and value.tag != "tensor"


def is_marked(value: Any) -> bool:
    """Whether a value is a closure, a bound method and the like: no Python container."""
    return type(value) is Container and type(value.type) is Mark


def has_view(cell: Cell) -> bool:
    value = cell.value
    if type(value) is Container:
        return any(map(has_view, value.children()))
    return type(value) is View


def tie(context: Context, result: Any, operands: list[Cell]) -> None:
    """Note that a tensor may be any of some others, so that none is written unseen."""
    if context.forecasts is not None:
        raise Untraceable("it may be one of its operands itself")
    values: list[Any] = [read(cell) for cell in operands]
    for cell in operands:
        base = base_of(cell)
        mark = {object()}
        if type(base) is not Objects:  # else the memory bears it (``batching.lent``)
            base.ties = mark = base.ties | mark
        result.ties = result.ties | mark
    if type(result) is Column:
        outside = (np.any(getattr(v, "outside", getattr(v, "shared", False))) for v in values)
        if not np.all(result.outside) and any(outside):
            result.outside = True


def base_of(cell: Cell) -> Any:
    """What holds the memory of a tensor."""
    while type(cell.value) is View:
        cell = cell.value.base
    return cell.value
