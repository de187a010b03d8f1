"""What one operation of a function that yields does more than compute, as ``looking`` asks.

In: an operation. Out: what others may see of it, in words; None for one that only computes. What it
calls, or hands on to be called, is told to the look, which goes through it, too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType, MethodType
from typing import Any, Protocol

from torch import Tensor, nn

from autobatch.batching import known_arrays as arrays
from autobatch.batching.calling.modules import keeping
from autobatch.batching.containers.callees import is_hashable
from autobatch.batching.effects import MUTATING_METHODS, effect_of, is_library
from autobatch.batching.generators import Given, is_generator
from autobatch.batching.kinds import is_plain_code
from autobatch.batching.known_callees import is_called_at
from autobatch.frontend import MISSING
from autobatch.ir.program import Call, CallShape, Label, Op, Var
from autobatch.passes.origins import Fate, Origins, Sources
from autobatch.structure import own_attribute
from autobatch.vm.known_computing import (
    ADVANCES,
    CHANGES,
    CHANGES_MODULE,
    CHANGING,
    COMPUTING,
    CONTAINERS,
    DRAWS,
    HANDED_FIRST,
    IMPORTS,
    IS_CALLED,
    METHODS,
    NEW,
    NO_COMPUTING,
    NO_LISTS,
    NUMBERS,
    SEEN,
    WRITES_GIVEN,
)
from autobatch.vm.library import Library
from autobatch.vm.nested import Nested, calls_of
from autobatch.vm.purity import Analysis, Known, fate, may_change


class Looking(Protocol):
    """Who asks."""

    library: Library
    draws: bool

    @property
    def methods(self) -> Mapping[str, list[FunctionType]]:
        """Those of the classes that are about, by their names."""

    def runs(self, callee: Any) -> None:
        """What is known is called."""

    def enter(self, function: FunctionType) -> None:
        """A method runs, on anything."""


@dataclass(eq=False, repr=False)
class Operations:
    """The operations of one function, one by one."""

    looking: Looking
    known: Known
    own: frozenset[Var]
    """Parameters that it may write to."""
    given: Given

    def __post_init__(self) -> None:
        library = self.looking.library
        is_opaque = library.methods.__contains__
        methods = self.looking.methods
        self.analysis = Precise(self.known, library.purity_of, is_opaque, methods=methods)

    def does(self, step: Op | Call) -> str | None:
        """What an operation does more than compute."""
        analysis = self.analysis
        analysis.writes, analysis.sure, analysis.draws = set(), set(), False
        if isinstance(step, Call):
            return self.calls(step.callee, step.args, step.shape)
        if step.name in ("global", "load_free"):
            value = self.known.value(step.outs[0])
            is_going = hasattr(type(value), "__next__") or isinstance(value, defaultdict)
            return ADVANCES if is_going and not isinstance(value, type) else None
        if step.name in IMPORTS and self.known.value(step.outs[0]) is not MISSING:
            return None  # which has been imported before
        if step.name == "free_box" and step.attr in self.known.names.nested:
            return None  # which nobody assigns
        if step.name == "function":
            self.looking.runs(Nested(step.attr, self.known.names.namespace))
            return None
        if step.does == "call":
            return self.calls(step.args[0], step.args[1:], step.attr)
        if not analysis.is_pure_op(step):
            return SEEN
        return None if self.is_of_numbers(step) else self.written()

    def is_of_numbers(self, step: Op) -> bool:
        """Whether it is ``x += 1`` where neither tensors nor instances are given: no list takes it.

        Of the given, that is: what existed before, else, is told apart.
        """
        if step.name not in NO_LISTS or not self.given.is_data:
            return False
        definition = self.known.definitions.get(step.args[1])
        return definition is not None and type(getattr(definition, "attr", None)) in NUMBERS

    def written(self) -> str | None:
        """Whether what has just been looked at writes what is not the function's own."""
        return WRITES_GIVEN if (self.analysis.writes | self.analysis.sure) - self.own else None

    def calls(self, callee: Var, args: tuple[Var, ...], shape: CallShape) -> str | None:
        found, method = self.known.value(callee), self.known.method(callee)
        if found is MISSING:
            called = self.inner.get(callee) or dict(self.given.called).get(self.origin(callee))
            if called is not None:
                return self.may_call(called)
        if found is super:
            return None
        if found is iter:
            return self.calls_handed(found, args, shape)
        if found is next and self.is_own_iterator(args[0]):
            return None
        if found is next:
            if not self.analysis.may_write(args[:1]):
                return ADVANCES
            return None if self.given.is_data else self.written()  # which holds no iterator
        if found is MISSING:
            what = IS_CALLED if method is None else self.calls_method(method[1])
            if what is None and method is not None and method[1] in HANDED_FIRST and args:
                what = self.hands(args[0])
        else:
            what = self.calls_known(found, args, shape)
        what = what or self.calls_handed(handing(found, method), args, shape)
        if what is not None:
            return what
        if is_hashable(found) and found in CHANGES:
            return self.written() if self.analysis.may_write(args[:1]) else SEEN
        if is_hashable(found) and (found in COMPUTING or is_named_tuple(found)):
            return None
        if type(own_attribute(found, "__self__")) is re.Pattern:
            hands = own_attribute(found, "__name__") in HANDED_FIRST and args
            return self.hands(args[0]) if hands else None
        if not self.analysis.is_pure_call(callee, args, shape):
            return SEEN
        if self.looking.draws and self.analysis.draws:
            return DRAWS
        return self.written()

    @cached_property
    def inner(self) -> Mapping[Var, Nested]:
        """The variables that hold a function defined in it, and no other."""
        names = self.known.names
        own = {name: each.function for name, each in names.nested.items()}
        found = calls_of(self.known.function, own)
        return {name: Nested(each, names.namespace) for name, each in found.items()}

    def origin(self, name: Var) -> Var:
        """The parameter that a variable is sure to be; empty if it is none."""
        definition = self.known.definitions.get(name)
        while definition is not None and definition.name == "copy":
            name = definition.args[0]
            definition = self.known.definitions.get(name)
        is_param = any(param.name == name for param in self.known.function.params)
        return name if is_param and name not in self.known.definitions else ""

    def is_own_iterator(self, name: Var) -> bool:
        """Whether ``next`` goes on in what a parameter gives, as a ``for`` over it does."""
        definition = self.known.definitions.get(name)
        if definition is None:
            return name in {param.name for param in self.known.function.params}
        is_call = definition.name == "call" and self.known.value(definition.args[0]) is iter
        if is_call and len(definition.args) == 2:
            return self.is_own_iterator(definition.args[1])
        is_iter = definition.name in ("iter", "copy")
        return is_iter and self.is_own_iterator(definition.args[0])

    def calls_method(self, name: str) -> str | None:
        """What a method does, of whatever class that is about."""
        methods = self.looking.methods.get(name, [])
        for method in methods:
            self.looking.enter(method)
            if not is_generator(method) and not is_plain_code(method.__code__):
                return IS_CALLED
        if name in NO_COMPUTING:
            return SEEN
        known = methods or name in self.looking.library.methods or name in METHODS
        return None if known else IS_CALLED

    def calls_known(self, found: Any, args: tuple[Var, ...], shape: CallShape) -> str | None:
        """What a function or module does that writes without a name that says so."""
        if isinstance(found, nn.Module) and keeping(found):
            return CHANGES_MODULE
        owner = own_attribute(found, "__self__")
        of_others = isinstance(found, MethodType) and not isinstance(owner, type)
        if of_others and is_library(found) and not isinstance(owner, Tensor | nn.Module):
            return SEEN
        if any(found is each for each in CHANGING):
            return SEEN
        if is_hashable(found) and found in arrays.FUNCTIONS:
            places = arrays.places_of(found)
            told = any(
                place < len(args) or name in shape.keywords for name, place in places.items()
            )
            return SEEN if told or found in arrays.CHANGES else None
        if effect_of(found) == "program":
            self.looking.runs(found)
        return None

    def calls_handed(self, found: Any, args: tuple[Var, ...], shape: CallShape) -> str | None:
        """What the functions do that a call hands on to be called (``map``, ``sorted``)."""
        count = len(shape.positional)
        for at, arg in enumerate(args):
            place = at if at < count else shape.keywords[at - count]
            if place is not None and is_called_at(found, place, count):
                what = self.hands(arg)
                if what is not None:
                    return what
        return None

    def hands(self, name: Var) -> str | None:
        definition = self.known.definitions.get(name)
        if definition is not None and definition.name == "const":
            return None
        value: Any = self.known.value(name)
        if definition is not None and definition.name == "function":
            value = Nested(definition.attr, self.known.names.namespace)
        if value is MISSING:
            method = self.known.method(name)
            changes = method is not None and method[1] in MUTATING_METHODS
            return IS_CALLED if method is None or changes else self.calls_method(method[1])
        return self.may_call(value)

    def may_call(self, value: Any) -> str | None:
        """What is seen of a function or module that is called with anything."""
        if isinstance(value, nn.Module) and keeping(value):
            return CHANGES_MODULE
        purity = self.looking.library.purity_of(value)
        if purity is None:
            known = effect_of(value) in ("host", "torch") and not may_change(value)
            return None if known else IS_CALLED
        self.looking.runs(value)
        if not purity.is_pure or purity.writes:
            return SEEN
        return DRAWS if purity.draws and self.looking.draws else None


