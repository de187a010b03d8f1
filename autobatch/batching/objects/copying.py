"""``copy.copy``, ``copy.deepcopy`` and ``dataclasses.replace`` of what a program has made.

A copy of a structure is a structure of the same cells, or of copies of them; names for one part
are names for one copy of it. What copies itself in a way of its own, a tensor with gradients or
that shares memory, and what threads hold as objects of the host is copied thread by thread.
"""

from __future__ import annotations

import copy
import copyreg
import dataclasses
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context, Handler
from autobatch.batching.kinds import found_in_class, generated_init, is_instance
from autobatch.batching.tensors import torch_ops
from autobatch.batching.trees import is_plain
from autobatch.values.cells import NO_TIES, Cell, Column, Container, Uniform, read

_HOOKS = (
    *("__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"),
    *("__getnewargs__", "__getnewargs_ex__"),
)


class NoCopy(Exception):
    """No batched form; copy thread by thread."""


def _copy(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    if len(args) != 1 or kwargs:
        return None
    value = args[0].value
    if is_immutable(value):
        return args[0]
    if is_tensor(read(args[0])):  # whose memory the copy shares, as that of a tensor does
        return torch_ops.apply(context, torch.detach, [args[0]], {}, False)
    if type(value) is not Container:
        return None
    if value.type is tuple:
        return args[0]
    return Cell(Container(value.type, value.cells.copy())) if is_copied_plainly(value) else None


def _deepcopy(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    if len(args) != 1 or kwargs:
        return None
    try:
        return deep(context, args[0], {})
    except NoCopy:
        return None


def deep(context: Context, cell: Cell, made: dict[int, Cell]) -> Cell:
    """A copy of all that a cell leads to; ``made`` has the copies by the originals' ids."""
    if id(cell) in made:
        return made[id(cell)]
    value = cell.value
    if is_immutable(value):
        result = cell
    elif is_own_tensor(value):
        result = torch_ops.apply(context, torch.clone, [cell], {}, False)
    elif type(value) is Container and is_copied_plainly(value):
        own = value.cells.copy()
        result = made[id(cell)] = Cell(Container(value.type, own))
        for key, part in own.items() if isinstance(own, dict) else enumerate(own):
            own[key] = deep(context, part, made)
    elif type(value) is Container and value.type is tuple:
        parts = [deep(context, part, made) for part in value.children()]
        if id(cell) in made:  # by way of a list that holds it
            return made[id(cell)]
        same = all(new is old for new, old in zip(parts, value.children(), strict=True))
        result = cell if same else Cell(Container(tuple, parts))
    else:
        raise NoCopy
    made[id(cell)] = result
    return result


def is_immutable(value: Any) -> bool:
    if type(value) is Column:
        return bool(value.tag != "tensor")
    return type(value) is Uniform and is_plain(value.obj)


def is_tensor(value: Any) -> bool:
    """A tensor without gradients."""
    if type(value) is Uniform:
        return type(value.obj) is Tensor and not value.obj.requires_grad
    return type(value) is Column and value.tag == "tensor" and not value.table.requires_grad


def is_own_tensor(value: Any) -> bool:
    """The same where its memory is no other name's."""
    return is_tensor(value) and (type(value) is Uniform or value.ties == NO_TIES)


def is_copied_plainly(value: Container) -> bool:
    """Whether a copy is one of its parts: a list, a dict of plain keys, a plain instance."""
    if value.static is not None or (value.type is dict and not all(map(is_plain, value.cells))):
        return False
    return value.type in (list, dict) or (is_instance(value) and copies_by_default(value.type))


def copies_by_default(kind: type) -> bool:
    if kind in copyreg.dispatch_table:
        return False
    return all(found_in_class(kind, name) in (None, object.__dict__.get(name)) for name in _HOOKS)


def _replace(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value = args[0].value if len(args) == 1 else None
    if not is_instance(value) or not dataclasses.is_dataclass(value.type):
        return None
    kind: Any = value.type
    fields = dataclasses.fields(kind)
    is_usual = (
        generated_init(kind)
        and found_in_class(kind, "__post_init__") is None
        and all(field.init for field in fields)
        and len(kind.__dataclass_fields__) == len(fields)  # none of the class or of __init__ alone
    )
    names = [field.name for field in fields]
    if not is_usual or not {*kwargs} <= {*names} <= {*value.cells}:
        return None
    assert isinstance(value.cells, dict)
    given = {**value.cells, **kwargs}
    return Cell(Container(kind, {name: given[name] for name in names}))


HANDLERS: dict[Any, Handler] = {
    copy.copy: _copy,
    copy.deepcopy: _deepcopy,
    dataclasses.replace: _replace,
}
