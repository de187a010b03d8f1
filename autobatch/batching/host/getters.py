"""What ``operator.attrgetter``, a class pattern and the like may give of an object.

That is what its class reaches: a property, a ``__getattr__`` or a method of the program's own
instance runs as plain Python there, and may give a list of the class or a global one, which is not
the program's to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from operator import attrgetter, itemgetter, methodcaller
from types import CodeType, FunctionType
from typing import Any

from autobatch.batching.effects import is_library
from autobatch.batching.foreign import Foreign
from autobatch.batching.host.own_methods import UNASKED, is_own, special
from autobatch.frontend.matching import class_attributes
from autobatch.structure import own_attribute

GETTERS = (attrgetter, itemgetter, methodcaller)
READ_BY = UNASKED - {"__getattr__", "__getattribute__"}
THROUGH = ("__iter__", "__getitem__", "__reversed__")


def note_reached(foreign: Foreign, function: Any, args: Iterable[Any]) -> None:
    """Note what existed before of all that a getter may give of its operands.

    What goes through an instance of the user's, or takes an item, is one, too.
    """
    gets = isinstance(function, GETTERS) or function is class_attributes
    for kind in set(map(type, args)):
        if gets:
            note_named(foreign, kind)
        else:
            note_class(foreign, kind)


def note_class(foreign: Foreign, kind: type) -> None:
    """Note what existed before of all that an instance may give that is gone through."""
    if is_gone_through(kind):
        note_named(foreign, kind)


def is_gone_through(kind: type) -> bool:
    """Whether a class of the user's says what is in its instances."""
    return any(hasattr(kind, name) for name in THROUGH) and is_own(kind)


def note_named(foreign: Foreign, kind: type) -> None:
    """Note what existed before of all that the functions of a user's class may give or keep."""
    if is_own(kind):
        for each in named_by(kind):
            foreign.note(each)


def reading(kind: type) -> Iterator[FunctionType]:
    """The code of a user's class that runs where an instance or an attribute of it is read."""
    yield from special(kind, READ_BY)
    for base in filter(is_own, kind.__mro__):
        yield from (part for value in vars(base).values() for part in of_property(value))


def of_property(value: Any) -> list[FunctionType]:
    return [] if isinstance(value, FunctionType | staticmethod | classmethod) else functions(value)


def note_function(foreign: Foreign, function: FunctionType) -> None:
    """The same of a function: of all that it may give of what it names, captures or defaults to."""
    for each in named_by(function):
        foreign.note(each)


def named_by(root: type | FunctionType) -> Iterator[Any]:
    """The classes of an instance, and what their functions name, and those in turn."""
    waiting: list[Any] = list(root.__mro__) if isinstance(root, type) else [root]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen or (isinstance(each, type | FunctionType) and is_library(each)):
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, type):
            waiting += [part for value in vars(each).values() for part in functions(value)]
        elif isinstance(each, FunctionType):
            space = each.__globals__
            waiting += [space[name] for name in names_in(each.__code__) if name in space]
            waiting += held_by(each)


def held_by(function: FunctionType) -> Iterator[Any]:
    """What a function captures, and its defaults."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # it is empty
            yield cell.cell_contents
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def method_called(caller: Any) -> str:
    """The name that an ``operator.methodcaller`` calls."""
    head, rest = caller.__reduce__()
    return str(head.args[0] if isinstance(head, partial) else rest[0])


def functions(value: Any) -> list[Any]:
    """The functions of a method, a property, or another descriptor."""
    found = [value, *(own_attribute(value, name) for name in ("__func__", "fget", "func"))]
    return [each for each in found if isinstance(each, FunctionType)]


def names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from names_in(const)
