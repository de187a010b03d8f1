"""``isinstance``, ``type``, ``getattr`` and the like on cells."""

from __future__ import annotations

import inspect
import types
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from autobatch.batching.context import Context, Handler, RowsFail
from autobatch.batching.host.asking import refuse_subclass
from autobatch.batching.host.own_methods import Unknown, getter, own_function
from autobatch.batching.kinds import is_instance
from autobatch.batching.objects import attributes, unanswered
from autobatch.batching.objects.attributes import SUPER
from autobatch.batching.trace import Untraceable
from autobatch.batching.trace.recorder import is_recording
from autobatch.values.cells import (
    CLOSURE,
    METHOD,
    NAMESPACE,
    PACKED,
    PARTIAL,
    Cell,
    Column,
    Container,
    Mark,
    Objects,
    Uniform,
    View,
    is_iterator,
    read,
    uniform,
)

MARKED: dict[Mark, type] = {
    CLOSURE: types.FunctionType,
    METHOD: types.MethodType,
    PARTIAL: partial,
    PACKED: Tensor,
    NAMESPACE: dict,
}


def type_of(value: Any) -> Any:
    """The Python type that the program sees; None if it differs by thread."""
    match value:
        case Uniform(obj=obj):
            return type(obj)
        case Column(tag="tensor"):
            return Tensor
        case Column(tag=tag):
            return attributes.NUMBER_TYPES[tag]
        case Container(type=kind, static=static):
            if isinstance(kind, Mark):
                return MARKED.get(kind)
            return type(static) if isinstance(static, nn.Module) else kind
    return None


def _isinstance(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value, kinds = read(args[0]), classes(args[1]) if len(args) == 2 else None
    check = own_check(kinds)
    if check is not None:
        if context.services.handing is not None:
            context.services.handing.refuse(*check)
        return context.invoke(context, Unknown(isinstance), args, {})
    if type(value) is Uniform and kinds is not None:
        return uniform(isinstance(value.obj, kinds))
    kind = type_of(value)
    if kind is None or kinds is None:
        return None
    try:
        return uniform(issubclass(kind, kinds))
    except TypeError:  # which tells of issubclass
        return None


def own_check(kinds: Any) -> tuple[types.FunctionType, type] | None:
    """A metaclass's ``__instancecheck__`` that is the user's, and its class."""
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        check = getattr(type(kind), "__instancecheck__", None)
        if isinstance(kind, type) and own_function(check) is not None:
            return check, kind  # type: ignore[return-value]
    return None


def classes(cell: Cell) -> Any:
    value = read(cell)
    if type(value) is Uniform:
        return value.obj
    if type(value) is Container and value.type is tuple:
        parts = [classes(child) for child in value.children()]
        return None if None in parts else tuple(parts)
    return None


def _type(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    if len(args) == 3:  # a class of each thread's own
        refuse_subclass(context.services.handing, classes(args[1]) or ())
        return context.invoke(context, Unknown(type), args, kwargs)
    kind = type_of(read(args[0])) if len(args) == 1 else None
    return None if kind is None else uniform(kind, shared=True)


def _getattr(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    name = read(args[1])
    if type(name) is not Uniform or not isinstance(name.obj, str):
        return None
    if len(args) == 3 and runs_code(context, read(args[0]), name.obj):
        return context.invoke(context, Unknown(getattr), args, {})
    if len(args) == 3:
        if type(read(args[0])) is Objects or is_iterator(read(args[0])):
            return None  # each thread's own says it: an error would be the thread's
        if attributes.lacks(read(args[0]), name.obj):
            return args[2]
        try:
            return attributes.get(context, args[0], name.obj)
        except RowsFail as failure:
            if isinstance(failure.error, AttributeError):
                return args[2]
            return None
    return attributes.get(context, args[0], name.obj)


def runs_code(context: Context, value: Any, name: str) -> bool:
    """Whether reading an attribute runs code of the user's, which may say that there is none."""
    if type(value) is Uniform:
        code = getter(value.obj, name)
        shown = code is not None and context.has_effects(code, value.obj)
        if shown and context.services.handing is not None:
            context.services.handing.refuse(code, value.obj)
        return shown
    if not is_instance(value) or name in value.cells:
        return False
    static = inspect.getattr_static(value.type, name, None)
    return isinstance(static, property) or (static is None and hasattr(value.type, "__getattr__"))


def _hasattr(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    name = read(args[1])
    if type(read(args[0])) is Objects or is_iterator(read(args[0])):
        return None
    if type(name) is Uniform and runs_code(context, read(args[0]), name.obj):
        return context.invoke(context, Unknown(hasattr), args, {})
    known = type(name) is Uniform and isinstance(name.obj, str)
    if known and attributes.lacks(read(args[0]), name.obj):  # type: ignore[union-attr]
        return uniform(False)
    try:
        found = _getattr(context, args, kwargs)
    except RowsFail as failure:
        if isinstance(failure.error, AttributeError):
            return uniform(False)
        raise
    return None if found is None else uniform(True)


def _setattr(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    name = read(args[1])
    if type(name) is not Uniform or not isinstance(name.obj, str):
        return None
    attributes.put(context, args[0], name.obj, args[2])
    return uniform(None)


def _delattr(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    name = read(args[1])
    if type(name) is not Uniform or not isinstance(name.obj, str):
        return None
    attributes.remove(context, args[0], name.obj)
    return uniform(None)


def _super(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    if len(args) != 2:
        return None
    kind, receiver = read(args[0]), read(args[1])
    if type(kind) is Uniform and is_instance(receiver):
        return Cell(Container(SUPER, [args[1]], kind.obj))
    if type(kind) is Uniform and type(receiver) is Uniform:
        return uniform(super(kind.obj, receiver.obj), shared=True)
    return None


def _is_inference(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value = read(args[0]) if len(args) == 1 and not kwargs else None
    if type(value) is Column and value.tag != "tensor":  # a number: torch says what it wants
        return None
    if type(value) is not Column and not isinstance(getattr(value, "obj", None), Tensor):
        return None
    if is_recording():
        raise Untraceable("it asks whether a tensor is one of inference mode")
    tensor: Tensor = value.table if type(value) is Column else value.obj  # type: ignore[union-attr]
    return uniform(tensor.is_inference())


def _is_tensor(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    return None if kwargs else _isinstance(context, [*args, uniform(Tensor)], {})


def _is_tensor_like(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """A number column is what the program has as a number, though its rows are a tensor."""
    value = read(args[0]) if len(args) == 1 and not kwargs else None
    return uniform(value.tag == "tensor") if type(value) is Column else None


def _is_view(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """A thread's own tensor is a view if the program has made it as one."""
    value = read(args[0]) if len(args) == 1 and not kwargs else None
    is_own = type(value) is Column and value.tag == "tensor"
    if not is_own and not (isinstance(value, Uniform) and not value.shared):
        return None
    return uniform(type(args[0].value) is View)


HANDLERS: dict[Any, Handler] = {
    Tensor._is_view: _is_view,
    torch.is_tensor: _is_tensor,
    torch.overrides.is_tensor_like: _is_tensor_like,
    **unanswered.HANDLERS,
    Tensor.is_inference: _is_inference,
    torch.is_inference: _is_inference,
    isinstance: _isinstance,
    type: _type,
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    delattr: _delattr,
    super: _super,
}
