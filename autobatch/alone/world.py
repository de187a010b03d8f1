"""All that a program of objects alone may run, as it is found: its functions, classes and data.

``World`` brings in what a value that existed before holds, and notes what it has looked up.
"""

from __future__ import annotations

import dataclasses
import operator
from abc import ABCMeta
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, EnumMeta
from functools import cached_property
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from torch import Tensor

from autobatch.alone import computing, kept
from autobatch.alone.asking import FRAMES
from autobatch.alone.contents import Contents, NotAlone, check_class, is_generated, own_bases
from autobatch.alone.inner import Inner
from autobatch.alone.scale import Scale
from autobatch.alone.taint import CODE, NONE, OUTER_DEEP, OUTERS, TENSORS, Share, Shares, Unit
from autobatch.alone.webs import told_apart
from autobatch.batching import known_callees as callees
from autobatch.batching.binding import defaults_of
from autobatch.batching.effects import effect_of, is_library
from autobatch.errors import AutobatchError
from autobatch.frontend import MISSING
from autobatch.ir.definitions import definitions_of
from autobatch.ir.program import CallShape, Function, Op, Var
from autobatch.structure import own_attribute
from autobatch.vm.library import Library
from autobatch.vm.purity import Known, Names, content

MOST_UNITS = 200
"""Functions of a program past which it is not looked through."""
C_MEMBERS = (
    *(BuiltinFunctionType, WrapperDescriptorType, MethodDescriptorType),
    *(GetSetDescriptorType, MemberDescriptorType, type),
)
FINE_INITS = frozenset({"__init__", "__post_init__"})
ENTERED = frozenset({"__enter__", "__exit__"})
"""Special methods that nothing but a ``with`` statement calls."""


@dataclass(frozen=True, slots=True)
class Data:
    """What existed before, and what was in it."""

    value: Any
    nature: int
    classes: frozenset[type]
    callables: tuple[Any, ...]
    takes_tensors: bool = False
    holds_tensors: bool = False

    @property
    def may_change(self) -> bool:
        return bool(self.nature) or self.holds_tensors

    def is_as_before(self) -> bool:
        contents = Contents(self.takes_tensors)
        try:
            found = contents.nature(self.value)
        except NotAlone:
            return False
        return (
            found == self.nature
            and bool(contents.tensors) == self.holds_tensors
            and computing.may_compute(contents.tensors)
            and contents.classes == self.classes
            and len(contents.callables) == len(self.callables)
            and all(map(operator.is_, contents.callables, self.callables))
        )


