"""``sum``, ``min``, ``max``, ``any``, ``all``, ``abs`` and ``sorted`` on cells."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching import arithmetic
from autobatch.batching.containers import iterators, ordering, picking, sums
from autobatch.batching.context import Context, Handler, RowsFail
from autobatch.batching.host.own_methods import may_show
from autobatch.batching.kinds import (
    event_of,
    is_instance,
    is_number,
    is_tensor,
    own_method,
    parts_of,
    user_class,
)
from autobatch.batching.operators import binary
from autobatch.batching.tensors import torch_ops
from autobatch.batching.tensors.aliases import tie
from autobatch.batching.trace import Untraceable
from autobatch.batching.truths import asks_user, says_itself, truth
from autobatch.presence.moves import is_differentiated
from autobatch.values.cells import (
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    is_iterator,
    join_bounds,
    read,
    uniform,
)


def _abs(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value = read(args[0])
    if is_tensor(value):
        return torch_ops.apply(context, torch.abs, args, {}, False)
    method = own_method(value, "__abs__")
    if method is not None:
        return context.invoke(context, method, args, {})
    return None


def _sum(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value = read(args[0])
    if type(value) is Uniform and not isinstance(value.obj, Tensor):
        return None
    parts = iterators.exhausted(context, args[0])
    if parts is None:
        return None
    start = args[1] if len(args) > 1 else kwargs.get("start", uniform(0))
    asked = [part for part in (start, *parts) if user_class(read(part)) is not None]
    if asked and not is_iterator(value) and may_show(context, sum, asked, args):
        return None  # what additions have done before one that fails stays done
    try:
        return sums.summed(context, parts, start)
    except RowsFail as failure:
        if is_iterator(value):
            return None  # it stays where it has failed
        failure.partial = None  # that of one addition: the threads below begin again
        raise


def _extreme(meaning: Callable[..., Any], beats: str) -> Handler:
    """``min`` and ``max``: the first part that no other one ``beats`` ("lt", "gt")."""

    def handler(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
        if "key" in kwargs:
            return ordering.by_key(context, meaning, args, kwargs)
        if kwargs:
            return None
        parts = args if len(args) > 1 else iterators.exhausted(context, args[0])
        if parts and all(type(read(part)) is Uniform and is_tensor(read(part)) for part in parts):
            return functools.reduce(lambda best, part: same_for_all(meaning, part, best), parts)
        if parts and are_alike(parts):
            return functools.reduce(lambda best, part: chosen(context, beats, part, best), parts)
        if parts and are_mixed(parts):
            return agreed(context, beats, parts)
        if not parts or not all(is_number(read(part)) for part in parts):
            return None
        best = parts[0]
        for part in parts[1:]:
            done = arithmetic.apply(context, meaning, meaning, [best, part])
            if done is None:
                if type(read(best)) is Uniform and type(read(part)) is Uniform:
                    best = uniform(meaning(read(best).obj, read(part).obj))  # type: ignore[union-attr]
                    continue
                return None
            best = done
        return best

    return handler


def are_alike(parts: list[Cell]) -> bool:
    """Whether they are 0-d tensors of one dtype, so that a choice among them is one too."""
    values = [read(part) for part in parts]
    if not all(map(is_tensor, values)):
        return False
    kinds = set()
    for value in values:
        data = value.table if type(value) is Column else value.obj  # type: ignore[union-attr]
        kinds.add((data.dtype, data.device, data.dim() - (type(value) is Column)))
    return len(kinds) == 1 and kinds.pop()[2] == 0


def are_mixed(parts: list[Cell]) -> bool:
    """Whether they are numbers and 0-d tensors, a column of tensors among them."""
    values = [read(part) for part in parts]
    columns = [value for value in values if type(value) is Column and value.tag == "tensor"]
    return bool(columns) and all(
        is_number(value) or (is_tensor(value) and event_of(value) == ()) for value in values
    )


def agreed(context: Context, beats: str, parts: list[Cell]) -> Cell | None:
    """The part that all threads choose, itself; None where they choose a number and a tensor.

    What they choose then is of two kinds, and a column of neither.
    """
    best = parts[0]
    for part in parts[1:]:
        flag = read(truth(context, binary(context, beats, part, best)))
        flags = {flag.obj} if type(flag) is Uniform else read_flags(context, flag)
        if len(flags) != 1:
            return None
        best = part if True in flags else best
    return best


def read_flags(context: Context, flag: Any) -> set[bool]:
    if context.forecasts is not None:
        raise Untraceable("which operand it is, is known as the program runs")
    return set(context.host(flag.data, "choice"))


def same_for_all(meaning: Callable[..., Any], part: Cell, best: Cell) -> Cell:
    """The better one of two tensors that all threads share."""
    x, y = read(best).obj, read(part).obj  # type: ignore[union-attr]
    return best if meaning(x, y) is x else part


def chosen(context: Context, beats: str, part: Cell, best: Cell) -> Cell:
    """``part if part < best else best``, of tensors: one of them itself, which one by thread."""
    if part is best:
        return best
    flag = binary(context, beats, part, best)
    which = read(flag)
    grad = torch.is_grad_enabled()
    columns = [column_of(context, cell) for cell in (best, part)] if grad else []
    if type(which) is Column and any(map(is_differentiated, columns)):
        if context.forecasts is not None:
            raise Untraceable("the one that is not chosen has no gradient")
        result = Cell(Column(picking.picked(columns, which.data.long())))
    else:
        result = torch_ops.apply(context, torch.where, [flag, part, best], {}, False)
    tie(context, result.value, [part, best])
    return result


def column_of(context: Context, cell: Cell) -> Tensor:
    """A 0-d tensor of each thread's, ``[k]``."""
    value = read(cell)
    return value.data if type(value) is Column else value.obj.expand(context.k)  # type: ignore[union-attr]


