"""What calls do, whatever is called: first what it may be, then what that does with its arguments.

In: a call of one function of a ``World``. Out: what it gives shares; ``NotAlone`` where it may be
anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from types import (
    BuiltinMethodType,
    FunctionType,
    MethodType,
)

from torch import nn

from autobatch.alone import arrays, asking, computing, patterns, printing, reads
from autobatch.alone.classes import own_function
from autobatch.alone.kinds import DRAWS, NotAlone
from autobatch.alone.known_calls import KnownCalls, first, handed, union
from autobatch.alone.members import is_generator, is_method
from autobatch.alone.taint import CODE, NONE, TENSOR, TENSORS, Share
from autobatch.batching import known_arrays
from autobatch.batching import known_callees as callees
from autobatch.batching.effects import OF_MODULES
from autobatch.frontend import MISSING
from autobatch.ir.program import CallShape, Var
from autobatch.structure import own_attribute
from autobatch.vm.purity import Names

METHOD_TYPES = (FunctionType, classmethod, staticmethod)


@dataclass(frozen=True, slots=True)
class Calls(KnownCalls):
    """The calls of one function."""

    def call(self, callee: Var, args: tuple[Var, ...], shape: CallShape) -> Share:
        world, shares = self.world, self.world.shares
        given = [self.unit.of.get(arg, NONE) for arg in args]
        method = self.known.method(callee)
        found = world.value(self.unit, self.known, callee)
        if printing.is_print(found):
            return NONE  # which never comes: the thread gives up (``brought`` has seen to it)
        is_bound = isinstance(found, MethodType | BuiltinMethodType)
        if is_bound and is_generator(own_attribute(found, "__self__")):
            raise NotAlone(DRAWS)
        if known_arrays.is_of_ufunc(found):
            world.meets_arrays()
            return arrays.of_ufunc(found.__name__, given, shares, shape)  # type: ignore[attr-defined]
        if is_method(found) and not self.is_of_torch(found):
            if method is not None:
                self.check_own(found, *method)
            found = MISSING
        whole = self.unit.join(args)
        pattern = patterns.pattern(self.known, callee)
        if pattern is not None:
            return self.matched(pattern, whole, args)
        if asking.makes_asking(found) and shape.is_plain and args:
            return self.asks_later(found, args)
        if asking.is_asking(found) and shape.is_plain and len(args) > 1:
            return self.asked(found, args, given)
        text = self.text(method[0]) if method is not None and method[1] == "format" else None
        if text is not None:
            return self.formatted(text, whole)
        inner = world.nested.named(self.unit.source, callee)
        if inner is not None:
            unit = world.of_function(inner, Names(self.known.names.namespace))
            world.passed(unit, given, shape)
            world.scale.calls(self.unit.source, inner)
            return unit.returned
        if self.may_call(found, method):
            calls = self.handed(found, method, given, shape)
            reads_only = not shares.computes and (found is not MISSING or method is not None)
            shares.give(calls & ~TENSORS if reads_only else calls)
        if args and self.makes_entries(callee, shape):
            self.entries_are_made(args[0])
        if found is not MISSING:
            if whole & TENSOR and callees.is_known(found):
                return self.tensors_read(found, args, given, shape)
            return self.known_call(found, given, shape)
        if method is not None:
            receiver = self.unit.of.get(method[0], NONE)
            return self.method(method[1], receiver, whole, given, shape)
        modules = self.elements(callee)
        if modules is not None:
            return join(self.module_called(each, given, shape) for each in modules)
        kinds = self.kinds(callee)
        if kinds:
            return join(self.known_call(kind, given, shape) for kind in kinds)
        definition = self.known.definitions.get(callee)
        if definition is not None and definition.name == "manager":
            return self.entered(definition.attr, given, shape)
        example = self.example(definition)
        if example is not None and not example & CODE:
            return self.alike(whole, given, shape)
        if definition is not None and definition.name in ("global", "load_free"):
            bound = world.read(self.known, definition)
            if bound is not MISSING:
                return self.known_call(bound, given, shape)
        return self.unknown_call(self.unit.of.get(callee, NONE), whole, shape)

    def handed(
        self, found: object, method: tuple[Var, str] | None, given: list[Share], shape: CallShape
    ) -> Share:
        """What a call may hand to functions that it calls."""
        if found is not MISSING:
            return handed(found, given, shape)
        if method is None:
            return union(given)
        sorts = list.sort if method[1] == "sort" else found
        return handed(sorts, given, shape) | self.unit.join(method[:1])

    def entries_are_made(self, factory: Var) -> None:
        """``defaultdict(Trie)``: it calls a class of the user's, if it is one, with nothing.

        So it has the class, which is no value, as nobody asks for ``default_factory``.
        """
        world = self.world
        kind = world.value(self.unit, self.known, factory)
        if isinstance(kind, type) and kind in world.classes:
            world.built(kind, NONE, [], CallShape((), ()))
            world.shares.changed |= not world.makes_entries
            world.makes_entries = True

    def unknown_call(self, own: Share, whole: Share, shape: CallShape) -> Share:
        """A call of one of the functions and classes that are values.

        One of the user's escapes, and what it gives is ``hidden``; one of Python's or torch's gives
        something new, or what it gets, or what is within that, or, a method, within what it is of.
        """
        world, shares = self.world, self.world.shares
        if shares.writes_by_values:
            shares.reach(whole | (own & ~CODE))
        if own & CODE and world.asks_kinds:
            world.anything_is_built()
        if world.builds or world.raises:
            shares.store(whole)
        elif world.keeps:
            shares.contain(whole)
        made = NONE
        if world.calls_torch:
            computing.check(shape)
            says_more = computing.may_say(shape, 1, "inplace") or shape.keywords
            if world.may_do_more and says_more:
                raise NotAlone("it may write in place")
            made = TENSOR
        got = whole | (own & ~CODE)  # what it calls does not come out itself
        return got | shares.within(got) | shares.hidden | shares.lent | made

    def entered(self, name: str, given: list[Share], shape: CallShape) -> Share:
        """A ``with`` statement calls ``__enter__`` or ``__exit__`` of a manager."""
        world, shares = self.world, self.world.shares
        units = world.called_by_name(name)
        if given[0] & TENSOR or not all(type(member) is FunctionType for _, member in units):
            raise NotAlone("a manager that is not known")
        if not units and not world.suppresses:
            world.doubt(f"a manager whose {name} is not known")
        for unit, _ in units:
            world.passed(unit, given, shape, receivers=1)
        return shares.hidden | join(unit.returned for unit, _ in units)

    def alike(self, whole: Share, given: list[Share], shape: CallShape) -> Share:
        """A call of the class of something: one of the user's, or of Python's for data."""
        world = self.world
        for kind in list(world.classes):
            if not issubclass(kind, Enum):
                world.built(kind, whole, given, shape)
        world.shares.store(whole)
        return whole | world.shares.within(whole)

    def matched(self, pattern: str, whole: Share, args: tuple[Var, ...]) -> Share:
        """A pattern of a ``match`` statement looks at its subject."""
        if pattern == patterns.KIND:
            for name in patterns.asked_of(self.world, self.known, args):
                self.check_factory(name)
                self.world.asks(name)
                self.escaping(name, bound=True)
                for part in self.world.children(name):
                    self.world.met(part)
                self.world.shares.hand_out(name)
        return patterns.taken(self.world, pattern, whole)

    def may_call(self, found: object, method: tuple[Var, str] | None) -> bool:
        """Whether what is called may call a function of the program's with what it gets.

        A function or class of the user's does so by calls of its own.
        """
        if found is not MISSING:
            if callees.is_known(found):
                return found not in callees.CALLS_NOTHING
            own = isinstance(found, FunctionType | MethodType | nn.Module | type)
            return not (own or self.is_of_torch(found))
        if method is None:
            return True
        name = method[1]
        held = name in self.world.assigned or self.world.has_field(name)
        return held or self.has_other(name) or name in callees.CALLING_METHODS

    def method(
        self, name: str, receiver: Share, whole: Share, given: list[Share], shape: CallShape
    ) -> Share:
        """A method of something unknown: one of the user's of that name, or of a container."""
        world, shares = self.world, self.world.shares
        if name in callees.ASKING:
            raise NotAlone(f"{name} asks for any attribute")
        methods, writing, of_values = world.method_names
        units, parts = world.called_by_name(name), world.children(name)
        result = join(self.module_called(part, given, shape) for part in parts)
        if name not in of_values:
            result |= shares.hidden
        if receiver & TENSOR:
            known = self.of_tensor(name, receiver, shape)
            is_sure = not units and name not in world.assigned and name not in methods
            if known is not None and is_sure and not parts:
                return known
            if known is None and reads.is_of_tensors(name):
                raise NotAlone(f"the method {name} of what may be a tensor")
            result |= known or NONE
            receiver &= ~TENSORS
        if name == "new_child" and world.makes_chains and not units and not parts:
            shares.chain(receiver | whole)
            return first(given, shape) if shape.is_plain else whole | shares.within(whole)
        for unit, member in units:
            world.passed_by_name(unit, member, receiver, given, shape)
            result |= unit.returned
        if name == "__init__" and any(issubclass(kind, BaseException) for kind in world.classes):
            shares.store(whole)  # Python's own, by ``super()``, keeps what it gets in ``args``
        inherits = name in callees.OF_ITEMS
        if inherits:  # Python's own, by ``super()`` say
            result |= shares.within(receiver)
            if name in callees.WRITING_ITEMS:
                shares.write(receiver)
                shares.contain(whole)
        if name == "_replace":
            self.escaping("_make", bound=False)
        made = None
        if world.arrays and name in known_arrays.METHODS:
            made = arrays.by_method(name, receiver, given, shares, shape)
        if name in methods:
            if name in writing and not (name == "__init__" and units):
                shares.write(receiver)
                takes_items = name in callees.TAKING_ITEMS and shape == CallShape((False,))
                put = shares.inner(whole) if takes_items else whole
                if name in callees.CALLING_METHODS:  # what is sorted stays what it is
                    put = NONE
                (shares.store if name == "__init__" else shares.contain)(put)
            if name in callees.WRITING_ARGUMENTS:
                shares.write(whole)
            if name in callees.HOLDING_METHODS:
                (shares.store if name == "_replace" else shares.contain)(whole)
            if name in callees.HOLDING_METHODS - callees.COPYING_METHODS:
                result |= whole
            if made is not None:
                result |= made
            elif name in callees.COPYING_METHODS:
                result |= shares.copied(receiver | whole)
            elif name not in of_values:
                result |= whole | shares.within(whole)
                result |= shares.item(receiver) if name == "get" else shares.within(receiver)
                if name not in callees.ELEMENT_METHODS:
                    result |= receiver
        elif not (units or parts or name in world.assigned or world.has_field(name) or inherits):
            world.doubt(f"the method {name} is not known")
        if name in world.assigned or world.has_field(name) or self.has_other(name):
            result |= self.unknown_call(shares.asked(receiver, name), whole, shape)
        return result

    def has_other(self, name: str) -> bool:
        """Whether a class has something by a name that is none of the user's methods there."""
        return any(
            name in members
            and type(members[name]) not in METHOD_TYPES
            and not is_pythons(kind, members[name])
            for kind, members in self.world.classes.items()
        )

    def of_tensor(self, name: str, receiver: Share, shape: CallShape) -> Share | None:
        """What a method of a tensor gives; None if it is none that is known."""
        if name == "numpy":
            self.world.meets_arrays()
            return arrays.of_memory(receiver, self.world.shares)
        if self.world.handed and name in OF_MODULES:
            raise NotAlone(f"{name} may be asked of a module, which it changes")
        if self.world.shares.computes:
            return computing.by_method(name, receiver, self.world.shares, shape)
        return reads.read_by_method(name, self.world.scale)


def join(shares: Iterable[Share]) -> Share:
    found = NONE
    for share in shares:
        found |= share
    return found


def is_pythons(kind: type, member: object) -> bool:
    """Whether a method of a class is one that Python has made: ``_replace`` of a named tuple."""
    if type(member) is MethodType:
        return False
    function = own_attribute(member, "__func__", member)
    return isinstance(function, FunctionType) and own_function(kind, member) is None
