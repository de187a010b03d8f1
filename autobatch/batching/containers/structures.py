"""What the functional forms ask of trees (``forms.trees``), once for all threads.

A function that looks at structure, types, dtypes and shapes only gets a *specimen*: the same tree
with tensors without data. Where these differ by thread, it runs thread by thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.containers import methods, subscripts
from autobatch.batching.context import Context, Handler, RowsFail
from autobatch.batching.host.rows import ANY_EFFECT, run_rows
from autobatch.batching.objects.attributes import NUMBER_TYPES
from autobatch.batching.operators import once
from autobatch.forms import trees
from autobatch.transforms import parts
from autobatch.values import packs
from autobatch.values.cells import CLOSURE, METHOD, Cell, Column, Container, Uniform, read, uniform


class NoSpecimen(Exception):
    """What a tree looks like differs by thread in more than lengths."""


def specimen(cell: Cell, row: int | None = None) -> Any:
    """What a thread's tree looks like; without a row, every thread's."""
    value = read(cell)
    match value:
        case Column(tag="tensor"):
            return without_data(value.event_shape, value.table.dtype)
        case Column(tag=tag):
            return NUMBER_TYPES[tag]()
        case Uniform(obj=Tensor() as obj):
            return without_data(obj.shape, obj.dtype)
        case Uniform(obj=obj):
            return obj
        case Container(type=kind) if kind is CLOSURE or kind is METHOD:
            return specimen
    if packs.is_packed(value) and row is not None:
        length = int(packs.parts_of(value)[1][row])
        return without_data((length, *packs.event_shape(value)), value.static.dtype)
    if type(value) is Container and parts.is_tree(value):
        inner = [specimen(child, row) for child in value.children()]
        if value.type is dict:
            return dict(zip(value.cells, inner, strict=True))
        make: Any = value.type
        return make(*inner) if hasattr(make, "_fields") else make(inner)
    raise NoSpecimen


def without_data(shape: Any, dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def shaped(
    function: Callable[..., None], context: Context, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    """A function of what trees look like: once, or for each thread where lengths differ."""
    try:
        if not any(map(is_ragged, args)):
            specimens = [specimen(arg) for arg in args]
            return once(context, lambda: function(*specimens))
        for row in context.order():
            looks = [specimen(arg, row) for arg in args]
            try:
                function(*looks)
            except Exception as error:
                raise RowsFail(row, error) from error
    except NoSpecimen:
        return None
    return uniform(None)


def is_ragged(cell: Cell) -> bool:
    return any(packs.is_packed(read(leaf)) for leaf in parts.leaves(cell))


def leaves(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    return Cell(Container(list, parts.leaves(parts.opened(args[0]))))


def like(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    tree, new = parts.opened(args[0]), read(args[1])
    if type(new) is not Container or len(parts.leaves(tree)) != len(new.cells):
        return None
    return parts.rebuilt(tree, iter(list(new.children())))


def element(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """The row at an index of every leaf."""
    tree, index = parts.opened(args[0]), args[1]
    rows = [subscripts.getitem(context, leaf, index) for leaf in parts.leaves(tree)]
    return parts.rebuilt(tree, iter(rows))


def push(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """Append to lists that the program has made; None where threads have other lists."""
    lists, new = read(args[0]), parts.leaves(parts.opened(args[1]))
    if type(lists) is not Container or lists.type is not list:
        return None
    own: Any = lists.cells
    if not own:
        own.extend(Cell(Container(list, [])) for _ in new)
    if len(own) != len(new):
        return None
    for cell, leaf in zip(own, new, strict=True):
        if methods.method(context, list.append, cell, [leaf]) is None:
            run_rows(context, list.append, [cell, leaf], {}, ANY_EFFECT, keep=True, effect=True)
    return uniform(None)


HANDLERS: dict[Any, Handler] = {
    **{function: partial(shaped, function) for function in trees.SHAPED},
    trees.leaves: leaves,
    trees.like: like,
    trees.element: element,
    trees.push: push,
}