@dataclass(eq=False, repr=False)
class Precise(Analysis):
    """What is sure to make a container or a tensor makes none that it was given.

    ``methods`` are those of the user's classes, which may be other than torch's of their names.
    """

    methods: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def sources(self) -> Sources:
        def found(call: Op | Call) -> Fate:
            callee = call.callee if isinstance(call, Call) else call.args[0]
            called = self.known.value(callee)
            if called is MISSING and self.makes(callee):
                return "reads"
            is_new = is_hashable(called) and called in CONTAINERS
            return "holds" if is_new else fate(self.known, self.callee, call)

        return Within(self.known.function, self.gives_outer, found, known=self.known)

    def makes(self, callee: Var) -> bool:
        """Whether a method is sure to give something new that holds nothing which it gets."""
        method = self.known.method(callee)
        return method is not None and method[1] in NEW and not self.methods.get(method[1])


@dataclass(eq=False, repr=False)
class Within(Sources):
    """What a method gives may be within its receiver, though that holds what existed before."""

    known: Known = field(kw_only=True)

    def called(
        self, call: Op | Call, operands: tuple[Var, ...], label: Label, index: int
    ) -> Origins:
        found, method = super().called(call, operands, label, index), self.known.method(operands[0])
        is_known = self.known.value(operands[0]) is not MISSING
        if method is None or is_known or self.fate(call) == "reads":
            return found
        return found | self.inside([method[0]], label)


def is_named_tuple(kind: object) -> bool:
    """Whether it is a class as ``namedtuple`` makes it, which holds what it gets."""
    if not isinstance(kind, type):
        return False
    made = own_attribute(kind, "__new__")
    return bool(own_attribute(made, "__module__") == f"namedtuple_{kind.__name__}")


def handing(found: object, method: tuple[Var, str] | None) -> Any:
    """The function that a call is of, as far as it may call what it gets."""
    if found is not MISSING:
        return found
    return list.sort if method is not None and method[1] == "sort" else None
