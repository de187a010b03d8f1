"""What calls are sure to run while a function is at work: what inlining goes by.

In: a lowered function, what its names mean, and the library. Out: for a call the function that it
runs, where that is certain; at how many places a function is called. A name may come to mean
something else only by code that batched execution does not see into; so a function is *settled*
that calls none, nor do those that it calls, however deep. Whether its names mean the same at the
next call is asked then (``purity.Verdict``).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType, MethodType
from typing import Generic, Protocol, TypeVar

from autobatch.batching.effects import effect_of
from autobatch.frontend import MISSING
from autobatch.ir.program import Call, Function, Var
from autobatch.passes.inlining import Callee
from autobatch.passes.specialised_calls import Constants
from autobatch.structure import own_attribute
from autobatch.vm.purity import Derived, Known, Names, Purity

C = TypeVar("C")
"""A function as the library keeps it."""


class Lowerings(Protocol[C]):
    """What is asked of the library.

    ``lowered`` is the code of a program callable, with what its names mean, if it has any;
    ``taken_in`` a function as callers may take it in, unless it is being made; ``function_in`` is
    as lowering gave it; ``copy_for`` a copy for calls that pass some constants, if there may be one
    more.
    """

    @property
    def methods(self) -> frozenset[str]: ...
    def purity_of(self, callee: object) -> Purity | None: ...
    def lowered(self, callee: object) -> tuple[C, Names] | None: ...
    def known(self, code: C, names: Names) -> Known: ...
    def copy_for(
        self, function: FunctionType, code: C, constants: Constants
    ) -> FunctionType | None: ...
    def function_in(self, code: C) -> Function: ...
    def taken_in(self, code: C, names: Names) -> Function | None: ...


@dataclass(eq=False, repr=False)
class Settled(Generic[C]):
    """Which functions call nothing that is not known, and nothing with effects, however deep.

    ``draws``: but that they may draw random numbers.
    """

    library: Lowerings[C]
    draws: bool = False
    seen: set[int] = field(default_factory=set)

    def is_settled(self, code: C, names: Names) -> bool:
        if id(code) in self.seen:
            return True
        self.seen.add(id(code))
        known = self.library.known(code, names)
        if not known.calls_only(self.library.methods):
            return False
        found = (known.value(callee) for callee, _ in known.calls())
        return all(each is MISSING or self.is_settled_callee(each) for each in found)

    def is_settled_callee(self, found: object) -> bool:
        if type(found) is Derived:
            return self.is_settled_callee(found.function)
        purity = self.library.purity_of(found)
        if purity is None:
            return effect_of(found) != "unknown"
        if not (purity.is_pure if self.draws else purity.is_silent):
            return False
        program = self.library.lowered(found)
        return program is None or self.is_settled(*program)


@dataclass(eq=False, repr=False)
class Sites(Generic[C]):
    """At how many places the functions are called that a function comes to call, if known."""

    library: Lowerings[C]
    counts: Counter[int] = field(default_factory=Counter)
    recursive: set[int] = field(default_factory=set)
    path: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, library: Lowerings[C], code: C, names: Names) -> Sites[C]:
        sites = cls(library)
        sites.follow(code, names)
        return sites

    def follow(self, code: C, names: Names) -> None:
        self.path.append(id(code))
        known = self.library.known(code, names)
        for callee, _ in known.calls():
            value = known.value(callee)
            found = None if value is MISSING else self.library.lowered(value)
            if found is None:
                continue
            self.counts[id(found[0])] += 1
            if id(found[0]) in self.path:
                self.recursive.update(self.path[self.path.index(id(found[0])) :])
            elif self.counts[id(found[0])] == 1:
                self.follow(*found)
        self.path.pop()

    def once(self, code: C) -> bool:
        return self.counts[id(code)] == 1

    def recur(self, code: C) -> bool:
        """Whether a function may come to call itself."""
        return id(code) in self.recursive


@dataclass(eq=False, repr=False)
class Targets(Generic[C]):
    """What the calls of a function run; ``known`` is of it, with calls forked or not.

    ``sites``: threads are to leave the loops of what it calls one by one, and it may draw.
    """

    library: Lowerings[C]
    code: C
    known: Known
    purity: Purity
    copies: dict[tuple[FunctionType, Constants], FunctionType | None] = field(default_factory=dict)
    sites: Sites[C] | None = None

    @cached_property
    def are_settled(self) -> bool:
        draws = self.sites is not None
        if not (self.purity.is_pure if draws else self.purity.is_silent):
            return False
        return Settled(self.library, draws).is_settled(self.code, self.known.names)

    def itself(self, call: Call) -> Callee | None:
        """This very function, if that is what a call runs."""
        found = self.found(call)
        if found is None or found.code is not self.code or not self.is_near(found):
            return None
        function, names = self.known.function, self.known.names
        first = found.receiver if found.receiver is not None else next(iter(call.args), None)
        if names.receiver is not MISSING and first != function.params[0].name:
            return None  # the next round would have another one than is known
        return Callee(function, found.receiver)

    def callee(self, call: Call) -> Callee | None:
        """The function that a call runs, as it may be taken in."""
        found = self.found(call)
        if found is None or found.code is self.code or not self.is_near(found):
            return None
        if self.sites is not None:
            if self.sites.recur(found.code):
                return None
            function, once = self.library.function_in(found.code), self.sites.once(found.code)
            return Callee(function, found.receiver, once)
        taken = self.library.taken_in(found.code, found.names)
        return None if taken is None else Callee(taken, found.receiver)

    def as_lowered(self, call: Call) -> Callee | None:
        """The function that a call runs, with its calls as they are."""
        found = self.found(call)
        if found is None:
            return None
        return Callee(self.library.function_in(found.code), found.receiver)

    def copy(self, call: Call, constants: Constants) -> FunctionType | None:
        """What a call that passes constants may run instead."""
        found = self.found(call)
        if found is None:
            return None
        key = (found.function, constants)
        if key not in self.copies:
            self.copies[key] = self.library.copy_for(found.function, found.code, constants)
        return self.copies[key]

    def found(self, call: Call) -> Found[C] | None:
        """What a call runs."""
        value = self.known.value(call.callee)
        value = own_attribute(value, "__autobatch_function__", value)
        receiver, function = None, value
        if isinstance(value, MethodType):
            method = self.known.method(call.callee)
            if method is None or self.known.value(method[0]) is not value.__self__:
                return None
            receiver, function = method[0], value.__func__
        if not isinstance(function, FunctionType) or effect_of(function) != "program":
            return None
        if not self.are_settled:
            return None
        program = self.library.lowered(value)
        return None if program is None else Found(*program, function, receiver)

    def is_near(self, found: Found[C]) -> bool:
        """Whether global names mean the same in what is called."""
        return found.function.__globals__ is self.known.names.namespace


@dataclass(frozen=True, slots=True)
class Found(Generic[C]):
    """What a call runs: its code, what its names mean, the function, the variable of a receiver."""

    code: C
    names: Names
    function: FunctionType
    receiver: Var | None
