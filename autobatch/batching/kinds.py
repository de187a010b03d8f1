"""What kind of thing a cell's value is, as the choice of a way to run an operation asks."""

from __future__ import annotations

import dataclasses
from functools import cache
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType, FunctionType
from typing import Any, TypeGuard

from torch import Tensor

from autobatch.batching.effects import has_library_base, is_generated_init
from autobatch.values.cells import Cell, Column, Container, Objects, Uniform, read

NO_FUNCTION = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
NO_INSTANCES = (list, tuple, dict, set, slice, range)


def found_in_class(kind: type, name: str) -> Any:
    """What an attribute of instances is in their class, as it stands there; None if it is not."""
    for base in kind.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


def generated_init(kind: type) -> bool:
    """Whether ``__init__``, its own or a base's, is what ``dataclasses`` has generated."""
    return dataclasses.is_dataclass(kind) and is_generated_init(found_in_class(kind, "__init__"))


def owner_of(kind: type, function: Any) -> Any:
    """The class among a class and its bases in which an ``__init__`` stands."""
    return next(base for base in kind.__mro__ if base.__dict__.get("__init__") is function)


def is_tensor(value: Any) -> bool:
    if type(value) is Column:
        return bool(value.tag == "tensor")
    return type(value) is Uniform and isinstance(value.obj, Tensor)


def event_of(tensor: Any) -> tuple[int, ...]:
    """The shape of one thread's tensor."""
    return tuple(tensor.table.shape[1:] if type(tensor) is Column else tensor.obj.shape)


def is_number_column(value: Any) -> bool:
    return type(value) is Column and value.tag != "tensor"


def is_index(value: Any) -> bool:
    """A thread's own integer: a number, or a 0-d tensor of an integer dtype."""
    if type(value) is not Column:
        return False
    if value.tag == "tensor":
        return bool(value.table.dim() == 1 and not value.table.dtype.is_floating_point)
    return value.tag in ("int", "bool")


def is_number(value: Any) -> bool:
    return is_number_column(value) or (
        type(value) is Uniform and type(value.obj) in (bool, int, float)
    )


def is_instance(value: Any) -> TypeGuard[Container]:
    """A program-made instance of a user's class."""
    return (
        type(value) is Container
        and isinstance(value.type, type)
        and value.type not in NO_INSTANCES
        and not issubclass(value.type, tuple)
    )


def user_class(value: Any) -> type | None:
    """The user's class of which every thread has an instance; None if it has something else."""
    if type(value) is Uniform:
        kind = type(value.obj)
    elif type(value) is Objects and len(value.kinds) == 1:
        (kind,) = value.kinds
    else:
        return value.type if is_instance(value) else None
    return kind if is_users(kind) else None  # type: ignore[arg-type]


@cache
def is_users(kind: Any) -> bool:
    """Whether a class and its bases are the user's own, written in Python."""
    return kind is not object and not has_library_base(kind)


def own_method(value: Any, name: str) -> FunctionType | None:
    """The Python method by which a user's class does an operation; None where it has none."""
    kind = user_class(value)
    found = None
    if kind is not None and found_in_class(kind, name) is not None:  # not in its metaclass
        found = getattr(kind, name, None)
    if not isinstance(found, FunctionType):
        return None
    return found if is_instance(value) or is_plain_code(found.__code__) else None


def is_plain_code(code: CodeType) -> bool:
    """Whether a method of an object that existed before is lowered: else the host runs it.

    No generator, no ``try``, and not made by ``dataclasses``, which leaves no source.
    """
    return not (
        code.co_flags & NO_FUNCTION or code.co_exceptiontable or code.co_filename == "<string>"
    )


def named_cells(value: Container) -> dict[Any, Cell]:
    """A dict's entries, or an instance's attributes."""
    assert isinstance(value.cells, dict)
    return value.cells


def holds_tensors(*values: Any) -> bool:
    """Whether objects among the values are tensors and numbers, and there is a tensor."""
    return any(
        is_tensor(v) or (type(v) is Objects and any(issubclass(kind, Tensor) for kind in v.kinds))
        for v in values
    ) and all(
        type(v) is not Objects or all(issubclass(kind, Tensor | int | float) for kind in v.kinds)
        for v in values
    )


def foreign_operand(*values: Any) -> bool:
    """Whether an operand is nothing that a torch operator takes."""
    for value in values:
        if type(value) is Objects and not holds_tensors(*values):
            return True
        if type(value) is Uniform and not isinstance(value.obj, Tensor | int | float | complex):
            return True
        if type(value) is Container:
            return True
    return False


def parts_of(cell: Cell) -> list[Cell] | None:
    """The parts of a list or plain tuple, program-made or the same for all threads."""
    value = read(cell)
    if type(value) is Container and value.type in (list, tuple):
        return list(value.children())
    if type(value) is Uniform and type(value.obj) in (list, tuple):
        return [Cell(Uniform(item, value.shared)) for item in value.obj]
    return None
