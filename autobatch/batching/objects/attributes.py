"""``x.name`` and ``x.name = v`` on cells."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from functools import (
    cached_property,
    lru_cache,
    partial,
    partialmethod,
    singledispatchmethod,
)
from operator import attrgetter
from typing import Any, NoReturn

import torch
from torch import Tensor

from autobatch.batching import writes
from autobatch.batching.calling import stateless
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.effects import is_library
from autobatch.batching.fallbacks import ATTRIBUTE
from autobatch.batching.host.from_rows import from_rows
from autobatch.batching.host.own_methods import Unknown, each_thread, getter, is_lowered_property
from autobatch.batching.host.rows import map_rows, run_rows, write_rows
from autobatch.batching.kinds import found_in_class, is_instance, is_tensor, named_cells
from autobatch.batching.managers import ENTER, EXIT, MODES, by_hand
from autobatch.batching.objects import namespaces
from autobatch.batching.objects.dispatching import dispatching
from autobatch.batching.objects.unanswered import HISTORY, refuse_attribute, refused
from autobatch.batching.shared import assigning, merging, refusals
from autobatch.batching.tables import packed
from autobatch.batching.tensors import torch_ops
from autobatch.batching.tensors.views import viewed
from autobatch.batching.trace import Untraceable
from autobatch.batching.trace.recorder import is_recording
from autobatch.structure import own_attributes
from autobatch.values.cells import (
    METHOD,
    NAMESPACE,
    NUMBER_TAGS,
    PACKED,
    STATELESS,
    Cell,
    Column,
    Container,
    Mark,
    Objects,
    Uniform,
    read,
    uniform,
)
from autobatch.values.stacks import Stacks

LOOKED_UP = object.__dict__["__getattribute__"]
PLAIN_LOOKUPS = (LOOKED_UP, tuple.__dict__["__getattribute__"])
SUPER = Mark("super")
NUMBER_TYPES = {tag: kind for kind, tag in NUMBER_TAGS.items()}
TENSOR_PARTS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})
"""Tensor attributes that are tensors made from the same memory."""
OF_INSTANCES = ("__dict__", "__class__")
"""What an instance has that is no entry of its namespace: set on the host."""
FLAGS = frozenset({"requires_grad", "is_leaf"})


def bound(receiver: Cell, function: Any) -> Cell:
    """A bound method: ``function`` is to be called with ``receiver`` first."""
    return Cell(Container(METHOD, [receiver], function))


def of_class(kind: type, static: Any, name: str) -> Cell | None:
    """A method that Python's own classes give to themselves (``d.fromkeys``), whoever is asked."""
    if type(static) is types.ClassMethodDescriptorType:
        return uniform(getattr(kind, name), shared=True)
    return None


def get(context: Context, cell: Cell, name: str) -> Cell:
    """``x.name``."""
    value = read(cell)
    if is_tensor(value):
        return tensor_attribute(context, cell, value, name)
    match value:
        case Column(tag=tag):
            return type_attribute(context, cell, NUMBER_TYPES[tag], name)
        case Container() if stateless.is_of_module(value, name):
            return stateless.attribute(context, cell, value, name)
        case Container() if is_instance(value):
            return instance_attribute(context, cell, value, name)
        case Container():
            return container_attribute(context, cell, value, name)
        case Uniform(obj=obj):
            return uniform_attribute(context, cell, obj, name)
        case Objects(lists=found) if found is not None:
            return type_attribute(context, cell, list, name)
        case Objects(stacks=found) if found is not None and name in KNOWN:
            return stacks_attribute(context, cell, found, name)
        case Objects(items=items):
            return objects_attribute(context, cell, items, name)
    raise AssertionError(value)


def tensor_attribute(context: Context, cell: Cell, value: Any, name: str) -> Cell:
    kind = type(value.obj) if type(value) is Uniform else Tensor
    done = class_or_method(cell, kind, name)
    if done is not None:
        return done
    if name in TENSOR_PARTS:
        getter = TENSOR_GETTERS[name]
        return torch_ops.apply(context, getter, [cell], {}, False)
    refuse_attribute(context, value, name)
    if name == "grad_fn" and type(value) is Column and flag(value.table, "requires_grad"):
        raise refused(context, *HISTORY)
    if name in FLAGS and type(value) is Column:
        return uniform(flag(value.table, name))
    if type(value) is Uniform:
        example = value.obj
    else:
        data = value.table
        example = data[0] if data.shape[0] else data.new_empty(data.shape[1:])
    try:
        result = getattr(example, name)
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error
    if isinstance(result, Tensor):
        if type(value) is Uniform and value.shared:
            return uniform(result, shared=True)
        raise RowsFail(
            context.lowest(), AttributeError(f"a program cannot read .{name} of a batched tensor")
        )
    return uniform(result)


def class_or_method(cell: Cell, kind: type[Tensor], name: str) -> Cell | None:
    """``x.__class__`` and methods of tensors, which ask no thread for its own."""
    if name == "__class__":
        return uniform(kind, shared=True)
    attribute = getattr(kind, name, None)
    is_method = callable(attribute) and not isinstance(attribute, type)
    return bound(cell, attribute) if is_method else None


def flag(table: Tensor, name: str) -> bool:
    """What autograd makes of a thread's tensor, whatever modes the question is asked in."""
    if is_recording() and not torch.is_grad_enabled():
        raise Untraceable(f"it asks for .{name} where no gradient is recorded")
    return table.requires_grad if name == "requires_grad" else not table.requires_grad


def _getter(name: str) -> Any:
    def getter(tensor: Tensor) -> Any:
        return getattr(tensor, name)

    getter.__name__ = f"Tensor.{name}"
    return getter


TENSOR_GETTERS = {name: _getter(name) for name in sorted(TENSOR_PARTS)}


KNOWN = frozenset({"__class__", "shape", *TENSOR_GETTERS, *(n for n in dir(Tensor) if n[0] != "_")})


def stacks_attribute(context: Context, cell: Cell, stacks: Stacks, name: str) -> Cell:
    """An attribute of tensors of unlike shapes, which stay together."""
    done = class_or_method(cell, Tensor, name)
    if done is not None:
        return done
    if name in TENSOR_GETTERS:
        return torch_ops.apply(context, TENSOR_GETTERS[name], [cell], {}, False)
    shapes = [tuple(shape) for _, shape, _ in stacks.signatures()]
    if name == "shape" and len(set(map(len, shapes))) == 1:
        sizes = [from_rows(context, list(size)) for size in zip(*shapes, strict=True)]
        return Cell(Container(torch.Size, sizes))
    return objects_attribute(context, cell, read(cell).items, name)  # type: ignore[union-attr]


def type_attribute(context: Context, cell: Cell, kind: type, name: str) -> Cell:
    if name == "__class__":
        return uniform(kind, shared=True)
    found = of_class(kind, found_in_class(kind, name), name)
    if found is not None:
        return found
    attribute = getattr(kind, name, None)
    if callable(attribute):
        return bound(cell, attribute)
    return run_rows(context, lambda x: getattr(x, name), [cell], {}, "an attribute of a number")


def instance_attribute(context: Context, cell: Cell, value: Container, name: str) -> Cell:
    kind = value.type
    static = inspect.getattr_static(kind, name, None)
    if isinstance(static, property) and static.fget is not None:
        return context.invoke(context, static.fget, [cell], {})
    getter = descriptor_method(static, "__get__")
    if getter is not None and descriptor_method(static, "__set__") is not None:
        cells = [uniform(static, shared=True), cell, uniform(kind, shared=True)]
        return context.invoke(context, getter, cells, {})
    if name in value.cells:
        return named_cells(value)[name]
    if name == "__dict__":
        if kind.__dictoffset__:
            return namespaces.of(cell)
        raise RowsFail(context.lowest(), no_room(kind, name))
    if name == "__class__":
        return uniform(kind, shared=True)
    if static is None and not hasattr(kind, name):
        fallback = getattr(kind, "__getattr__", None)
        if fallback is not None:
            return context.invoke(context, fallback, [cell, uniform(name)], {})
        error = AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
        raise RowsFail(context.lowest(), error) from error
    return class_attribute(context, cell, kind, static, name)


def lacks(value: Any, name: str) -> bool:
    """Whether numbers, or lists and the like, have no such attribute in any thread."""
    if type(value) is Column and value.tag != "tensor":
        return not hasattr(NUMBER_TYPES[value.tag], name)
    if type(value) is not Container or not isinstance(value.type, type) or is_instance(value):
        return False
    kind = value.type
    has_own = kind.__dictoffset__ or hasattr(kind, "__getattr__") or name in fields_of(kind)
    return not has_own and not hasattr(kind, name)


def part_of(value: Container, name: str) -> Cell | types.FunctionType | None:
    """What ``x.name`` is where it is only looked up: a cell of the container's, or a method of its
    class; None where it is anything else, or code of the user's may run.
    """
    kind, cells = value.type, value.cells
    if not isinstance(kind, type) or found_in_class(kind, "__getattribute__") not in PLAIN_LOOKUPS:
        return None
    if isinstance(cells, list):
        fields = fields_of(kind)
        return cells[fields.index(name)] if name in fields else None
    if not is_instance(value):
        return None
    static = found_in_class(kind, name)
    if name in cells:
        plain = type(static) is types.MemberDescriptorType or not hasattr(type(static), "__get__")
        return cells[name] if plain else None
    return static if isinstance(static, types.FunctionType) else None


def fields_of(kind: type) -> Sequence[str]:
    """The names of what a container of a class holds in a list."""
    fields: Sequence[str] = getattr(kind, "_fields", ()) or getattr(kind, "__match_args__", ())
    return fields


def descriptor_method(static: Any, name: str) -> types.FunctionType | None:
    """The Python method by which a descriptor of the user's gives or takes an attribute."""
    found = getattr(type(static), name, None)
    return found if isinstance(found, types.FunctionType) else None


def class_attribute(context: Context, cell: Cell, kind: type, static: Any, name: str) -> Cell:
    """What an instance finds in its class."""
    if isinstance(static, staticmethod):
        return uniform(static.__func__, shared=True)
    if isinstance(static, classmethod):
        return bound(uniform(kind, shared=True), static.__func__)
    found = of_class(kind, static, name)
    if found is not None:
        return found
    computed = computed_attribute(context, cell, kind, static)
    if computed is not None:
        return computed
    if isinstance(static, partialmethod) and isinstance(static.func, types.FunctionType):
        given = [uniform(arg, shared=True) for arg in static.args]
        return Cell(Container(METHOD, [cell, *given], called_by(static)))
    if isinstance(static, singledispatchmethod):
        return bound(cell, dispatching(static))
    if isinstance(static, types.FunctionType) or inspect.ismethoddescriptor(static):
        if callable(static):
            return bound(cell, static)
        # What it gives holds the instance, and may write to it.
        of_host = partial(run_rows, context, attrgetter(name), [cell], {}, "a descriptor")
        return of_host(keep=True, fresh=False)
    if hasattr(static, "__wrapped__") and hasattr(type(static), "__get__"):
        return bound(cell, static)
    if hasattr(type(static), "__get__"):
        return run_rows(context, lambda x: getattr(x, name), [cell], {}, "a descriptor")
    return uniform(static, shared=True)


@lru_cache(maxsize=256)
def called_by(method: partialmethod[Any]) -> Callable[..., Any]:
    """What a ``partialmethod`` calls, but for its positional arguments."""
    return partial(method.func, **method.keywords) if method.keywords else method.func


def computed_attribute(context: Context, cell: Cell, kind: type, static: Any) -> Cell | None:
    """What a descriptor of the user's, or a ``cached_property``, computes; it may keep it."""
    kept = isinstance(static, cached_property)
    getter = descriptor_method(static, "__get__")
    if not kept and (getter is None or is_library(type(static))):
        return None
    if is_recording():
        raise Untraceable("it reads an attribute that may be kept when it is first read")
    if not kept:
        cells = [uniform(static, shared=True), cell, uniform(kind, shared=True)]
        return context.invoke(context, getter, cells, {})
    found = context.invoke(context, static.func, [cell], {})
    value = read(cell)
    if type(value) is Container:
        named_cells(value)[static.attrname] = found
    else:  # a part of what computes it has run on the host, which has got the instance

        def keep(target: Any, content: Any) -> None:
            vars(target)[static.attrname] = content

        write_rows(context, keep, cell, found)
    return found


def container_attribute(context: Context, cell: Cell, value: Container, name: str) -> Cell:
    kind = value.type
    if kind is NAMESPACE and inspect.ismethoddescriptor(getattr(dict, name, None)):
        return bound(cell, getattr(dict, name))
    if kind is SUPER:
        return super_attribute(context, value, name)
    if kind is PACKED:
        return packed_attribute(context, cell, value, name)
    fields = fields_of(kind)
    if name in fields and isinstance(value.cells, list):
        return value.cells[fields.index(name)]
    if isinstance(kind, type):
        if name == "__class__":
            return uniform(kind, shared=True)
        if kind in (slice, range) and name in ("start", "stop", "step"):
            return value.cells[("start", "stop", "step").index(name)]
        static = inspect.getattr_static(kind, name, None)
        if isinstance(static, property) and static.fget is not None:
            return context.invoke(context, static.fget, [cell], {})
        if static is not None:
            return class_attribute(context, cell, kind, static, name)
        if hasattr(kind, name):
            return uniform(getattr(kind, name), shared=True)
    return run_rows(context, lambda x: getattr(x, name), [cell], {}, "objects", keep=True)


def packed_attribute(context: Context, cell: Cell, value: Container, name: str) -> Cell:
    """``x.name`` of tensors of different lengths."""
    done = class_or_method(cell, Tensor, name) or packed.attribute(value, name)
    if done is not None:
        return done
    getter = TENSOR_GETTERS.get(name)
    if name in ("T", "mT") and value.static.dim() == 2:
        return Cell(viewed(getter, [cell], {}, cell, ()))  # type: ignore[arg-type]
    if getter is not None:
        return packed.lent(
            context, [cell], lambda: torch_ops.apply(context, getter, [cell], {}, False)
        )
    packed.unpack(context, [cell])
    return get(context, cell, name)


def super_attribute(context: Context, value: Container, name: str) -> Cell:
    cell, after = value.cells[0], value.static
    kind = read(cell).type  # type: ignore[union-attr]
    mro = kind.__mro__
    for base in mro[mro.index(after) + 1 :]:
        if name in base.__dict__:
            static = base.__dict__[name]
            if isinstance(static, property) and static.fget is not None:
                return context.invoke(context, static.fget, [cell], {})
            return class_attribute(context, cell, kind, static, name)
    error = AttributeError(f"'super' object has no attribute {name!r}")
    raise RowsFail(context.lowest(), error) from error


def uniform_attribute(context: Context, cell: Cell, obj: Any, name: str) -> Cell:
    """An attribute of what all threads share: read once, unless reading it has effects."""
    if isinstance(obj, MODES) and name in (ENTER, EXIT):
        raise by_hand(name, context.span)
    code = getter(obj, name)
    if code is not None and context.has_effects(code, obj):
        if is_lowered_property(obj, name, code):
            return context.invoke(context, code, [cell], {})
        if context.services.handing is not None:
            context.services.handing.refuse(code, obj)
        return each_thread(context, lambda x: getattr(x, name), (obj,))
    try:
        result = getattr(obj, name)
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error
    return Cell(Uniform(result, shared=True))


def objects_attribute(context: Context, cell: Cell, items: list[Any], name: str) -> Cell:
    kinds = set(map(type, items))
    if len(kinds) == 1:
        (kind,) = kinds
        static = found_in_class(kind, name)
        own = name in (own_attributes(items[0]) or ())
        if isinstance(static, types.FunctionType) and not own:
            return bound(cell, static)
        if isinstance(static, staticmethod) and not own:  # a method descriptor, too
            return uniform(static.__func__, shared=True)
        if isinstance(static, property) and static.fget is not None:
            return context.invoke(context, static.fget, [cell], {})
        found = of_class(kind, static, name)
        if found is not None and not own:
            return found
        if inspect.ismethoddescriptor(static) and callable(static) and not own:
            return bound(cell, static)

    def attribute(item: Any) -> Any:
        return getattr(item, name)

    if all(is_stored(kind, name) for kind in kinds):
        return looked_up(context, cell, items, name)
    if any(shown_by(context, item, name) for item in one_of_each(items)):
        return context.invoke(context, Unknown(attribute), [cell], {})
    return run_rows(context, attribute, [cell], {}, ATTRIBUTE, fresh=False, effect=False)


def stored_attribute(context: Context, cell: Cell, name: str) -> Cell | None:
    """``x.name`` where all threads' objects only have it looked up; None where not."""
    value = cell.value
    if type(value) is not Objects:
        return None
    items = value.items
    for kind in set(map(type, items)):
        if not is_stored(kind, name):
            return None
    if context.lost is not None and not all(hasattr(item, name) for item in items):
        return None  # who asks goes on with what is given: no thread is to be lost here
    return looked_up(context, cell, items, name)


def looked_up(context: Context, cell: Cell, items: list[Any], name: str) -> Cell:
    """``x.name`` where no code runs for it."""

    def attribute(item: Any) -> Any:
        return getattr(item, name)

    return map_rows(context, attribute, cell, items, ATTRIBUTE, attrgetter(name))


def is_stored(kind: type, name: str) -> bool:
    """Whether to read an attribute of a class's instances is to look it up: no code runs."""
    if found_in_class(kind, "__getattribute__") is not LOOKED_UP or hasattr(kind, "__getattr__"):
        return False
    static = found_in_class(kind, name)
    return isinstance(static, types.MemberDescriptorType) or not hasattr(type(static), "__get__")


def one_of_each(items: list[Any]) -> list[Any]:
    """An object of each class."""
    return list({type(item): item for item in items}.values())


def shown_by(context: Context, obj: Any, name: str) -> bool:
    """Whether an object gives an attribute by code of the user's that has effects."""
    code = getter(obj, name)
    return code is not None and context.has_effects(code, None)


def put(context: Context, cell: Cell, name: str, item: Cell) -> None:
    """``x.name = v``."""
    value = read(cell)
    if type(value) is Uniform and assigning.rebind(context, value.obj, name, item):
        return
    item = merging.resolved(context, item)
    own = is_instance(value) and value.type.__setattr__ is not object.__setattr__
    if type(value) is Container and is_instance(value) and not own:
        static = inspect.getattr_static(value.type, name, None)
        if isinstance(static, property) and static.fset is not None:
            context.invoke(context, static.fset, [cell, item], {})
            return
        setter = descriptor_method(static, "__set__")
        if setter is not None:
            context.invoke(context, setter, [uniform(static, shared=True), cell, item], {})
            return
        if name not in OF_INSTANCES and not isinstance(static, property):
            if not has_room(value.type, name):
                raise RowsFail(context.lowest(), no_room(value.type, name))
            named_cells(value)[name] = item
            return
    if type(value) is Container and value.type is STATELESS:
        raise writes.shared_write(context, "an attribute of a module")
    if is_tensor(value):
        if writes.is_outside(cell):
            raise writes.shared_write(context, "a tensor")
        raise refusals.tensor_attribute(context.span, name)
    if type(value) is Uniform:
        refuse_shared(context, value.obj, name, lambda obj: setattr(obj, name, None))
    writes.refuse_foreign(context, cell, "an attribute of {}")

    def assign(target: Any, content: Any) -> None:
        setattr(target, name, content)

    write_rows(context, assign, cell, item)


ROOMLESS = (bool, int, float, complex, str, bytes, type(None), tuple, frozenset, range, slice)
"""Types whose instances take no attribute, whoever has made them."""


def refuse_shared(context: Context, obj: Any, name: str, change: Callable[[Any], None]) -> NoReturn:
    """Of ``None`` and the like, which have no room for an attribute, Python itself refuses it."""
    kind = type(obj)
    if kind in ROOMLESS and not has_room(kind, name):
        raise RowsFail(context.lowest(), error_of(kind, name, change, lambda: obj))
    raise writes.shared_write(context, f"an attribute of {writes.described(obj)}")


def is_plainly_put(value: Any, name: str) -> bool:
    """Whether ``x.name = v`` only keeps ``v`` in an instance of the program's: no code runs."""
    if type(value) is not Container or not is_instance(value) or type(value.cells) is not dict:
        return False
    if found_in_class(value.type, "__setattr__") is not object.__setattr__:
        return False
    static = found_in_class(value.type, name)
    if isinstance(static, types.MemberDescriptorType):
        return True
    return not hasattr(type(static), "__set__") and has_room(value.type, name)


def has_room(kind: type, name: str) -> bool:
    """Whether instances may have an attribute: one with ``__slots__`` alone has just these."""
    return kind.__dictoffset__ != 0 or hasattr(type(found_in_class(kind, name)), "__set__")


def no_room(kind: type, name: str) -> AttributeError:
    """What Python says of an attribute for which there is no room."""
    return error_of(kind, name, lambda made: object.__setattr__(made, name, None))


def error_of(
    kind: type, name: str, change: Callable[[Any], None], made: Callable[[], Any] | None = None
) -> AttributeError:
    """What Python says of a change to an instance that has no attribute; ``made`` gives one."""
    try:
        change(object.__new__(kind) if made is None else made())
    except AttributeError as error:
        return error.with_traceback(None)
    except TypeError:  # of another layout than an object's
        pass
    return AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")


def remove(context: Context, cell: Cell, name: str) -> None:
    """``del x.name``."""
    value = read(cell)
    own = is_instance(value) and value.type.__delattr__ is not object.__delattr__
    if type(value) is Container and is_instance(value) and not own:
        static = inspect.getattr_static(value.type, name, None)
        if isinstance(static, property) and static.fdel is not None:
            context.invoke(context, static.fdel, [cell], {})
            return
        deleter = descriptor_method(static, "__delete__")
        if deleter is not None:
            context.invoke(context, deleter, [uniform(static, shared=True), cell], {})
            return
        if name not in OF_INSTANCES and not isinstance(static, property):
            if name in named_cells(value):
                del named_cells(value)[name]
                return
            error = error_of(value.type, name, lambda made: object.__delattr__(made, name))
            raise RowsFail(context.lowest(), error) from error
    if type(value) is Uniform:
        refuse_shared(context, value.obj, name, lambda obj: delattr(obj, name))
    writes.refuse_foreign(context, cell, "an attribute of {}")
    write_rows(context, lambda target: delattr(target, name), cell)
