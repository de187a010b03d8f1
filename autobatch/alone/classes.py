"""The classes that have instances in a program of objects alone, and the methods that they run.

``Classes`` brings in what Python calls by itself, and what is asked for by name of something
unknown.
"""

from __future__ import annotations

import dataclasses
import json
from abc import ABCMeta, abstractmethod
from collections import ChainMap
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, EnumMeta
from functools import cached_property
from types import (
    BuiltinFunctionType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    WrapperDescriptorType,
)
from typing import Any

from torch import nn

from autobatch.alone.asking import FRAMES
from autobatch.alone.functions import Functions
from autobatch.alone.kinds import (
    MAKES_MODULE,
    NotAlone,
    check_class,
    is_generated,
    is_of_container,
    own_bases,
    titled,
)
from autobatch.alone.taint import CODE, NONE, OUTER_DEEP, Share, Unit
from autobatch.batching import known_arrays as arrays
from autobatch.batching import known_callees as callees
from autobatch.batching import known_library as library
from autobatch.batching.effects import effect_of, is_library
from autobatch.ir.dataflow import op_writes, terminator_reads, terminator_writes
from autobatch.ir.program import Call, CallShape, Function
from autobatch.structure import own_attribute

C_MEMBERS = (
    *(BuiltinFunctionType, WrapperDescriptorType, MethodDescriptorType),
    *(GetSetDescriptorType, MemberDescriptorType, type),
)
FINE_INITS = frozenset({"__init__", "__post_init__"})
PROPERTYS = frozenset({"fget", "fset", "fdel", "getter", "setter", "deleter"})
"""What leads from a property to its functions."""
ASKED_BY_OTHERS = library.ASKED_BY_ANY | arrays.ASKED | {"keys", "read", "write", "flush"}
"""What Python, its library or numpy may ask something for by itself."""
ENTERED = frozenset({"__enter__", "__exit__"})
"""Special methods that nothing but a ``with`` statement calls."""


