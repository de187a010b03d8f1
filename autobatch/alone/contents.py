"""What a Python value holds, however deep: whether it is data, and what of it can be written to.

In: a value. Out: its ``Nature``, noted in ``Contents`` with the user's classes and the callables
that are within; or ``NotAlone`` where something is no data that is known, a tensor say.
"""

from __future__ import annotations

import dataclasses
import re
import reprlib
from abc import ABC, ABCMeta
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from types import (
    BuiltinFunctionType,
    EllipsisType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    NoneType,
    NotImplementedType,
)
from typing import Any, Generic

import torch
from torch import Tensor

from autobatch.arguments.mapped import COPIED
from autobatch.batching.effects import is_library
from autobatch.source import Span
from autobatch.structure import own_attribute, own_attributes

FIXED, FLAT, DEEP = 0, 1, 2
"""Natures: cannot be written to; can, but what is within cannot; both can."""
SCALARS = frozenset(
    {NoneType, bool, int, float, complex, str, bytes, range}
    | {re.Pattern, re.Match, EllipsisType, NotImplementedType, torch.dtype}
)
CONTAINERS = frozenset({list, dict, set, deque, OrderedDict, Counter})
"""Not ``defaultdict``: to read one may write it."""
DICTS = frozenset({dict, OrderedDict, Counter})
LIBRARY_FILES = (dataclasses.__file__, reprlib.__file__)
"""Of the guard of a ``__repr__`` against recursion, and of what ``dataclasses`` adds by hand."""
CALLABLES = FunctionType | MethodType | BuiltinFunctionType | MethodDescriptorType | type


class NotAlone(Exception):
    """A program is not known to be one of Python objects alone; says why, and where if known."""

    span: Span | None = None

    def at(self, span: Span | None) -> None:
        """It has been met at a place, or within what is called there."""
        if self.span is None:
            self.span = span


@dataclass(slots=True, eq=False, repr=False)
class Contents:
    """The user's classes that have instances in some values, and the callables there.

    ``has_instances``: among them is what a thread has no copy of (``arguments.private``) and what
    it could write to, or to something within. ``takes_tensors``: tensors are data too, which
    nobody writes to; they are noted.
    """

    takes_tensors: bool = False
    classes: set[type] = field(default_factory=set)
    callables: list[Any] = field(default_factory=list)
    has_instances: bool = False
    tensors: list[Tensor] = field(default_factory=list)
    slots: dict[type, tuple[MemberDescriptorType, ...]] = field(default_factory=dict)
    """Of the classes that have been met, whose instances can be written to."""

    def nature(self, value: Any) -> int:
        """What of a value can be written to."""
        if type(value) in SCALARS:
            return FIXED
        todo, seen, written = [value], {id(value)}, 0
        while todo:
            part = todo.pop()
            kind = type(part)
            if kind in CONTAINERS:
                self.has_instances |= kind is Counter
                written += 1 if part is value else 2
            elif kind in self.slots:
                written += 2
            elif kind is not tuple and kind is not frozenset:
                written += 2 * self.is_written(part)
            within = self.parts(part)
            self.has_instances |= bool(within) and kind not in COPIED
            for inner in within:
                if id(inner) not in seen:
                    seen.add(id(inner))
                    todo.append(inner)
        return min(written, DEEP)

    def nature_of_any(self, values: Iterable[Any]) -> int:
        """The deepest of some values."""
        return max(map(self.nature, values))

    def is_written(self, part: Any) -> bool:
        """Whether what is no container can be written to: an instance of a user's class."""
        kind = type(part)
        if isinstance(part, CALLABLES):
            self.callables.append(part)
            return False
        if kind in SCALARS:
            return False
        if self.takes_tensors and isinstance(part, Tensor):
            self.tensors.append(part)
            return False
        if kind not in self.classes:
            check_class(kind)
            self.classes.add(kind)
        is_tuple = issubclass(kind, tuple)
        fixed = issubclass(kind, Enum) or (is_tuple and not kind.__dictoffset__)
        if not fixed and not is_tuple:
            self.slots[kind] = slots_of(kind)
        self.has_instances |= not fixed
        return not fixed

    def parts(self, part: Any) -> list[Any]:
        """What is directly within, but for numbers and strings."""
        kind = type(part)
        slots = self.slots.get(kind)
        if slots is not None:
            return compound(list(attributes(part, slots)))
        if kind in DICTS:
            return [*compound(part), *compound(part.values())]
        if kind in CONTAINERS or isinstance(part, tuple | frozenset):
            return compound(part)
        if isinstance(part, CALLABLES | Tensor):
            return []
        return compound(list(attributes(part, slots_of(kind))))


