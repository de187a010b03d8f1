"""Assignments to what existed before the call: values that are the same for all threads.

In: ``x.copy_(v)``, ``x[i] = v`` or ``owner.name = v`` of a tensor that all threads share. Out: a
contribution of what all assign, or a merge where ``v`` was made of the tensor itself. A value of
each thread's own is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.contributions import Contribution, Target
from autobatch.batching.shared import refusals
from autobatch.batching.shared.merging import (
    RULES,
    Merge,
    Sample,
    add,
    begin,
    check,
    is_marked,
    merge,
    refuse_leaf,
    resolved,
    sample_of,
    shared_tensor,
)
from autobatch.batching.tensors import torch_ops
from autobatch.batching.trees import NotATree, tree_of
from autobatch.structure import own_attribute, own_attributes
from autobatch.values.cells import PLACE, UPDATE, Cell, Column, Objects, Uniform, read

Function = Callable[..., Any]


def copied(
    context: Context,
    tensor: Tensor,
    function: Function,
    args: list[Cell],
    kwargs: dict[str, Cell],
) -> None:
    """``x.copy_(v)`` and the like: an update of ``x``, or what all threads assign."""
    if len(args) == 1 and is_marked(args[0], UPDATE):
        held: Any = args[0].value
        found: Merge = held.static
        if Target(found.tensor).key == Target(tensor).key and lasts(found, held.cells[0]):
            refuse_leaf(tensor)
            check(tensor, tensor.shape, found.function, held.cells[0])
            merge(context, Target(tensor), found.function, held.cells[0])
            return
        args = [resolved(context, args[0])]
    begin(context, Target(tensor), "assign")
    made, named = same_for_all(context, args, kwargs)
    if own_attribute(function, "__module__") == torch.nn.init.__name__:
        with torch.no_grad():
            assign(context, tensor, lambda staged: function(staged, *made, **named))
    else:
        assign(context, tensor, lambda staged: function(staged, *made, **named))


def assign(
    context: Context,
    tensor: Tensor,
    write: Callable[[Tensor], Any],
    where: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Note that all threads write the same; ``where`` picks the elements, of all by default."""
    refuse_leaf(tensor)
    staged = tensor.clone() if torch.is_grad_enabled() else tensor.detach().clone()
    write(staged)
    positions = None
    if where is not None:
        ids = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape)
        positions = where(ids).reshape(-1)
        staged = staged.reshape(-1)[positions]
    add(context, Contribution(Target(tensor), "assign", staged, context.threads, positions))


def lasts(found: Merge, operand: Cell) -> bool:
    """Whether ``x.copy_(x + v)`` rounds nothing that ``v`` adds: then its order does not matter."""
    sample = sample_of(operand)
    if isinstance(sample, Sample):
        sample = sample.without_data()
    if RULES[found.name] in ("amin", "amax"):
        return True
    like = torch.empty(found.tensor.shape, dtype=found.tensor.dtype, device="meta")
    return sample is not None and torch.can_cast(torch.result_type(like, sample), like.dtype)


def set_item(context: Context, tensor: Tensor, index: Cell, item: Cell) -> None:
    """``x[i] = v``; nothing where ``v`` is what has just been updated in place."""
    if is_marked(item, PLACE) and item.value.static is tensor:  # type: ignore[union-attr]
        return
    own = shared_tensor(item)
    if own is not None and type(read(index)) is not Column:
        (where,), _ = same_for_all(context, [index], {})
        if Target(tensor[where]).key == Target(own).key:
            return
    begin(context, Target(tensor), "assign")
    (where, value), _ = same_for_all(context, [index, resolved(context, item)], {})
    assign(
        context,
        tensor,
        lambda staged: staged.__setitem__(where, value),
        lambda ids: ids[where],
    )


def same_for_all(
    context: Context, args: list[Cell], kwargs: dict[str, Cell]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Operands that are the same for all threads; refused where one is not."""
    cells = [*args, *kwargs.values()]
    if {Column, Objects} & torch_ops.kinds_of(cells):
        raise refusals.own_value(context.span)
    try:
        made = tuple(tree_of(arg, None) for arg in args)
        return made, {name: tree_of(arg, None) for name, arg in kwargs.items()}
    except NotATree:
        raise refusals.own_value(context.span) from None


# Attributes.


def rebind(context: Context, owner: Any, name: str, item: Cell) -> bool:
    """``x.name = v`` where the attribute is a tensor that all threads share; False if it is none.

    Nothing where ``v`` is that very tensor, which has just been updated in place.
    """
    current = held_tensor(owner, name)
    if current is None:
        return False
    if is_marked(item, UPDATE):
        held: Any = item.value
        found: Merge = held.static
        if found.tensor is current:
            refuse_parameter(owner, name, current.detach())
            check(current, current.shape, found.function, held.cells[0])
            merge(context, Target(current, owner, name), found.function, held.cells[0])
            return True
        item = resolved(context, item)
    value = read(item)
    if type(value) is Uniform and value.obj is current:
        return True
    if isinstance(owner, Tensor):
        own = shared_tensor(item)
        return own is not None and Target(own).key == Target(current).key
    target = Target(current, owner, name)
    begin(context, target, "assign")
    if type(value) is not Uniform or not isinstance(value.obj, Tensor):
        raise refusals.own_value(context.span)
    refuse_parameter(owner, name, value.obj)
    add(context, Contribution(target, "assign", value.obj, context.threads))
    return True


def held_tensor(owner: Any, name: str) -> Tensor | None:
    """The tensor that an attribute of an object plainly holds, or a tensor's data."""
    kind = type(owner)
    if isinstance(owner, Tensor) and name == "data":
        return owner.data
    plain: tuple[Any, ...] = (object.__setattr__, torch.nn.Module.__setattr__)
    if kind.__setattr__ not in plain or hasattr(kind, name) or isinstance(owner, Tensor):
        return None
    tables = [own_attributes(owner) or {}]
    if isinstance(owner, torch.nn.Module):
        tables += [owner._buffers, owner._parameters]
    found = next((table[name] for table in tables if name in table), None)
    return found if isinstance(found, Tensor) else None


def refuse_parameter(owner: Any, name: str, new: Tensor) -> None:
    """What torch says to a parameter that is to become any other tensor."""
    parameters = getattr(owner, "_parameters", {}) if isinstance(owner, torch.nn.Module) else {}
    if name in parameters and not isinstance(new, torch.nn.Parameter):
        raise TypeError(
            f"cannot assign '{torch.typename(new)}' as parameter '{name}' "
            "(torch.nn.Parameter or None expected)"
        )