@dataclass(slots=True, eq=False, repr=False)
class Classes(Functions):
    """All classes that a program has instances of, as they are found."""

    classes: dict[type, dict[str, Any]] = field(default_factory=dict)
    existing: set[type] = field(default_factory=set)
    """Those of which instances existed before."""
    names: set[str] = field(default_factory=set)
    """Attributes that are asked of something unknown."""
    builds: bool = False
    raises: bool = False
    """Python's exceptions are values: they may be made of anything."""
    keeps: bool = False
    """Functions of Python's are values that may put what they get into something."""
    asks_kinds: bool = False
    """A class may be a value that has not been met as such."""
    makes_kinds: bool = False
    """A class may be made."""
    makes_entries: bool = False
    """Dicts make instances of a class of the user's where they have no entry."""
    makes_chains: bool = False
    """There are ``ChainMap``s: what such a one writes and reads is what it has been given."""
    suppresses: bool = False
    """There are context managers of Python's, which give nothing."""
    assigned: set[str] = field(default_factory=set)

    @abstractmethod
    def met_callable(self, value: Any) -> None:
        """A function that may be called with anything, or a class."""

    def met_class(self, kind: type) -> None:
        if type(kind) not in (type, ABCMeta, EnumMeta):
            raise NotAlone("it has a metaclass, which may see all that is asked of the class")
        if callees.is_known(kind) or is_librarys_exception(kind):
            return
        if effect_of(kind) not in ("program", "host") and not issubclass(kind, Enum):
            is_module = issubclass(kind, nn.Module) and not is_library(kind)
            raise NotAlone(MAKES_MODULE if is_module else f"{titled(kind)} is not known")
        self.add_class(kind)

    def add_class(self, kind: type) -> None:
        if kind not in self.classes:
            check_class(kind)
            for base in own_bases(kind):
                self.classes[base] = dict(vars(base))
            self.shares.changed = True

    def instance_existed(self, kind: type) -> None:
        """An instance of a class is met that existed before."""
        self.add_class(kind)
        self.shares.changed |= kind not in self.existing
        self.existing.add(kind)
        self.shares.instances_existed()

    def may_have_existed(self, kind: type) -> bool:
        """Whether the program may come to an instance of a class that it has not made."""
        heirs = [each for each in self.classes if issubclass(each, kind)]
        return (
            self.shares.has_any_instances
            or not self.existing.isdisjoint(heirs)
            or any(issubclass(each, (Enum, nn.Module)) for each in heirs)
        )

    def anything_is_built(self) -> None:
        """Instances may be made of classes that are not known."""
        self.shares.changed |= not self.builds
        self.builds = True

    def fields_are_replaced(self) -> None:
        """Instances are made of what others hold."""
        self.anything_is_built()
        self.shares.give(self.shares.kept())

    def asks(self, name: str, base: Share = OUTER_DEEP) -> None:
        """An attribute is asked for, or written, by its name; a cached one is kept in ``base``.

        Not in what existed before, or in a tensor, where all that have one are the program's own.
        """
        if name in FRAMES:
            raise NotAlone(f"{name} leads to all that a function holds")
        if name in PROPERTYS:
            raise NotAlone(f"{name} may be a function of a property")
        kept = [
            kind
            for kind, members in self.classes.items()
            if type(members.get(name)) is cached_property
        ]
        if any(map(self.may_have_existed, kept)):
            self.shares.write(base, attribute=True)
        self.shares.changed |= name not in self.names  # the classes' members are still to be met
        self.names.add(name)

    def asked_by(self, found: object) -> None:
        """A library's function may ask what it gets for attributes, and call them."""
        for members in list(self.classes.values()):
            for name in callees.asked(found) & members.keys():
                self.asks(name)
                for unit, _ in self.called_by_name(name):
                    self.escapes(unit, bound=self.binds(name))

    # What classes run.

    def methods(self) -> None:
        """Bring in what Python may call by itself, and what is asked for by name."""
        for kind, members in list(self.classes.items()):
            if self.makes_kinds and "__init_subclass__" in members:
                title = f"{kind.__qualname__} has __init_subclass__"
                raise NotAlone(f"{title}, and the program may make a class")
            for name, member in members.items():
                if name != "__init_subclass__":
                    self.member(kind, name, member)
            if self.builds:
                self.defaults(kind)
                if not has_own_init(kind):  # it puts what it gets into attributes
                    self.shares.store(self.shares.given)

    def member(self, kind: type, name: str, member: Any) -> None:
        special = (name[:2] == "__" and name[-2:] == "__") or name == "_missing_"
        special = special or is_of_container(kind, name)
        if isinstance(member, property):
            if special or name in self.names:
                for function in (member.fget, member.fset, member.fdel):
                    if isinstance(function, FunctionType):
                        is_plain = type(member) is property and not special
                        self.of_property(name, self.own_unit(kind, function), is_plain)
                    elif function is not None:
                        raise NotAlone(f"{name} is no property of functions")
            return
        if type(member) is cached_property and not special:
            if name in self.names:
                self.cached(kind, name, member.func)
            return
        function = own_function(kind, member)
        if type(member) is MethodType:  # of something that existed before
            if special:
                raise NotAlone(f"{kind.__qualname__} has {name}")
            if name in self.names:
                self.shares.has(name, self.met(member))
        elif function is not None:
            if name in FINE_INITS and self.builds:
                self.builds_by(self.method(kind, member, function))
            elif special and name not in ENTERED | FINE_INITS:
                bound = function is member and name != "__class_getitem__"
                yields = function is member and name == "__iter__"
                self.escapes(self.method(kind, member, function, yields), bound)
            elif name in self.names:
                self.method(kind, member, function)
        elif isinstance(own_attribute(member, "__func__", member), FunctionType):
            return  # Python's own
        elif special:
            if not is_plain_special(member) or name in ENTERED:
                raise NotAlone(f"{kind.__qualname__} has {name}")
        elif name in self.names and not is_slot(member):
            if issubclass(kind, Enum) and isinstance(member, kind):
                return
            self.shares.has(name, self.met(member))

    def of_property(self, name: str, unit: Unit, is_plain: bool) -> None:
        """What a property gives comes out where its name is asked for.

        Not where nobody says the name: a library may ask for it, or it is another's, too.
        """
        if not is_plain or name in ASKED_BY_OTHERS or unit.property_of not in ("", name):
            self.escapes(unit, bound=True)
            return
        self.shares.changed |= not unit.property_of
        unit.property_of = name
        self.shares.put(name, unit.returned)

    def cached(self, kind: type, name: str, function: object) -> None:
        """A cached property is computed, and kept in its instance (see ``asks``)."""
        if not isinstance(function, FunctionType):
            raise NotAlone("a property is no function of the user's")
        unit = self.own_unit(kind, function)
        self.escapes(unit, bound=True)
        self.shares.put(name, unit.returned)

    def method(self, kind: type, member: Any, function: FunctionType, yields: bool = False) -> Unit:
        """What a class has as a method: a class method gets a class that has it."""
        unit = self.own_unit(kind, function, yields)
        if isinstance(member, classmethod):
            first = [param.name for param in unit.function.params[:1]]
            for each in self.receivers(function):
                self.shares.add(unit, first, self.receiver(unit, each))
        return unit

    def own_unit(self, kind: type, function: FunctionType, yields: bool = False) -> Unit:
        """A function that a class has."""
        unit = self.unit(function, yields=yields)
        heirs = [each for each in self.classes if issubclass(each, kind)]
        if not unit.is_of_members and any(issubclass(each, Enum) for each in heirs):
            unit.is_of_members = self.shares.changed = True
        existed = not self.existing.isdisjoint(heirs)
        if existed is not unit.of_existing:  # None until this has been asked
            unit.of_existing, self.shares.changed = existed, True
        return unit

    def receivers(self, function: FunctionType) -> list[type]:
        """The classes that have a function as a class method."""
        return [
            kind
            for kind in self.classes
            if any(
                isinstance(member, classmethod) and member.__func__ is function
                for base in kind.__mro__
                for member in vars(base).values()
            )
        ]

    def kinds_of(self, unit: Unit) -> list[type]:
        """The classes that have a function as a class method."""
        for function in self.functions.values():
            if self.lowered(function, yields=True) is unit.source:
                return self.receivers(function)
        return []

    def receiver(self, unit: Unit, value: Any) -> Share:
        """What a function is bound to; a class is no value where it is only called: ``cls(x)``."""
        is_class = isinstance(value, type) and not isinstance(value, EnumMeta)
        if not is_class or unit.is_free or not is_first_only_called(unit.function):
            return self.as_receiver(value)
        self.met_class(value)
        return NONE

    def as_receiver(self, value: Any) -> Share:
        """What a function is bound to."""
        if isinstance(value, type) and not isinstance(value, EnumMeta):
            self.met_class(value)
            return self.kind_asked()
        return self.met(value)

    def called_by_name(self, name: str) -> list[tuple[Unit, Any]]:
        """The user's methods of a name, and what the classes have as such."""
        found: list[tuple[Unit, Any]] = []
        for kind, members in list(self.classes.items()):
            member = members.get(name)
            function = own_function(kind, member)
            if function is not None:
                found.append((self.method(kind, member, function), member))
        return found

    def passed_by_name(
        self, unit: Unit, member: Any, receiver: Share, given: list[Share], shape: CallShape
    ) -> None:
        """Arguments come to a method; the receiver does where it is one of an instance."""
        if isinstance(member, staticmethod):
            self.passed(unit, given, shape)
            return
        if isinstance(member, classmethod):
            own = NONE
        else:
            if receiver & CODE and may_fit(unit.function, shape):
                self.passed(unit, given, shape)  # asked of a class, perhaps, it gets what is given
            own = self.shares.instance(unit, receiver)
        self.passed(unit, [own, *given], shape, 1)

    def kind_asked(self) -> Share:
        """The class of something is asked for; it may be called."""
        self.shares.changed |= not self.asks_kinds
        self.asks_kinds = True
        return CODE

    def kind_of(self, share: Share) -> Share:
        """The class of what has the share ``share``; that of a class makes classes."""
        if share & CODE:
            self.kinds_are_made()
        return self.kind_asked()

    def made_of(self, found: object) -> None:
        """A class of Python's is called, perhaps one that makes what hands on what it gets."""
        if found is ChainMap and not self.makes_chains:
            self.makes_chains = self.shares.changed = True

    def kinds_are_made(self) -> None:
        self.shares.changed |= not self.makes_kinds
        self.makes_kinds = True

    def has_field(self, name: str) -> bool:
        """Whether instances of a class may hold something of a name, which may be called."""
        return any(name in own_annotations(members) for members in self.classes.values())

    def binds(self, name: str) -> bool:
        """Whether methods of a name get instances first: no class has one that gets a class."""
        if any(isinstance(m, classmethod) for kind in self.classes.values() for m in kind.values()):
            return False
        return not any(isinstance(kind.get(name), staticmethod) for kind in self.classes.values())

    def built(self, kind: type, args: Share, positional: list[Share], shape: CallShape) -> None:
        """An instance of a user's class is made: by its ``__init__``, or of what it gets itself."""
        self.met_class(kind)
        inits = []
        for name in FINE_INITS:
            made = next((vars(b)[name] for b in own_bases(kind) if name in vars(b)), None)
            if isinstance(made, FunctionType) and not is_generated(made):
                self.passed(self.unit(made), [NONE, *positional], shape, 1)
                inits.append(name)
        if "__init__" not in inits or issubclass(kind, BaseException | tuple):
            self.shares.store(args)
        self.defaults(kind)

    def defaults(self, kind: type) -> None:
        """What the fields of a dataclass hold where nothing is given."""
        for each in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
            if each.default_factory is not dataclasses.MISSING:
                self.met_callable(each.default_factory)
            if each.default is not dataclasses.MISSING:
                self.shares.put(each.name, self.met(each.default))
        defaults = own_attribute(kind, "_field_defaults") if issubclass(kind, tuple) else None
        for value in defaults.values() if isinstance(defaults, dict) else ():  # a named tuple's
            self.shares.store(self.met(value))