@dataclass(slots=True, eq=False, repr=False)
class World:
    """All that a program may run, as it is found."""

    library: Library
    shares: Shares = field(default_factory=Shares)
    units: dict[int, tuple[Unit, Known]] = field(default_factory=dict)
    classes: dict[type, dict[str, Any]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    """Attributes that are asked of something unknown."""
    builds: bool = False
    suppresses: bool = False
    """There are context managers of Python's, which give nothing."""
    doubted: bool = False
    """Something is not known yet, and may be when more has been found."""
    is_settled: bool = False
    assigned: set[str] = field(default_factory=set)
    lookups: list[tuple[Callable[[], Any], Any]] = field(default_factory=list)
    looked: set[tuple[int, str]] = field(default_factory=set)
    data: dict[int, tuple[Data, Share]] = field(default_factory=dict)
    functions: dict[int, FunctionType] = field(default_factory=dict)
    tensors: dict[int, Tensor] = field(default_factory=dict)
    """Those that existed before and that it reads."""
    partials: dict[int, Any] = field(default_factory=dict)
    """Those that have been looked into."""
    calls_torch: bool = False
    """What is called that is not known may be a function of torch's."""
    nested: Inner = field(default_factory=Inner)
    scale: Scale = field(default_factory=Scale)

    # What is met.

    def unit(self, function: FunctionType) -> Unit:
        """A user's function."""
        if effect_of(function) != "program" or is_library(function):
            raise NotAlone(f"{function.__qualname__} is no program")
        if any(name.startswith("__autobatch") for name in vars(function)):
            raise NotAlone(f"{function.__qualname__} is marked")
        try:
            lowered = self.library.code_of(function).function
        except AutobatchError as error:
            refused = NotAlone(f"{function.__qualname__} has a form that is refused")
            refused.at(error.span)
            raise refused from error
        if id(function) not in self.functions:
            self.functions[id(function)] = function
            self.shares.changed = True
        unit = self.of_function(lowered, Names.of(function))
        for name, value in defaults_of(function, lowered.params).items():
            self.shares.add(unit, [name], self.met(value))
        return unit

    def of_function(self, lowered: Function, names: Names) -> Unit:
        found = self.units.get(id(lowered))
        if found is None:
            if len(self.units) >= MOST_UNITS:
                raise NotAlone(f"it has more than {MOST_UNITS} functions")
            own = told_apart(lowered)
            known = Known(own, names, definitions_of(own))
            found = self.units[id(lowered)] = (Unit(own, lowered), known)
            self.shares.changed = True
        elif names.closure and not is_one(found[1].names.closure, names.closure):
            raise NotAlone("one function has several closures")
        return found[0]

    def escapes(self, unit: Unit, bound: bool = False) -> None:
        """It may be called with anything; ``bound``: as a method of an instance."""
        if bound and not unit.is_bound:
            unit.is_bound = self.shares.changed = True
        elif not bound and not unit.escapes:
            unit.escapes = self.shares.changed = True

    def builds_by(self, unit: Unit) -> None:
        """It may be called with anything, for a new instance."""
        if not unit.is_built_by:
            unit.is_built_by = self.shares.changed = True

    def freed(self, unit: Unit) -> None:
        """It is called as a function, whatever class may have it as a method."""
        if not unit.is_free:
            unit.is_free = self.shares.changed = True

    def made(self, lowered: Function, names: Names) -> None:
        """A function that the program makes as it runs."""
        unit = self.of_function(lowered, names)
        if not unit.is_handed_on:
            unit.is_handed_on = self.shares.changed = True

    def met(self, value: Any) -> Share:
        """What a value that existed before shares with the program; what is in it may run."""
        if isinstance(value, ModuleType):
            raise NotAlone("a module is a value")
        kept = self.data.get(id(value))
        if kept is not None:
            return kept[1]
        if self.is_callable(value):
            self.met_callable(value)
            if isinstance(value, EnumMeta):
                return CODE | self.members(value)
            return NONE if callees.is_known(value) else CODE
        if self.shares.computes and isinstance(value, Tensor):
            if not computing.may_compute([value]):
                raise NotAlone("a tensor that plain Python had better not compute with")
            self.tensors[id(value)] = value
            return TENSORS
        contents = Contents(self.shares.computes)
        nature = contents.nature(value)
        if contents.tensors:
            if not computing.may_compute(contents.tensors):
                raise NotAlone("it holds tensors that plain Python had better not compute with")
            self.shares.store(TENSORS)
        enumerations = [each for each in contents.callables if isinstance(each, EnumMeta)]
        for each in contents.callables:  # a table of functions
            if each not in enumerations:
                self.met_callable(each)
        for kind in contents.classes:
            self.add_class(kind)
        codes = bool(contents.callables) or any(issubclass(k, Enum) for k in contents.classes)
        share = OUTERS[nature] | (CODE if codes else NONE)
        classes, callables = frozenset(contents.classes), tuple(contents.callables)
        found = Data(
            value, nature, classes, callables, self.shares.computes, bool(contents.tensors)
        )
        self.data[id(value)] = (found, share)
        for each in enumerations:  # its members know it
            self.met_class(each)
            self.shares.met(self.members(each))
        return share

    def members(self, kind: EnumMeta) -> Share:
        """What an enumeration's members, which all existed before, share with the program."""
        share, members = NONE, list[Any](kind.__members__.values())
        for member in members:
            share |= self.met(member)
        return share

    def is_callable(self, value: Any) -> bool:
        if isinstance(value, FunctionType | MethodType | type) or callees.is_known(value):
            return True
        return kept.is_keeping(value) or kept.is_bound(value)

    def met_callable(self, value: Any) -> None:
        """A function that may be called with anything, or a class."""
        if isinstance(value, type):
            self.met_class(value)
            if isinstance(value, EnumMeta):  # that gives a member
                self.shares.met(CODE | self.members(value))
            elif value in self.classes:
                self.anything_is_built()
        elif isinstance(value, FunctionType) and not callees.is_known(value):
            self.freed(self.unit(value))
            self.escapes(self.unit(value))
        elif kept.is_keeping(value):
            self.escapes(self.kept(value))
        elif kept.is_bound(value):
            self.met_partial(value)
        elif isinstance(value, MethodType) and isinstance(value.__func__, FunctionType):
            self.met(value.__self__)
            self.escapes(self.unit(value.__func__))
        elif self.shares.computes and computing.is_function(value):
            self.calls_torch = True
        elif not callees.is_known(value) or value in callees.CHANGES:
            raise NotAlone(f"{value!r} is not known")

    def met_partial(self, value: Any) -> None:
        """A function that is called with more than it gets: with what it holds."""
        if self.shares.computes:
            raise NotAlone("what it tells torch is more than operands")
        if id(value) not in self.partials:
            self.partials[id(value)] = value
            self.lookups += [(look, look()) for look in kept.held(value)]
        for each in (value.func, *value.args, *value.keywords.values()):
            self.shares.store(self.met(each))

    def kept(self, found: Any) -> Unit:
        """The function whose results are kept, which is only looked at while they are."""
        function = kept.wrapped(found)
        if not isinstance(function, FunctionType):
            raise NotAlone(f"{found!r} is not known")
        unit = self.unit(function)
        if not unit.is_kept:
            unit.is_kept = self.shares.changed = True
            self.lookups.append((lambda: kept.wrapped(found), function))
        if any(map(kept.compares_by_itself, self.classes.values())):
            raise NotAlone("what is asked whether it is equal may be another thread's")
        return unit

    def met_class(self, kind: type) -> None:
        if type(kind) not in (type, ABCMeta, EnumMeta):
            raise NotAlone("it has a metaclass, which may see all that is asked of the class")
        if callees.is_known(kind) or (
            issubclass(kind, BaseException) and kind.__module__ == "builtins"
        ):
            return
        if effect_of(kind) not in ("program", "host") and not issubclass(kind, Enum):
            raise NotAlone(f"{kind.__qualname__} is not known")
        self.add_class(kind)

    def add_class(self, kind: type) -> None:
        if kind not in self.classes:
            check_class(kind)
            for base in own_bases(kind):
                self.classes[base] = dict(vars(base))
            self.shares.changed = True

    def anything_is_built(self) -> None:
        """Instances may be made of classes that are not known."""
        self.shares.changed |= not self.builds
        self.builds = True

    def asks(self, name: str, base: Share = OUTER_DEEP) -> None:
        """An attribute is asked for, or written, by its name; a cached one is kept in ``base``."""
        if name in FRAMES:
            raise NotAlone(f"{name} leads to all that a function holds")
        if any(type(members.get(name)) is cached_property for members in self.classes.values()):
            self.shares.write(base, attribute=True)
        self.names.add(name)

    # What classes run.

    def methods(self) -> None:
        """Bring in what Python may call by itself, and what is asked for by name."""
        for kind, members in list(self.classes.items()):
            for name, member in members.items():
                self.member(kind, name, member)
            if self.builds:
                self.defaults(kind)

    def member(self, kind: type, name: str, member: Any) -> None:
        special = (name[:2] == "__" and name[-2:] == "__") or name == "_missing_"
        if isinstance(member, property):
            if special or name in self.names:
                for function in (member.fget, member.fset, member.fdel):
                    if isinstance(function, FunctionType):
                        self.escapes(self.unit(function), bound=True)
                    elif function is not None:
                        raise NotAlone(f"{name} is no property of functions")
            return
        if type(member) is cached_property and not special:
            if name in self.names:
                self.cached(member.func)
            return
        function = own_function(kind, member)
        if function is not None:
            if name in FINE_INITS and self.builds:
                self.builds_by(self.method(member, function))
            elif special and name not in ENTERED | FINE_INITS:
                bound = function is member and name != "__class_getitem__"
                self.escapes(self.method(member, function), bound)
            elif name in self.names:
                self.method(member, function)
        elif isinstance(own_attribute(member, "__func__", member), FunctionType):
            return  # Python's own
        elif special:
            if not is_plain_special(member) or name in ENTERED:
                raise NotAlone(f"{kind.__qualname__} has {name}")
        elif name in self.names and not is_slot(member):
            if issubclass(kind, Enum) and isinstance(member, kind):
                return
            self.shares.store(self.met(member))

    def cached(self, function: object) -> None:
        """A cached property is computed, and kept in its instance (see ``asks``)."""
        if not isinstance(function, FunctionType):
            raise NotAlone("a property is no function of the user's")
        unit = self.unit(function)
        self.escapes(unit, bound=True)
        self.shares.store(unit.returned)

    def method(self, member: Any, function: FunctionType) -> Unit:
        """What a class has as a method: a class method gets a class that has it."""
        unit = self.unit(function)
        if isinstance(member, classmethod):
            first = [param.name for param in unit.function.params[:1]]
            for kind in self.receivers(function):
                self.shares.add(unit, first, self.as_receiver(kind))
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
            if self.library.code_of(function).function is unit.source:
                return self.receivers(function)
        return []

    def as_receiver(self, value: Any) -> Share:
        """What a function is bound to."""
        if isinstance(value, type) and not isinstance(value, EnumMeta):
            self.met_class(value)
            return CODE
        share = self.met(value)
        return share | (share and OUTER_DEEP)

    def called_by_name(self, name: str) -> list[tuple[Unit, Any]]:
        """The user's methods of a name, and what the classes have as such."""
        found: list[tuple[Unit, Any]] = []
        for kind, members in list(self.classes.items()):
            member = members.get(name)
            function = own_function(kind, member)
            if function is not None:
                found.append((self.method(member, function), member))
        return found

    def passed_by_name(
        self, unit: Unit, member: Any, receiver: Share, given: list[Share], shape: CallShape
    ) -> None:
        """Arguments come to a method; the receiver does where it is one of an instance."""
        if isinstance(member, staticmethod):
            self.passed(unit, given, shape)
        else:
            own = NONE if isinstance(member, classmethod) else receiver
            self.passed(unit, [own, *given], shape, 1)

    def has_field(self, name: str) -> bool:
        """Whether instances of a class may hold something of a name, which may be called."""
        return any(name in own_annotations(members) for members in self.classes.values())

    def binds(self, name: str) -> bool:
        """Whether methods of a name get instances first: no class has one that gets a class."""
        if any(isinstance(m, classmethod) for kind in self.classes.values() for m in kind.values()):
            return False
        return not any(isinstance(kind.get(name), staticmethod) for kind in self.classes.values())

    def built(self, kind: type, args: Share, positional: list[Share], shape: CallShape) -> None:
        """An instance of a user's class is made."""
        self.met_class(kind)
        self.shares.store(args)
        for name in FINE_INITS:
            made = next((vars(b)[name] for b in own_bases(kind) if name in vars(b)), None)
            if isinstance(made, FunctionType) and not is_generated(made):
                self.passed(self.unit(made), [NONE, *positional], shape, 1)
        self.defaults(kind)

    def defaults(self, kind: type) -> None:
        """What the fields of a dataclass hold where nothing is given."""
        for each in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
            if each.default_factory is not dataclasses.MISSING:
                self.met_callable(each.default_factory)
            if each.default is not dataclasses.MISSING:
                self.shares.store(self.met(each.default))

    def passed(self, unit: Unit, given: list[Share], shape: CallShape, receivers: int = 0) -> None:
        """Arguments come to the parameters of a function."""
        params = [p.name for p in unit.function.params]
        whole = NONE
        for share in given:
            whole |= share
        stars = [p.name for p in unit.function.params if p.kind.startswith("var_")]
        if not shape.is_plain or stars:
            self.shares.store(whole)
            self.shares.add(unit, params, whole | self.shares.within(whole))
            return
        positional = given[: receivers + len(shape.positional)]
        for param, share in zip(params, positional, strict=False):
            self.shares.add(unit, [param], share)
        for name, share in zip(shape.keywords, given[len(positional) :], strict=True):
            self.shares.add(unit, [name] if name in params else [], share)

    # What names mean.

    def doubt(self, reason: str) -> None:
        """What is known of a value does not do; a value may still turn out to be a tensor."""
        if self.is_settled:
            raise NotAlone(reason)
        self.doubted = True

    def value(self, unit: Unit, known: Known, name: Var) -> object:
        """What a variable is sure to name, noted."""
        found = known.looked_up(name)
        if (id(known), name) not in self.looked:
            self.looked.add((id(known), name))
            self.lookups.append((lambda: known.looked_up(name), found))
        return found

    def read(self, known: Known, op: Op) -> object:
        """What a global or a captured variable of the function itself holds, noted."""
        names = known.names
        table: Mapping[str, Any] = {} if op.name == "global" else names.closure

        def look() -> object:
            if op.name == "global":
                return names.global_value(op.attr)
            return content(table[op.attr]) if op.attr in table else MISSING

        found = look()
        if (id(known), f"{op.name} {op.attr}") not in self.looked:
            self.looked.add((id(known), f"{op.name} {op.attr}"))
            self.lookups.append((look, found))
        return found


def own_function(kind: type, member: Any) -> FunctionType | None:
    """The user's function that is a member of a class; None for what Python has made."""
    function = own_attribute(member, "__func__", member)
    if not isinstance(function, FunctionType) or is_generated(function):
        return None
    return None if issubclass(kind, Enum | tuple) and is_library(function) else function


def is_one(some: Mapping[str, CellType], others: Mapping[str, CellType]) -> bool:
    """Whether two closures have the same cells."""
    return all(cell is others.get(name) for name, cell in some.items())


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
