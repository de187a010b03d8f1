"""What a Python value holds, however deep: whether it is data, and what of it can be written to.

In: a value. Out: its ``Nature``, noted in ``Contents`` with the user's classes and the callables
that are within; or ``NotAlone`` where something is no data that is known, a tensor say.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timezone
from enum import Enum
from random import Random
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
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from autobatch.alone.kinds import DRAWS, NotAlone, check_class, is_container
from autobatch.alone.modules import KINDS, MOST, check_module, held, names_held
from autobatch.arguments.mapped import COPIED
from autobatch.batching import known_arrays as arrays
from autobatch.batching import known_library as library
from autobatch.structure import own_attributes

FIXED, FLAT, TABLE, ROWS, DEEP = 0, 1, 2, 3, 4
"""Natures: cannot be written to; can, but what is within cannot; a dict, or a list, of those two;
all else.
"""
SCALARS = frozenset(
    {NoneType, bool, int, float, complex, str, bytes, range}
    | {re.Pattern, re.Match, EllipsisType, NotImplementedType, torch.dtype}
    | library.FIXED
)
CONTAINERS = frozenset({list, dict, set, deque, OrderedDict, Counter})
"""Not ``defaultdict``: to read one may write it."""
DICTS = frozenset({dict, OrderedDict, Counter})
CALLABLES = FunctionType | MethodType | BuiltinFunctionType | MethodDescriptorType | type


@dataclass(slots=True, eq=False, repr=False)
class Contents:
    """The user's classes that have instances in some values, and the callables there.

    ``has_instances``: among them is what a thread has no copy of (``arguments.private``) and what
    it could write to, or to something within. ``takes_tensors``: tensors are data too, which
    nobody writes to; they are noted. ``most``: how much may be looked through.
    """

    takes_tensors: bool = False
    most: int = sys.maxsize
    classes: set[type] = field(default_factory=set)
    callables: list[Any] = field(default_factory=list)
    modules: list[nn.Module] = field(default_factory=list)
    named: list[tuple[str, nn.Module]] = field(default_factory=list)
    """Those that instances of a user's classes have as attributes, with their names."""
    loose: list[nn.Module] = field(default_factory=list)
    """Those that something has in another way: a list, a slot. A module has its own by names."""
    leading: set[str] = field(default_factory=set)
    """The attributes by which some instance has more than a number or text."""
    has_instances: bool = False
    numpy: bool = False
    """Something of numpy's is among them."""
    arrays: bool = False
    """Arrays are, which nobody writes to."""
    tensors: list[Tensor] = field(default_factory=list)
    slots: dict[type, tuple[MemberDescriptorType, ...]] = field(default_factory=dict)
    """Of the classes that have been met, whose instances can be written to."""
    members: set[int] = field(default_factory=set)
    """Members of enumerations that have been looked through: numbers and texts, as most are."""

    def nature(self, value: Any) -> int:
        """What of a value can be written to."""
        if type(value) in SCALARS:
            return FIXED
        todo, seen, written = [value], {id(value)}, 0
        while todo:
            part = todo.pop()
            if id(part) in self.members:
                continue
            kind = type(part)
            if kind in CONTAINERS:
                self.has_instances |= kind is Counter
                written += 1 if part is value else DEEP
            elif kind in self.slots:
                written += DEEP
            elif kind is not tuple and kind is not frozenset:
                depth = 1 if part is value and not isinstance(part, nn.Module) else DEEP
                written += depth * self.is_written(part)
            within = self.parts(part)
            self.has_instances |= bool(within) and kind not in COPIED
            for inner in within:
                if id(inner) not in seen:
                    seen.add(id(inner))
                    todo.append(inner)
        if written <= FLAT:
            return written
        return nature_of_nested(value)

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
        if isinstance(part, np.ndarray | np.generic):
            return self.array(part)
        if kind in library.TIMES:
            if part.tzinfo is not None and type(part.tzinfo) is not timezone:
                raise NotAlone("a time zone that is none of Python's")
            return False
        if isinstance(part, nn.Module):
            self.module(part)
            return True
        if self.takes_tensors and isinstance(part, Tensor):
            self.tensors.append(part)
            return False
        if kind not in self.classes:
            if isinstance(part, (Random, *arrays.DRAWING)):
                raise NotAlone(DRAWS)
            check_class(kind)
            if is_container(kind):
                raise NotAlone(f"{kind.__qualname__} is a class of containers: one existed before")
            self.classes.add(kind)
        is_tuple = issubclass(kind, tuple)
        fixed = issubclass(kind, Enum) or (is_tuple and not kind.__dictoffset__)
        if not fixed and not is_tuple:
            self.slots[kind] = slots_of(kind)
        self.has_instances |= not fixed
        return not fixed

    def array(self, part: Any) -> bool:
        """An array or number of numpy's; there are views of an array."""
        self.numpy = True
        if type(part) in arrays.KINDS:
            return False
        if type(part) is not np.ndarray:
            raise NotAlone(f"{type(part).__qualname__} is a class of numpy's that is not known")
        if part.dtype.hasobject:
            raise NotAlone("an array of Python objects that existed before")
        self.arrays = self.has_instances = True
        return True

    def module(self, part: nn.Module) -> None:
        """One that may be called; its class has members to be looked into where it is the user's.

        ``world.Data`` looks for those that are in the place of others.
        """
        if not self.takes_tensors or len(self.modules) == MOST:
            raise NotAlone("modules are called" if not self.takes_tensors else "so many modules")
        check_module(part)
        self.modules.append(part)
        if type(part) not in KINDS:
            self.classes.add(type(part))

    def parts(self, part: Any) -> list[Any]:
        """What is directly within, but for numbers and strings."""
        kind = type(part)
        if kind is tuple or kind in CONTAINERS:
            return self.parts_of_container(part)
        slots = self.slots.get(kind)
        if slots is None:
            return self.parts_of_other(part)
        if kind.__dictoffset__:
            table = own_attributes(part) or {}
            if self.takes_tensors:
                self.named += [each for each in table.items() if isinstance(each[1], nn.Module)]
            found = self.compound(table.values())
            if found:
                self.leading |= {each for each, has in table.items() if type(has) not in SCALARS}
            return found + self.let_go(self.in_slots(part, slots))
        return self.let_go(self.in_slots(part, slots))

    def in_slots(self, part: Any, slots: tuple[MemberDescriptorType, ...]) -> list[Any]:
        found = self.compound(slotted(part, slots))
        if found:
            self.leading |= {member.__name__ for member in slots}
        return found

    def parts_of_container(self, part: Any) -> list[Any]:
        found = self.compound(part)
        if type(part) in DICTS:
            found += self.compound(part.values())
        return self.let_go(found)

    def parts_of_other(self, part: Any) -> list[Any]:
        """The same of what is no instance of a class that has been met."""
        kind = type(part)
        if isinstance(part, nn.Module):
            self.leading |= names_held(part)
            return self.compound(held(part))
        if isinstance(part, CALLABLES | Tensor | np.ndarray | np.generic) or kind in library.TIMES:
            return []
        if kind.__dictoffset__:
            self.leading |= (own_attributes(part) or {}).keys()
        if isinstance(part, tuple | frozenset):
            return self.parts_of_container(part)
        found = self.compound(attributes(part, slots_of(kind)))
        if isinstance(part, Enum) and all(each is kind for each in found):
            self.members.add(id(part))  # its class keeps it alive
        return self.let_go(found)

    def let_go(self, found: list[Any]) -> list[Any]:
        """What something holds, by no name that tells of it."""
        if found and self.takes_tensors:
            self.loose += [each for each in found if isinstance(each, nn.Module)]
        return found

    def compound(self, items: Collection[Any]) -> list[Any]:
        """Those of some values that are to be looked into."""
        self.most -= len(items)
        if self.most < 0:
            raise NotAlone("so much data that all threads share, for so few threads")
        return compound(items)