def has_own_init(kind: type) -> bool:
    """Whether the user has written the ``__init__`` that makes instances of a class."""
    made = next((vars(b)["__init__"] for b in own_bases(kind) if "__init__" in vars(b)), None)
    return isinstance(made, FunctionType) and not is_generated(made)


def may_fit(function: Function, shape: CallShape) -> bool:
    """Whether a call gives all parameters something that have no default."""
    if not shape.is_plain:
        return True
    rest = function.params[len(shape.positional) :]
    return all(
        param.has_default or param.kind.startswith("var_") or param.name in shape.keywords
        for param in rest
    )


def is_first_only_called(function: Function) -> bool:
    """Whether the first parameter is never assigned, and read as what is called alone."""
    name = function.params[0].name if function.params else ""
    for block in function.blocks:
        for op in block.ops:
            read = op.args[1:] if op.name == "call" else op.args
            if name in read or name in op_writes(op):
                return False
        end = block.terminator
        read = end.args if isinstance(end, Call) else terminator_reads(end)
        if name in read or name in terminator_writes(end):
            return False
    return True


def is_librarys_exception(kind: type) -> bool:
    """Whether it is an exception of Python's or numpy's, which is made as Python's own are."""
    if not issubclass(kind, BaseException) or not is_library(kind):
        return False
    made = (base for base in kind.__mro__ if base.__module__ != "builtins")
    has_own = any({"__init__", "__new__"} & vars(base).keys() for base in made)
    return not has_own or kind is json.JSONDecodeError


def own_function(kind: type, member: Any) -> FunctionType | None:
    """The user's function that is a member of a class; None for what Python has made."""
    function = own_attribute(member, "__func__", member)
    is_bound = type(member) is MethodType  # to something else
    if is_bound or not isinstance(function, FunctionType) or is_generated(function):
        return None
    return None if issubclass(kind, Enum | tuple) and is_library(function) else function


def is_plain_special(member: Any) -> bool:
    """Whether Python calls no code of the user's by a special member that is no function."""
    if isinstance(member, C_MEMBERS) or own_attribute(member, "__func__") is GenericAlias:
        return True
    return not callable(member) and not hasattr(type(member), "__get__")


def own_annotations(members: Mapping[str, Any]) -> Collection[str]:
    """The fields that a class says its instances have."""
    found = members.get("__dataclass_fields__") or members.get("__annotations__")
    return found if isinstance(found, Mapping) else ()


def is_slot(member: Any) -> bool:
    return type(member).__name__ in ("member_descriptor", "getset_descriptor", "_tuplegetter")
