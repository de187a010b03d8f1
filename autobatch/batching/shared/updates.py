"""Writes to tensors that existed before the call, as contributions of the group's threads.

In: a write in place or ``out=``, with the cells of its operands. What can be reduced over the
threads is noted (``merging``, ``merging_at``), or what all of them assign (``assigning``), to be
applied when the call is over; anything else is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.contributions import Target
from autobatch.batching.shared import refusals
from autobatch.batching.shared.assigning import assign, copied, same_for_all, set_item
from autobatch.batching.shared.merging import (
    IN_PLACE,
    NEGATIVE,
    RULES,
    bare,
    begin,
    check,
    merge,
    refuse_leaf,
    scaled,
    shared_tensor,
)
from autobatch.batching.shared.merging_at import AT
from autobatch.structure import own_attribute
from autobatch.values.cells import Cell, Column, read

Function = Callable[..., Any]
ASSIGN = ("fill_", "zero_", "copy_", "ones_", "zeros_", "constant_")


def write(context: Context, function: Function, args: list[Cell], kwargs: dict[str, Cell]) -> None:
    """``function`` writes its first operand, a tensor that all threads share."""
    tensor = shared_tensor(args[0])
    assert tensor is not None
    name = own_attribute(function, "__name__", "")
    if name in ASSIGN:
        copied(context, tensor, function, args[1:], kwargs)
    elif function in (operator.setitem, Tensor.__setitem__):
        set_item(context, tensor, args[1], args[2])
    elif bare(function) in IN_PLACE:
        operand = scaled(context, args[1:], dict(kwargs))
        refuse_leaf(tensor)
        check(tensor, tensor.shape, function, operand)
        merge(context, Target(tensor), function, operand)
    elif name in AT:
        AT[name](context, tensor, function, args[1:], kwargs)
    else:
        raise refusals.written(context.span, "a tensor", refusals.OF_TENSORS)


def write_out(
    context: Context, function: Function, args: list[Cell], kwargs: dict[str, Cell]
) -> bool:
    """``function(..., out=x)`` of a tensor that all threads share; False where it is none."""
    tensor = shared_tensor(kwargs["out"])
    if tensor is None:
        return False
    rest = {name: cell for name, cell in kwargs.items() if name != "out"}
    operand = other_operand(tensor, function, args)
    if operand is not None and set(rest) <= {"alpha"}:
        operand = scaled(context, [operand], rest)
        refuse_gradients(tensor, operand)
        check(tensor, tensor.shape, into_itself(function), operand)
        merge(context, Target(tensor), function, operand)
        return True
    begin(context, Target(tensor), "assign")
    made, named = same_for_all(context, args, rest)
    assign(context, tensor, lambda staged: function(*made, out=staged, **named))
    return True


def other_operand(tensor: Tensor, function: Function, args: list[Cell]) -> Cell | None:
    """What a tensor is merged with, if a function merges two operands and it is one of them."""
    if bare(function) not in RULES or len(args) != 2:
        return None
    key = Target(tensor).key
    for own, other in (args, args[::-1]):
        found = shared_tensor(own)
        if found is not None and Target(found).key == key:
            return None if own is args[1] and bare(function) in NEGATIVE else other
    return None


def into_itself(function: Function) -> Function:
    def called(like: Tensor, sample: Any) -> Any:
        return function(like, sample, out=like)

    return called


def refuse_gradients(tensor: Tensor, operand: Cell) -> None:
    """What torch says to ``out=`` where a gradient is wanted."""
    value = read(operand)
    own = value.table if type(value) is Column else getattr(value, "obj", None)
    wanted = tensor.requires_grad or (isinstance(own, Tensor) and own.requires_grad)
    if wanted and torch.is_grad_enabled():
        raise RuntimeError(
            "functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )
