"""Methods of the user's classes that Python runs by itself: ``c.p``, ``str(c)``, ``list(c)``.

In: what is about to run once for all threads, on objects that they share. Out: whether a method of
theirs has an effect that a second run would have again; then the operation runs once per thread,
lowest first, as any unknown call does. A property or an operator that can be lowered is none of
this: it is a call of a program function.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import operator
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import is_dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.effects import (
    BUILTIN_TYPES,
    MUTATING_METHODS,
    effect_of,
    is_library,
    is_library_module,
)
from autobatch.batching.foreign import lent_by, memory_of
from autobatch.batching.host.asking import (
    asked_by,
    is_handed,
    looks_through,
    may_ask_any,
    refuse_asked,
)
from autobatch.batching.kinds import found_in_class, is_instance, is_plain_code
from autobatch.batching.shared import refusals
from autobatch.source import Span
from autobatch.structure import own_attribute, own_attributes
from autobatch.values.cells import Cell, Container, Objects, Uniform, read, uniform
from autobatch.values.heap import walks

SHALLOW = frozenset({len, iter, operator.getitem, dict.keys, dict.values, dict.items})
"""Operations that ask what they get, not what that holds."""
NOTHING = frozenset({isinstance, type, id, callable, operator.is_, operator.is_not})
"""Operations that ask nothing."""
QUIET = frozenset(
    {*BUILTIN_TYPES, type(None), type(Ellipsis), slice, type, Tensor, types.ModuleType}
    | {FunctionType, MethodType, types.BuiltinFunctionType, CodeType}
)
UNASKED = frozenset(
    f"__{name}__"
    for name in (
        *("init", "new", "post_init", "init_subclass", "call", "enter", "exit", "del", "set"),
        *("setattr", "delattr", "setitem", "delitem", "setstate", "set_name", "getattribute"),
        *("getattr", "reduce", "getstate", "class_getitem"),
    )
)
"""Special methods that no reading operation asks for: they are called, or write."""
STORES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "STORE_GLOBAL", "STORE_DEREF", "IMPORT_NAME")
ASKING_NAMES = frozenset({"__getattr__", "__getattribute__", "__iter__", "__getitem__", "__len__"})
QUIET_NAMES = ASKING_NAMES | {
    name for kind in BUILTIN_TYPES for name in dir(kind) if name not in MUTATING_METHODS
} - set(dir(object))


def asks(context: Context, function: Any, objs: tuple[Any, ...]) -> bool:
    """Whether an operation on objects may run a method of theirs that has effects."""
    return any(type(obj) not in ATOMS and shows(context, function, obj) for obj in objs)


ATOMS = QUIET - {list, tuple, dict, set, frozenset}


def shows(context: Context, function: Any, obj: Any) -> bool:
    if is_in(function, NOTHING):
        return False
    deep = not is_in(unbound(function), SHALLOW)
    found = list(instances(obj, deep, set(), looks_through(function)))
    shown = any(
        context.has_effects(method, item) for item in found for method in special(type(item))
    )
    if shown:
        refuse_asked(
            context.services.handing,
            unbound(function),
            ((type(item), item, item is obj) for item in found),
        )
    return shown


def looks_within(function: Any, objs: Iterable[Any]) -> bool:
    """Whether an operation may ask what its operands hold, not only the operands themselves."""
    if is_in(function, NOTHING) or is_in(unbound(function), SHALLOW):
        return False
    asks_parts = bool(asked_by(function, False)) or may_ask_any(function)
    return asks_parts or any(map(is_handed, objs))


def unbound(function: Any) -> Any:
    """``dict.items`` for ``d.items``."""
    kind = type(own_attribute(function, "__self__"))
    is_method = isinstance(function, types.BuiltinMethodType) and kind in BUILTIN_TYPES
    return getattr(kind, function.__name__) if is_method else function


def may_show(
    context: Context, function: Any, cells: Collection[Cell], given: Collection[Cell]
) -> bool:
    """The same of an operation that runs thread by thread; ``cells`` are what it asks.

    ``given`` is all that it gets, with the functions that it calls.
    """
    if is_in(function, NOTHING):
        return False
    found = list(classes(cells, not is_in(function, SHALLOW)))
    shown = any(
        context.has_effects(method, receiver)
        for kind, receiver in found
        for method in special(kind)
    )
    if shown:
        refuse_shown(context, function, cells, given)
    return shown


def refuse_shown(
    context: Context, function: Any, cells: Collection[Cell], given: Collection[Cell]
) -> None:
    """Refuse an operation that runs a method of an operand's which is seen to write."""
    handing = context.services.handing
    if handing is not None and not is_in(function, NOTHING):
        deep, whole = not is_in(function, SHALLOW), looks_through(function)
        found = list(classes(cells, deep, whole))
        called = [read(cell).obj for cell in given if is_handed(getattr(read(cell), "obj", None))]  # type: ignore[union-attr]
        if called:
            found += [(type(item), None) for item in held_by(cells)]
        refuse_asked(handing, function, with_receivers(context, cells, found), called)


def held_by(cells: Iterable[Cell]) -> Iterator[Any]:
    """The objects of the user's classes in the lists and dicts that threads have as objects."""
    seen: set[int] = set()
    for value in map(read, cells):
        if type(value) is Objects and value.lists is None:
            for item in value.items:
                yield from instances(item, True, seen)


def classes(cells: Iterable[Cell], deep: bool, whole: bool = False) -> Iterator[tuple[type, Any]]:
    """The user's classes that cells have instances of; the instance too if threads share it.

    ``deep``: or their containers hold; ``whole``: or their instances, and so on.
    """
    for cell in cells:
        for part in walks.parts(cell, None if whole else is_closed) if deep else (cell,):
            yield from classes_of(part.value, deep, whole)


def with_receivers(
    context: Context, cells: Iterable[Cell], found: list[tuple[type, Any]]
) -> Iterator[tuple[type, Any, bool]]:
    """Some classes, each with an instance that existed before if operands are or have one.

    And whether it is an operand itself.
    """
    values = [read(cell) for cell in cells]
    for kind, receiver in found:
        items = [getattr(value, "obj", None) for value in values]
        items += [item for value in values if type(value) is Objects for item in value.items]
        own = next((item for item in items if type(item) is kind), receiver)
        top = any(item is own for item in items) or any(
            is_instance(value) and value.type is kind for value in values
        )
        yield kind, own if own is receiver or context.foreign.holds(own) else None, top


def is_closed(value: Container) -> bool:
    """Whether nothing asks the parts of a container: an instance is asked itself.

    But the methods that ``dataclasses`` makes ask those of the fields.
    """
    is_asked_itself = is_instance(value) and not is_dataclass(value.type)
    return is_asked_itself or not isinstance(value.type, type)


def classes_of(value: Any, deep: bool, whole: bool = False) -> Iterator[tuple[type, Any]]:
    if type(value) is Uniform and type(value.obj) not in ATOMS:
        yield from ((type(item), item) for item in instances(value.obj, deep, set(), whole))
    elif type(value) is Objects and value.lists is None and whole:
        seen: set[int] = set()
        found = (part for item in value.items for part in instances(item, True, seen, True))
        yield from ((type(part), None) for part in found)
    elif type(value) is Objects and value.lists is None:  # else of numbers or tensors
        yield from ((kind, None) for kind in value.kinds if is_asked(kind))
    elif is_instance(value):
        yield value.type, None


def is_asked(kind: type) -> bool:
    return kind not in QUIET and is_own(kind)


def is_in(function: Any, known: frozenset[Any]) -> bool:
    try:
        return function in known
    except TypeError:  # unhashable
        return False


def instances(obj: Any, deep: bool, seen: set[int], whole: bool = False) -> Iterator[Any]:
    """The objects of the user's classes that an object is, or that its builtin container holds.

    ``whole``: and those that these hold, and so on.
    """
    waiting = [obj]
    while waiting:
        each = waiting.pop()
        kind = type(each)
        held: Iterable[Any] = ()
        if kind in (list, tuple, set, frozenset, dict):
            if deep and id(each) not in seen:
                held = (*each, *each.values()) if kind is dict else each
        elif is_asked(kind):
            yield each
            if deep and (whole or is_dataclass(kind)) and id(each) not in seen:
                held = (own_attributes(each) or {}).values()
        else:
            continue
        seen.add(id(each))
        waiting += [part for part in held if type(part) not in ATOMS][::-1]


def each_thread(context: Context, function: Callable[..., Any], objs: tuple[Any, ...]) -> Cell:
    """``function(*objs)`` once for each thread; what all get alike is theirs together again."""
    cells = [uniform(obj, shared=True) for obj in objs]
    result = context.invoke(context, Unknown(function), cells, {})
    value = read(result)
    if type(value) is Objects and value.items:
        first = value.items[0]
        if all(item is first for item in value.items):
            return uniform(first, shared=True)
        lent = {place for obj in objs for place in lent_by(obj)}
        for item in value.items if lent else ():
            if memory_of(item) in lent:
                context.foreign.note(item)
    return result


class Unknown:
    """A host operation that may have any effect."""

    __autobatch__ = "unknown"

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = own_attribute(function, "__name__", type(function).__name__)
        self.__qualname__ = own_attribute(function, "__qualname__", self.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def is_own(kind: type) -> bool:
    return kind not in BUILTIN_TYPES and kind.__module__ != "builtins" and not is_library(kind)


def special(kind: type, unasked: Collection[str] = UNASKED) -> Iterator[FunctionType]:
    """The methods of a user's class that Python calls by itself: to read an instance, if not told
    otherwise.
    """
    for base in kind.__mro__:
        if is_library(base):
            continue
        for name, method in vars(base).items():
            asked = name.startswith("__") and name.endswith("__") and name not in unasked
            if asked and isinstance(method, FunctionType) and not is_wrapper(method):
                yield method


def is_wrapper(method: FunctionType) -> bool:
    """Whether a library has put code of its own in place of a method (``dataclasses`` does)."""
    return is_library_module(method.__globals__.get("__name__", ""))


def getter(obj: Any, name: str) -> FunctionType | None:
    """The Python code of a user's class by which an object gives an attribute."""
    kind = type(obj)
    if kind in QUIET:
        return None
    if isinstance(obj, type):
        has = any(name in base.__dict__ for base in (*obj.__mro__, *kind.__mro__))
        return None if has else own_function(getattr(kind, "__getattr__", None))
    asked = own_function(kind.__getattribute__)
    if asked is not None:
        return asked
    for base in kind.__mro__:
        if name in base.__dict__:
            static = base.__dict__[name]
            if type(static) is property:
                return own_function(static.fget)
            if type(static) is functools.cached_property:
                return None if name in vars(obj) else own_function(static.func)
            return own_function(getattr(type(static), "__get__", None))
    if name in (own_attributes(obj) or ()):
        return None
    return own_function(getattr(kind, "__getattr__", None))


def own_function(function: Any) -> FunctionType | None:
    return function if isinstance(function, FunctionType) and not is_library(function) else None


def refuse_finalizer(span: Span | None, kind: type) -> None:
    """Refuse to make an instance of a class with a ``__del__`` that has effects.

    Nothing says when it runs: an instance is no object of Python's, or outlives its thread's need.
    """
    method = own_function(found_in_class(kind, "__del__"))
    if method is not None and not is_quiet_code(method):
        raise refusals.finalized(span, kind)


def is_lowered_property(obj: Any, name: str, function: FunctionType) -> bool:
    """Whether an attribute is a property whose function can be lowered."""
    static = inspect.getattr_static(type(obj), name, None)
    return type(static) is property and static.fget is function and is_plain_code(function.__code__)


def is_quiet_code(function: FunctionType) -> bool:
    """Whether code that cannot be lowered (a generator, a ``try``) can be seen to have no effect.

    It stores nothing but its own variables, and calls no more than builtins and reading methods.
    """
    code = function.__code__
    if code.co_filename == "<string>":
        return True  # what ``dataclasses`` makes asks the fields only
    for step in dis.get_instructions(code):
        if step.opname in STORES or step.opname.startswith("DELETE_"):
            return False
        if step.opname == "LOAD_GLOBAL" and not is_quiet_global(function, step.argval):
            return False
        is_method = step.opname == "LOAD_METHOD" or "NULL|self" in step.argrepr
        called = step.opname in ("LOAD_METHOD", "LOAD_ATTR") and is_method
        if called and step.argval not in QUIET_NAMES:
            return False
    return not any(isinstance(const, CodeType) for const in code.co_consts)


def is_quiet_global(function: FunctionType, name: str) -> bool:
    value = function.__globals__.get(name, getattr(builtins, name, None))
    if name in ("getattr", "super", "iter", "hasattr"):
        return True
    return not callable(value) or effect_of(value) in ("host", "torch")
