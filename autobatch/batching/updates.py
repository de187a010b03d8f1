"""Functions that write to operands without a name that says so.

A schema says of torch's operators and of custom ones (``mutates_args``) which parameters they
write; of some that it does not, and of functions of Python's, a table says it: ``UPDATES``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import torch
from torch.nn import functional as F

from autobatch.compat import CustomOpDef, OpOverload, OpOverloadPacket, overload_of
from autobatch.values.cells import Cell, Uniform, read


@dataclass(frozen=True, slots=True)
class Updates:
    """Of one function: the ``written`` of its ``parameters``, which are in order, with defaults.

    Where an ``option`` is named, it writes only if that is neither None nor False.
    """

    parameters: tuple[str, ...]
    written: tuple[str, ...]
    option: str = ""
    default: Any = None


NOTHING: Final = Updates((), ())
STATISTICS = ("running_mean", "running_var")
UPDATES: dict[Any, tuple[tuple[str, ...], str]] = {
    F.batch_norm: (STATISTICS, "training"),
    F.instance_norm: (STATISTICS, "use_input_stats"),
    F.embedding: (("weight",), "max_norm"),
    F.embedding_bag: (("weight",), "max_norm"),
    "aten::batch_norm": (STATISTICS, "training"),
    "aten::instance_norm": (STATISTICS, "use_input_stats"),
    "aten::native_batch_norm": (STATISTICS, "training"),
}
"""Functions that write to operands where an option says so; operators by their names."""
OPERATORS = (CustomOpDef, OpOverload, OpOverloadPacket)


def is_updating(callee: object) -> bool:
    """Whether it is a function that may write to operands without a name that says so."""
    return bool(updates_of(callee).written)


def is_custom(callee: object) -> bool:
    """Whether it is an operator that is not torch's own: what it writes, its schema alone says."""
    return isinstance(callee, OPERATORS) and not any(
        each.name.startswith("aten::") for each in schemas(callee)
    )


def updated(callee: Any, args: Sequence[Cell], kwargs: Mapping[str, Cell]) -> list[Cell]:
    """The operands besides its result that a call of torch's writes to: tensors, lists of them."""
    updates = updates_of(callee)
    if not updates.written:
        return []
    given = {**dict(zip(updates.parameters, args, strict=False)), **kwargs}
    if updates.option:
        option = updates.option
        chosen = read(given[option]) if option in given else Uniform(updates.default)
        if type(chosen) is Uniform and (chosen.obj is None or chosen.obj is False):
            return []
    cells = [given[name] for name in updates.written if name in given]
    return [cell for cell in cells if getattr(read(cell), "obj", cell) is not None]


def updates_of(callee: Any) -> Updates:
    """What a function writes; it is looked up once."""
    if isinstance(callee, (FunctionType, BuiltinFunctionType, *OPERATORS)):
        return _updates_of(callee)
    return NOTHING


@lru_cache(maxsize=4096)
def _updates_of(callee: Any) -> Updates:
    if isinstance(callee, FunctionType):
        return of_python(callee) if callee in UPDATES else NOTHING
    found = (of_schema(schema) for schema in schemas(callee))
    return next((updates for updates in found if updates.written), NOTHING)


def of_python(function: FunctionType) -> Updates:
    written, option = UPDATES[function]
    parameters = inspect.signature(function).parameters
    return Updates(tuple(parameters), written, option, parameters[option].default)


def of_schema(schema: Any) -> Updates:
    """What an operator writes; ``out``, by keyword alone, is told by that."""
    positional = [each for each in schema.arguments if not each.kwarg_only]
    parameters = tuple(each.name for each in positional)
    if schema.name in UPDATES:
        return Updates(parameters, *UPDATES[schema.name])
    return Updates(parameters, tuple(each.name for each in positional if is_written(each)))


def is_written(argument: Any) -> bool:
    """Whether it is a tensor, or a list of them, that is written; not a list itself.

    TorchScript has functions of its own lists, which nobody calls from Python, under names of
    torch's: ``aten::sort.int(int[](a!) self)``.
    """
    info = argument.alias_info
    if info is None or not info.is_write:
        return False
    return argument.type.kind() != "ListType" or not info.before_set


def schemas(callee: Any) -> list[Any]:
    """The schemas of an operator, or of that of a function of torch's in C."""
    if isinstance(callee, BuiltinFunctionType):
        if getattr(torch, callee.__name__, None) != callee:
            return []
        callee = getattr(torch.ops.aten, callee.__name__, None)
    callee = overload_of(callee)
    if isinstance(callee, OpOverloadPacket):
        names: list[str] = callee.overloads()  # type: ignore[no-untyped-call]
        return [getattr(callee, name)._schema for name in names]
    return [callee._schema] if isinstance(callee, OpOverload) else []