def _quantifier(stop: bool) -> Handler:
    """``any`` and ``all`` over what has a batched truth, first to last."""

    def handler(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
        value = read(args[0])
        if type(value) is Uniform or is_iterator(value):
            return None  # an iterator stays where it is known
        parts = iterators.exhausted(context, args[0])
        if parts is None or not all(is_sure(read(part)) for part in parts):
            return None
        flags = [read(truth(context, part)) for part in parts]
        if any(type(flag) is Uniform and bool(flag.obj) is stop for flag in flags):
            return uniform(stop)
        columns = [flag.data for flag in flags if type(flag) is Column]
        if not columns:
            return uniform(not stop)
        stacked = torch.stack(columns)
        return Cell(Column(stacked.any(0) if stop else stacked.all(0), "bool"))

    return handler


def is_sure(value: Value) -> bool:
    """Whether asking if it is true cannot fail and runs no code, so that it matters not when."""
    if type(value) is Objects:
        return False
    if is_instance(value):
        return not says_itself(value.type)
    return not asks_user(value) and (not is_tensor(value) or math.prod(event_of(value)) == 1)


def _sorted(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``sorted(xs)`` of numbers of one type, or 0-d tensors of one dtype.

    NaN, which has no order, goes by thread.
    """
    if "key" in kwargs:
        return ordering.by_key(context, sorted, args, kwargs)
    if len(args) != 1 or set(kwargs) - {"reverse"}:
        return None
    reverse = read(kwargs["reverse"]) if kwargs else Uniform(False)
    parts = iterators.exhausted(context, args[0]) if is_list(args[0]) else None
    if not parts or type(reverse) is not Uniform or type(reverse.obj) is not bool:
        return None
    values = [read(part) for part in parts]
    columns = [value for value in values if type(value) is Column]
    if columns and all(map(is_tensor, values)):
        return ordering.by_themselves(context, parts, reverse.obj)
    if len(columns) < len(values) or len({column.tag for column in columns}) > 1:
        return None
    data, tag = torch.stack([column.data for column in columns]), columns[0].tag
    if tag == "float" and context.host(data.isnan().any(), "sorted"):
        return None
    ordered = torch.sort(data, stable=True, dim=0, descending=reverse.obj).values
    bounds = join_bounds(column.bounds for column in columns) if tag == "int" else None
    context.counter.launch()
    return Cell(Container(list, [Cell(Column(row, tag, bounds)) for row in ordered.unbind(0)]))


def is_list(cell: Cell) -> bool:
    return parts_of(cell) is not None


HANDLERS: dict[Any, Handler] = {
    abs: _abs,
    sum: _sum,
    min: _extreme(min, "lt"),
    max: _extreme(max, "gt"),
    any: _quantifier(True),
    all: _quantifier(False),
    sorted: _sorted,
}
