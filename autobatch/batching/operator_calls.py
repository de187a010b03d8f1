"""Subscripts and in-place operators as functions: they mean what the statements mean."""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor

from autobatch.batching import operators
from autobatch.batching.containers import subscripts
from autobatch.batching.context import Context, Handler
from autobatch.batching.kinds import is_tensor
from autobatch.ir.ops import BINARY
from autobatch.values.cells import Cell, Column, Objects, Value, read, uniform


def _getitem(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    return subscripts.getitem(context, *args) if len(args) == 2 else None


def _setitem(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    if len(args) != 3:
        return None
    subscripts.setitem(context, *args)
    return uniform(None)


def _delitem(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    if len(args) != 2:
        return None
    subscripts.delitem(context, *args)
    return uniform(None)


def _inplace(name: str) -> Handler:
    def handler(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
        return operators.inplace(context, name, *args) if len(args) == 2 else None

    return handler


def _pos(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``+x``, which of a tensor is ``x`` itself."""
    return operators.unary(context, "pos", *args) if len(args) == 1 and not kwargs else None


def _joined(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``operator.iconcat``, which takes sequences alone: a tensor or a number is its error."""
    if len(args) != 2 or holds_numbers(read(args[0])):
        return None
    return operators.inplace(context, "add", *args)


def holds_numbers(value: Value) -> bool:
    kinds = value.kinds if type(value) is Objects else ()
    numbers = any(issubclass(kind, Tensor | int | float | complex) for kind in kinds)
    return numbers or is_tensor(value) or type(value) is Column


HANDLERS: dict[Any, Handler] = {
    operator.pos: _pos,
    operator.getitem: _getitem,
    list.__getitem__: _getitem,
    tuple.__getitem__: _getitem,
    dict.__getitem__: _getitem,
    operator.setitem: _setitem,
    Tensor.__setitem__: _setitem,
    operator.delitem: _delitem,
    operator.iconcat: _joined,
    **{
        getattr(operator, f"i{name}"): _inplace(name)
        for name in BINARY
        if hasattr(operator, f"i{name}")
    },
}
