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
from autobatch.batching.tensors.views import TorchRecipe, mark_outside, viewed
from autobatch.batching.trace import Untraceable
from autobatch.random.drawing import serving, spare
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
)
from autobatch.values.heap import selecting


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
    bases, lenders = shared(rower, function, args, kwargs)
    for path, base in bases.items():
        cell = at(result, path)
        origin = read(base)
        if cell is not None and ((type(origin) is Uniform and origin.shared) or base in lenders):
            mark_outside(cell.value)
        elif cell is not None and computes:
            tie(context, cell.value, [base])
        elif cell is not None:
            link(rower, cell, function, args, kwargs, base, path)
        elif not context.services.blind():
            Rower(context, keep=True).rows(base)
            return run_rows(context, function, args, kwargs, why, fresh=False)
    return result


def shared(
    rower: Rower, function: Callable[..., Any], args: list[Cell], kwargs: dict[str, Cell]
) -> tuple[dict[tuple[int, ...], Cell], list[Cell]]:
    """Which results share memory with which operand, as the first row shows that has elements; and
    the operands that lend memory to tensors without being any.

    Of a tensor without any, torch may give that itself where it gives a new one of others.
    """
    row = telling_row(args)
    first = Rower(rower.context.restricted([row]))
    cells = selecting.select([*args, *kwargs.values()], np.array([row]))
    own = [at_hand(first.rows(cell)[0]) for cell in cells]
    own, named = own[: len(args)], dict(zip(kwargs, own[len(args) :], strict=True))
    with serving(rower.context.source()), spare():
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
    return found, list(lending.values())


def at_hand(item: Any) -> Any:
    """What an operation is to be tried on: for a generator, another one that draws the same."""
    return item.clone_state() if isinstance(item, torch.Generator) else item


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


def telling_row(args: list[Cell]) -> int:
    """The first row in which no operand is empty; 0 where there is none."""
    columns = [empties(value) for arg in args if type(value := read(arg)) is Objects]
    rows = enumerate(zip(*columns, strict=True))
    return next((row for row, empty in rows if not any(empty)), 0)


def empties(value: Objects) -> list[bool]:
    if value.stacks is not None:
        return [0 in shape for _, shape, _ in value.stacks.signatures()]
    return [isinstance(item, Tensor) and not item.numel() for item in value.items]


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
        base.ties = base.ties | {object()}
        result.ties = result.ties | base.ties
    if type(result) is Column:
        outside = (np.any(getattr(v, "outside", getattr(v, "shared", False))) for v in values)
        result.outside = result.outside is True or any(outside)


def base_of(cell: Cell) -> Any:
    """What holds the memory of a tensor."""
    while type(cell.value) is View:
        cell = cell.value.base
    return cell.value