def nature_of_nested(value: Any) -> int:
    """The nature of what has within what can be written to."""
    if type(value) in DICTS:
        return TABLE if all(map(is_flat, value)) and all(map(is_flat, value.values())) else DEEP
    return ROWS if type(value) in (list, tuple) and all(map(is_flat, value)) else DEEP


def is_flat(item: Any) -> bool:
    """Whether nobody can write to it, or to what is within it."""
    kind = type(item)
    if kind in SCALARS:
        return True
    if kind in DICTS:
        return are_fixed(item) and are_fixed(item.values())
    return (kind in CONTAINERS or kind is tuple or kind is frozenset) and are_fixed(item)


def are_fixed(items: Collection[Any]) -> bool:
    """Whether these are numbers, strings, and tuples of such."""
    return SCALARS.issuperset(map(type, items)) or all(
        type(item) in SCALARS or (type(item) in (tuple, frozenset) and are_fixed(item))
        for item in items
    )


def compound(items: Collection[Any]) -> list[Any]:
    """Those of some values that are no numbers and strings."""
    if SCALARS.issuperset(map(type, items)):
        return []
    return [item for item in items if type(item) not in SCALARS]


def slots_of(kind: type) -> tuple[MemberDescriptorType, ...]:
    members = (member for base in kind.__mro__ for member in vars(base).values())
    return tuple(member for member in members if type(member) is MemberDescriptorType)


def attributes(instance: Any, slots: tuple[MemberDescriptorType, ...]) -> list[Any]:
    """What an instance of a user's class holds; no code of its own runs."""
    table = own_attributes(instance) if type(instance).__dictoffset__ else None
    found = slotted(instance, slots)
    return [*table.values(), *found] if table else found


def slotted(instance: Any, slots: tuple[MemberDescriptorType, ...]) -> list[Any]:
    """What an instance holds in slots."""
    kind = type(instance)
    try:
        return [member.__get__(instance, kind) for member in slots]
    except AttributeError:  # some are not set
        return list(those_set(instance, slots))


def those_set(instance: Any, slots: tuple[MemberDescriptorType, ...]) -> Iterator[Any]:
    for member in slots:
        try:
            yield member.__get__(instance, type(instance))
        except AttributeError:
            continue
