"""All that a program of objects alone may run, as it is found: its functions, classes and data.

``World`` brings in what a value that existed before holds: data, functions, tensors.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, EnumMeta
from types import (
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np
from torch import Tensor, nn

from autobatch.alone import computing, derivatives, dispatched, kept
from autobatch.alone.classes import Classes
from autobatch.alone.computing import FEWEST, Limits
from autobatch.alone.contents import Contents
from autobatch.alone.kinds import DRAWS, NotAlone, titled
from autobatch.alone.modules import own_forward
from autobatch.alone.taint import (
    ARRAY,
    CODE,
    NONE,
    OUTER,
    OUTER_DEEP,
    OUTERS,
    TENSOR,
    TENSORS,
    Share,
    Unit,
)
from autobatch.batching import known_arrays as arrays
from autobatch.batching import known_callees as callees
from autobatch.source import Span


@dataclass(frozen=True, slots=True)
class Data:
    """What existed before, and what was in it."""

    value: Any
    nature: int
    classes: frozenset[type]
    callables: tuple[Any, ...]
    takes_tensors: bool = False
    holds_tensors: bool = False
    holds_arrays: bool = False
    modules: tuple[nn.Module, ...] = ()
    names: tuple[str, ...] = ()
    """Of the attributes by which instances have modules."""
    loose: tuple[nn.Module, ...] = ()
    """Those that are had otherwise."""
    leading: frozenset[str] = frozenset()
    """The attributes by which instances have more than numbers and texts."""

    @property
    def may_change(self) -> bool:
        return bool(self.nature) or self.holds_tensors or self.holds_arrays

    def is_as_before(self, limits: Limits = FEWEST) -> bool:
        contents = Contents(self.takes_tensors, limits.most_shared)
        try:
            found = contents.nature(self.value)
        except NotAlone:
            return False
        return (
            found == self.nature
            and bool(contents.tensors) == self.holds_tensors
            and contents.arrays == self.holds_arrays
            and limits.allow_held(contents.tensors)
            and contents.classes == self.classes
            and are_one(contents.callables, self.callables)
            and are_one(contents.modules, self.modules)
            and tuple(name for name, _ in contents.named) == self.names
            and are_one(contents.loose, self.loose)
            and contents.leading <= self.leading
        )


@dataclass(slots=True, eq=False, repr=False)
class World(Classes):
    """All that a program may run, as it is found."""

    limits: Limits = FEWEST
    data: dict[int, tuple[Data, Share]] = field(default_factory=dict)
    tensors: dict[int, Tensor] = field(default_factory=dict)
    """Those that existed before and that it reads."""
    modules: dict[int, nn.Module] = field(default_factory=dict)
    parts: dict[str, list[nn.Module]] = field(default_factory=dict)
    """Modules by the names that others, modules or instances of a user's class, have them by."""
    handed: set[int] = field(default_factory=set)
    """Modules that may be called with anything."""
    partials: dict[int, Any] = field(default_factory=dict)
    """Those that have been looked into."""
    calls_torch: bool = False
    """What is called that is not known may be a function of torch's."""
    may_do_more: bool = False
    """And that one of those that write or draw where they are told to: ``F.relu(x, inplace)``."""
    attached: bool = False
    """Some tensors that it reads need gradients."""

    def may_show(self, span: Span) -> bool:
        """Whether text may be made of a tensor: it is the loop's, or gives the thread up."""
        if self.limits.texts and not self.attached:
            return True
        if self.may_print:
            self.shown = self.shown or span
        return self.may_print

    def met(self, value: Any) -> Share:
        """What a value that existed before shares with the program; what is in it may run.

        A module that an instance has by a name is called by that name in sight, or is met there.
        """
        share = self.know(value)
        kept = self.data.get(id(value))
        if kept is not None and isinstance(value, nn.Module):
            for module in kept[0].modules:
                self.hand_on(module)
        elif kept is not None:
            for module in kept[0].loose:
                self.met(module)
        return share

    def meets_parts(self, prefix: str = "") -> None:
        """Modules are asked for by any name that begins so."""
        for name, modules in list(self.parts.items()):
            for module in modules if name.startswith(prefix) else ():
                self.met(module)

    def hand_on(self, module: nn.Module) -> None:
        """A module may be called with anything."""
        if id(module) in self.handed:
            return
        self.handed.add(id(module))
        self.shares.changed = True
        forward = own_forward(module)
        if forward is None:
            self.calls_torch = True
        else:
            unit = self.unit(forward, module)
            own = self.know(module) | OUTER_DEEP
            self.shares.add(unit, [param.name for param in unit.function.params[:1]], own)
            self.escapes(unit, bound=True)

    def children(self, name: str) -> list[nn.Module]:
        """The modules that something has by a name."""
        return self.parts.get(name, [])

    def know(self, value: Any) -> Share:
        """The same of what may run only where it is called in sight, if it is a module."""
        if isinstance(value, ModuleType):
            raise NotAlone("a module is a value")
        kept = self.data.get(id(value))
        if kept is not None:
            return kept[1]
        if arrays.is_draw(value):
            raise NotAlone(DRAWS)
        if self.is_callable(value):
            self.met_callable(value)
            if isinstance(value, EnumMeta):
                return CODE | self.members(value)
            return NONE if callees.is_known(value) else CODE
        if self.shares.computes and isinstance(value, Tensor):
            self.read_tensors([value])
            self.tensors[id(value)] = value
            return TENSORS
        contents = Contents(self.shares.computes, self.limits.most_shared)
        nature = contents.nature(value)
        if contents.tensors:
            self.read_tensors(contents.tensors)
            stored = self.shares.hold if OUTERS[nature] else self.shares.store
            stored(TENSORS)
        enumerations = [each for each in contents.callables if isinstance(each, EnumMeta)]
        for each in contents.callables:  # a table of functions
            if each not in enumerations:
                self.met_callable(each)
        for kind in contents.classes:
            if issubclass(kind, Enum):
                self.add_class(kind)
            else:
                self.instance_existed(kind)
        codes = bool(contents.callables) or any(issubclass(k, Enum) for k in contents.classes)
        share = outer(value, nature, contents.arrays) | (CODE if codes else NONE)
        if contents.numpy:
            self.meets_arrays()
        classes, callables = frozenset(contents.classes), tuple(contents.callables)
        found = Data(
            value,
            nature,
            classes,
            callables,
            self.shares.computes,
            bool(contents.tensors),
            contents.arrays,
            tuple(contents.modules),
            tuple(name for name, _ in contents.named),
            tuple(contents.loose),
            frozenset(contents.leading),
        )
        self.shares.lead_by(contents.leading)
        for module in contents.modules:
            self.add_module(module)
        for name, module in contents.named:
            self.add_part(name, module)
        self.data[id(value)] = (found, share)
        for each in enumerations:  # its members know it
            self.met_class(each)
            self.shares.met(self.members(each))
        return share

    def read_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Tensors that existed before are read."""
        self.limits.check_held(tensors)
        if not self.attached and computing.need_gradients(tensors):
            self.attached = self.shares.changed = True

    def add_module(self, module: nn.Module) -> None:
        if id(module) not in self.modules:
            self.modules[id(module)] = module
            self.shares.changed = True
            for name, part in module._modules.items():
                if part is not None:
                    self.add_part(name, part)

    def add_part(self, name: str, module: nn.Module) -> None:
        """A module that something which existed before has by a name."""
        parts = self.parts.setdefault(name, [])
        if not any(part is module for part in parts):
            parts.append(module)
            self.shares.changed = True
            if self.shares.is_pooled:
                self.met(module)

    def members(self, kind: EnumMeta) -> Share:
        """What an enumeration's members, which all existed before, share with the program."""
        share, members = NONE, list[Any](kind.__members__.values())
        for member in members:
            share |= self.met(member)
        if share & (OUTER | ARRAY):
            raise NotAlone("members of an enumeration that can be written to")
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
                self.shares.lend(CODE | self.members(value))
            elif value in self.classes:
                self.anything_is_built()
            else:
                self.keep(value)
        elif self.shares.computes and computing.is_function(value):
            before = self.calls_torch, self.may_do_more
            self.calls_torch = True
            self.may_do_more |= value in computing.MORE_WHERE_ASKED
            self.shares.changed |= before != (self.calls_torch, self.may_do_more)
        elif self.shares.computes and (function := derivatives.derived(value)) is not None:
            self.met_callable(self.meant(function))
            self.shares.give(TENSOR)  # it gets tensors that stand for what the derivative gets
            self.shares.changed |= not self.calls_torch
            self.calls_torch = True
        elif dispatched.is_dispatching(value):
            for each in self.dispatched(value):
                self.met_callable(each)
        elif isinstance(value, FunctionType) and not callees.is_known(value):
            self.freed(self.unit(value))
            self.handed_on(self.unit(value))
        elif kept.is_keeping(value):
            self.escapes(self.kept(value))
        elif kept.is_bound(value):
            self.met_partial(value)
        elif isinstance(value, MethodType) and isinstance(value.__func__, FunctionType):
            self.shares.met(self.met(value.__self__))
            self.escapes(self.unit(value.__func__))
        elif not callees.is_known(value) or value in callees.CHANGES:
            raise NotAlone(f"{titled(value)} is not known")
        elif value in arrays.FUNCTIONS and (value in arrays.CHANGES or arrays.places_of(value)):
            raise NotAlone(f"{titled(value)}, which may write what it gets, is a value")
        else:
            self.keep(value)

    def keep(self, value: Any) -> None:
        """A function or class of Python's that may be called with anything, and may keep it."""
        if value in arrays.FUNCTIONS:
            self.meets_arrays()
        self.asked_by(value)
        if value is type:
            self.kinds_are_made()
        if value is slice:
            self.shares.slices_are_made()
        if value in callees.READS or value in arrays.KINDS:
            return
        self.made_of(value)
        before = self.keeps, self.raises
        self.keeps = True
        self.raises |= value in callees.GIVING_ATTRIBUTES or (
            isinstance(value, type) and issubclass(value, BaseException)
        )
        self.shares.changed |= before != (self.keeps, self.raises)
        if value in callees.GOING_THROUGH_FIELDS:
            self.meets_parts()
            self.shares.pool()
        if value is dataclasses.replace:
            self.fields_are_replaced()
        if value is type:
            self.shares.lend(self.kind_asked())

    def met_partial(self, value: Any) -> None:
        """A function that is called with more than it gets: with what it holds."""
        if self.shares.computes:
            raise NotAlone("what it tells torch is more than operands")
        if id(value) not in self.partials:
            self.partials[id(value)] = value
            self.lookups += [(look, look()) for look in kept.held(value)]
        for each in (value.func, *value.args, *value.keywords.values()):
            self.shares.store(self.met(each))

    def dispatched(self, found: Any) -> list[Any]:
        """The functions of which one is called, by the class of what it gets."""
        if id(found) not in self.partials:
            self.partials[id(found)] = found
            self.lookups += [(look, look()) for look in dispatched.held(found)]
        return dispatched.registered(found)

    def kept(self, found: Any) -> Unit:
        """The function whose results are kept, which is only looked at while they are."""
        function = kept.wrapped(found)
        if not isinstance(function, FunctionType):
            raise NotAlone(f"{titled(found)} is not known")
        unit = self.unit(function)
        if unit.yields:
            raise NotAlone("a generator is kept for other threads")
        if not unit.is_kept:
            unit.is_kept = self.shares.changed = True
            self.shares.instances_existed(of_any=True)
            self.lookups.append((lambda: kept.wrapped(found), function))
        if any(map(kept.compares_by_itself, self.classes.values())):
            raise NotAlone("what is asked whether it is equal may be another thread's")
        return unit


def outer(value: object, nature: int, has_arrays: bool) -> Share:
    """What something that existed before shares with the program."""
    if type(value) is np.ndarray:
        return ARRAY
    return OUTERS[nature] | (OUTER_DEEP | ARRAY if has_arrays else NONE)


def are_one(found: Sequence[object], before: Sequence[object]) -> bool:
    """Whether these are the same objects."""
    return len(found) == len(before) and all(map(operator.is_, found, before))