def compound(items: Collection[Any]) -> list[Any]:
    """Those of some values that are no numbers and strings."""
    if SCALARS.issuperset(map(type, items)):
        return []
    return [item for item in items if type(item) not in SCALARS]


def slots_of(kind: type) -> tuple[MemberDescriptorType, ...]:
    members = (member for base in kind.__mro__ for member in vars(base).values())
    return tuple(member for member in members if type(member) is MemberDescriptorType)


def attributes(instance: Any, slots: tuple[MemberDescriptorType, ...]) -> Iterator[Any]:
    """What an instance of a user's class holds; no code of its own runs."""
    yield from (own_attributes(instance) or {}).values()
    for member in slots:
        try:
            yield member.__get__(instance, type(instance))
        except AttributeError:
            continue


# fmt: off
REFUSED = frozenset(
    ["__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__del__", "__new__",
     "__init_subclass__", "__set_name__", "__get__", "__set__", "__delete__", "__await__",
     "__instancecheck__", "__subclasscheck__", "__mro_entries__"]
)
# fmt: on
"""Special methods of a class that plain data does without; generated ones are no matter."""


def is_generated(function: FunctionType) -> bool:
    """Whether ``dataclasses`` or ``namedtuple`` has made it: it does what it is known to do.

    Not so all that has no file: what is typed at a prompt, say. Nor what wraps one of them, but for
    the guard of a ``__repr__`` against recursion.
    """
    if function.__code__.co_filename in LIBRARY_FILES:
        inner = own_attribute(function, "__wrapped__")
        return inner is None or is_generated(inner)
    code = function.__code__
    by_dataclasses = code.co_qualname.startswith("__create_fn__.")
    return code.co_filename == "<string>" and (by_dataclasses or code.co_name == "<lambda>")


def own_bases(kind: type) -> list[type]:
    """A class and those of its bases that the user has written."""
    return [base for base in kind.__mro__ if not is_library(base) and base is not object]


BARE = frozenset({object, Generic, ABC})
"""Bases that give instances nothing."""


def check_class(kind: type) -> None:
    """Whether instances of a class are data: it, and all of its bases, hold attributes only."""
    own = own_bases(kind)
    others = [base for base in kind.__mro__ if base not in own]
    if not own or not (BARE.issuperset(others) or is_special(kind)):
        raise NotAlone(f"{kind.__qualname__} is no class of plain data{of_torch(kind)}")
    if not issubclass(kind, Enum) and type(kind) not in (type, ABCMeta):
        raise NotAlone(f"{kind.__qualname__} has a metaclass")
    for base in own:
        for name in REFUSED & vars(base).keys():
            made = vars(base)[name]
            made = own_attribute(made, "__func__", made)
            generated = isinstance(made, FunctionType) and is_generated(made)
            if not generated and not (issubclass(kind, Enum) and name == "__new__"):
                raise NotAlone(f"{kind.__qualname__} has {name}")


def of_torch(kind: type) -> str:
    """What is said of a class of torch's, or one that is made of it."""
    if issubclass(kind, torch.nn.Module):
        return ": nothing is proved of modules"
    return ": nothing is proved of torch's modes" if kind.__module__[:6] == "torch." else ""


def is_special(kind: type) -> bool:
    """Whether it is a named tuple, an enumeration or an exception."""
    return issubclass(kind, Enum | BaseException) or (
        issubclass(kind, tuple) and hasattr(kind, "_fields")
    )
