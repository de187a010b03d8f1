"""What the operations of one function do with what its variables share.

In: a function of a ``World``. Out: its shares, and what it brings into the world; ``NotAlone``
where an operation may be seen from outside, or is not known to work on data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter, methodcaller
from types import (
    BuiltinMethodType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodType,
    ModuleType,
)

from torch import Tensor

from autobatch.alone import asking, computing, kept, lasting, patterns, reads
from autobatch.alone.contents import SCALARS, NotAlone
from autobatch.alone.looks import Looks
from autobatch.alone.taint import CODE, IN_DEEP, NONE, TENSOR, TENSORS, Share
from autobatch.alone.world import own_function
from autobatch.batching import known_callees as callees
from autobatch.batching.effects import is_library
from autobatch.frontend import MISSING
from autobatch.ir.ops import BINARY, COMPARE, INPLACE, UNARY, info
from autobatch.ir.program import Block, Call, CallShape, Join, Op, Raise, Return, Var
from autobatch.source import Span
from autobatch.structure import own_attribute
from autobatch.vm.purity import Names

OPERATORS = frozenset({*UNARY, *BINARY, *COMPARE})
NUMBERS = (int, float)
COUNTED = INPLACE - {"imul", "iand", "ior", "ixor", "imatmul"}
"""In place with a number as their second operand, they are for numbers."""
VALUES = frozenset({"truth", "format", "join", "catches", "delete", "context"})
HOLDS = frozenset({"tuple", "list", "set", "dict", "slice", "assertion"})
WRITES = frozenset({"setattr", "setitem", "delattr", "delitem", "extend", "update", "append"})
INSIDE = frozenset({"getitem", "unpack", "next", "to_tuple", "to_set"})
BOXES = frozenset({"load_box", "load_outer_box"})


@dataclass(frozen=True, slots=True)
class Steps(Looks):
    """The operations of a function, once through."""

    def run(self) -> None:
        for block in self.unit.function.blocks:
            self.block(block)

    def block(self, block: Block) -> None:
        place = [(*block.ops, block.terminator)[0].span]
        try:
            self.through(block, place)
        except NotAlone as error:
            error.at(place[0])
            raise

    def through(self, block: Block, place: list[Span]) -> None:
        """The operations of a block; ``place`` is where the last one stands that was looked at."""
        if not all(map(self.is_managed, block.modes)):
            raise NotAlone("a mode is entered")
        for op in block.ops:
            place[0] = op.span
            self.op(op)
        place[0] = block.terminator.span
        shares, unit = self.world.shares, self.unit
        if block.handler is not None:
            shares.add(unit, [block.handler.out], shares.anything)
        match block.terminator:
            case Call(out=out, callee=callee, args=args, shape=shape):
                shares.add(unit, [out], self.call(callee, args, shape))
            case Return(value=value):
                shares.gives(unit, lasting.returned(self.world, unit, self.known, value))
            case Raise(exception=exception):
                found = self.world.value(unit, self.known, exception)
                if isinstance(found, type):  # which is called
                    self.known_call(found, [], CallShape((), ()))
                shares.store(unit.join([exception]))
            case Join():
                raise NotAlone("calls are forked")

    def op(self, op: Op) -> None:
        self.world.shares.add(self.unit, op.outs, self.result(op))

    def result(self, op: Op) -> Share:
        shares, args = self.world.shares, self.unit.join(op.args)
        name = op.name
        self.world.scale.note(op)
        if args & TENSOR and name in (computing.SHOWN if shares.computes else reads.COMPUTES):
            raise NotAlone("it computes with a tensor")
        if name in OPERATORS:
            inside = args & IN_DEEP if name in BINARY else NONE
            shares.store(inside)  # of two lists, say
            made = args & (TENSORS if name == "pos" else TENSOR)
            return shares.hidden | (inside & CODE) | made
        if name in INPLACE:
            return self.inplace(op, args)
        if name in HOLDS:
            shares.store(args)
            return NONE
        if name in WRITES:
            if name in ("setattr", "delattr"):
                self.assigned(op.attr, self.unit.join(op.args[:1]))
            else:
                shares.write(self.unit.join(op.args[:1]))
            shares.store(self.unit.join(op.args[1:]))
            return NONE
        if name in INSIDE:
            if name == "getitem":  # a tensor as the place in a list is no part of it
                args &= ~TENSORS | self.unit.join(op.args[:1])
            return shares.within(args)
        if name in BOXES:
            return shares.boxed
        if name in VALUES:
            return NONE
        return self.named(op, args)

    def named(self, op: Op, args: Share) -> Share:
        """Operations that bring something in, or that hand it on."""
        shares = self.world.shares
        match op.name:
            case "const":
                return NONE if type(op.attr) in SCALARS else self.brought(op, op.attr)
            case "global" | "load_free":
                return self.brought(op, self.world.read(self.known, op))
            case "getattr":
                return self.attribute(op, args)
            case "function":
                self.world.made(op.attr, Names(self.known.names.namespace))
                defaults = self.unit.join(op.args[len(op.attr.free) :])
                args = (args & ~TENSORS) | defaults  # what boxes hold is in ``boxed``
                shares.store(args)
                shares.give(args)
                return NONE
            case "import" if op.attr in patterns.PATTERNS or self.is_of_generators(op.outs[0]):
                return NONE
            case "import_from" if patterns.is_of_patterns(self.known, op.args[0]):
                return NONE
            case "call":
                made = self.call(op.args[0], op.args[1:], op.attr)
                asks = self.known.looked_up(op.args[0]) is type
                return made & ~CODE if asks and self.is_only_titled(op.outs[0]) else made
            case "manager":
                return args  # its method: looked at where it is called
            case "copy" | "load_outer" | "select" | "iter":
                return args | (shares.hidden if op.name == "iter" else NONE)
            case "box":
                shares.box(args)
                return NONE
            case "store_box" | "clear_box":
                shares.box(self.unit.join(op.args[1:]))
                return NONE
            case "free_box":
                value = self.world.read(self.known, op)
                shares.box(NONE if value is MISSING else self.world.met(value))
                return NONE
            case "handled":
                return shares.anything
        raise NotAlone(f"it does {info(op.name).doc}")

    def brought(self, op: Op, value: object) -> Share:
        """A value that existed before is in a variable."""
        if value is MISSING:  # a captured variable of a function within, or no such name
            return self.world.shares.boxed if op.name == "load_free" else NONE
        if isinstance(value, ModuleType):
            self.only_asked(op)
            return NONE
        if op.attr == "__class__" and isinstance(value, type):
            self.world.met_class(value)
            return CODE
        asked = asking.is_asking(value) or self.world.is_callable(value)
        if asked and self.is_only_called(op.outs[0]):
            return NONE  # looked at where it is called
        if isinstance(value, type) and self.is_only_called(op.outs[0], as_kind=True):
            return self.kind(value)
        return self.world.met(value)

    def kind(self, value: type) -> Share:
        """A class that is called, or of which something may be an instance."""
        if value is not Tensor:
            self.world.met_class(value)
        return NONE

    def only_asked(self, op: Op) -> None:
        """A module is only asked for attributes that are known."""
        name = op.outs[0]
        for block in self.unit.function.blocks:
            for each in block.ops:
                if name in each.args and not (each.name == "getattr" and self.is_known(each)):
                    raise NotAlone("a module is a value")
            terminator = block.terminator
            if isinstance(terminator, Call) and name in (terminator.callee, *terminator.args):
                raise NotAlone("a module is a value")

    def attribute(self, op: Op, base: Share) -> Share:
        world = self.world
        if op.attr in asking.TITLES:
            return self.title(op.attr, base)
        if op.attr == "__traceback__" and self.is_caught(op.args[0]):
            return NONE  # of ``__exit__``
        found = world.value(self.unit, self.known, op.outs[0])
        if found is not MISSING:
            if isinstance(found, ModuleType):
                self.only_asked(op)
                return NONE
            if self.is_of_torch(found):
                return NONE if self.is_only_called(op.outs[0]) else self.unknown(op.attr)
            if is_method(found):
                self.check_own(found, op.args[0], op.attr)
                return base if self.is_only_called(op.outs[0]) else self.lent(op.attr, found, base)
            if world.is_callable(found) and self.is_only_called(op.outs[0]):
                return NONE
            if isinstance(found, type) and self.is_only_called(op.outs[0], as_kind=True):
                return self.kind(found)
            return world.met(found)
        return self.attribute_of(op.attr, base, self.is_only_called(op.outs[0]))

    def attribute_of(self, name: str, base: Share, is_called: bool = False) -> Share:
        """What is asked for by name of something unknown; ``is_called``: and then only called."""
        world, shares = self.world, self.world.shares
        world.asks(name, base)
        if base & TENSOR and name in reads.SHAPES:
            base &= ~TENSORS
        if base & TENSOR and shares.computes and name in computing.OF_PARTS:
            return base | shares.within(base)
        if base & TENSOR and shares.computes and name in computing.OF_KINDS:
            base &= ~TENSORS
        if base & TENSOR and shares.computes and name in computing.OF_RESULTS:
            return TENSOR | shares.within(base)
        if name == "__class__":
            return CODE
        if name[:2] == "__" and name != "__init__":
            raise NotAlone(f"{name} is asked for")
        if is_called:
            return base  # a method: looked at where it is called
        self.escaping(name, bound=not base & CODE)
        if base & TENSOR and reads.is_of_tensors(name):
            raise NotAlone(f"{name} is asked of a tensor")
        return shares.within(base & ~TENSORS)

    def title(self, name: str, base: Share) -> Share:
        """``type(x).__name__``: a text, or what an instance has by that name."""
        if any(name in members for members in self.world.classes.values()):
            raise NotAlone(f"a class has a {name} of its own")
        return self.world.shares.within(base & ~(CODE | TENSORS))

    def asked(self, found: object, args: tuple[Var, ...], given: list[Share]) -> Share:
        """``getattr`` and its like: what of its name is known is asked for."""
        name = self.text(args[1])
        rest = self.unit.join((args[0], *args[2:]))
        if name is None:
            if found is not getattr:
                raise NotAlone("any attribute is asked for")
            return self.some_attribute(given[0], args[1]) | rest
        if found is setattr:
            self.assigned(name, given[0])
            self.world.shares.store(rest)
            return NONE
        if name in asking.TITLES:
            got = self.title(name, given[0])
        else:
            got = self.attribute_of(name, given[0])
        return NONE if found is hasattr else got | rest

    def asks_later(self, found: object, args: tuple[Var, ...]) -> Share:
        """A function is made that asks for attributes, ``attrgetter("left.word")``."""
        later = args if found is attrgetter else args[:1]
        for name in map(self.text, later):
            if name is None:
                raise NotAlone("any attribute is asked for")
            for each in name.split("."):
                self.attribute_of(each, self.world.shares.anything)
                if found is methodcaller and each in callees.ASKING:
                    self.unknown(each)
        self.world.shares.store(self.unit.join(args))
        return NONE

    def assigned(self, name: str, base: Share) -> None:
        """An attribute is written or deleted."""
        self.world.assigned.add(name)
        self.world.asks(name, base)  # of a property, perhaps
        self.world.shares.write(base, attribute=True)

    def formatted(self, text: str, whole: Share) -> Share:
        """``"{} {0.word}".format(x)``: the attributes that it names are asked for."""
        if whole & TENSOR:
            raise NotAlone("it shows a tensor")
        for name in asking.fields(text):
            self.attribute_of(name, whole)
        return self.world.shares.hidden

    def some_attribute(self, base: Share, name: Var) -> Share:
        """``getattr(base, "visit_" + kind)``: any attribute of a name that begins so."""
        world, prefix = self.world, self.prefix(name)
        if base & (TENSOR | CODE) or prefix[:1] in ("", "_") or "tb_frame".startswith(prefix):
            raise NotAlone("any attribute is asked for")
        if any(each.startswith(prefix) for each in callees.METHODS):
            raise NotAlone("a method of a list, say, may be asked for")
        for each in {each for members in world.classes.values() for each in members}:
            if each.startswith(prefix):
                world.asks(each)
                self.escaping(each, bound=True)
        return world.shares.within(base)

    def unknown(self, name: str) -> Share:
        raise NotAlone(f"{name} is a method that is a value")

    def check_own(self, found: object, base: Var, name: str) -> None:
        """A method is the one of its name, of what it is asked of, and no alias: ``STACK.pop``."""
        owner, asked = own_attribute(found, "__self__"), self.known.looked_up(base)
        own = isinstance(found, ClassMethodDescriptorType) or owner is None or owner is asked
        if not own or own_attribute(found, "__name__") != name:
            raise NotAlone(f"{name} is another method by that name")

    def lent(self, name: str, found: object, base: Share) -> Share:
        """A method of what existed before is a value: ``key=TABLE.get``."""
        drawn = isinstance(own_attribute(found, "__self__"), random.Random)
        if drawn or name not in callees.LENT_METHODS:
            self.unknown(name)
        return base | self.world.shares.within(base)

    def escaping(self, name: str, bound: bool) -> None:
        """A method may be read without being called there; ``bound``: of no class."""
        bound = bound and self.world.binds(name)
        for unit, _ in self.world.called_by_name(name):
            self.world.escapes(unit, bound)
        if name in callees.WRITING_METHODS:
            self.unknown(name)

    def inplace(self, op: Op, args: Share) -> Share:
        shares = self.world.shares
        base = self.unit.join(op.args[:1])
        other = self.known.definitions.get(op.args[1])
        number = other is not None and other.name == "const" and type(other.attr) in NUMBERS
        if number and op.name in COUNTED and not base & TENSOR:
            return base | shares.hidden
        shares.write(base)
        shares.store(args & IN_DEEP)
        return base | shares.hidden | (args & TENSORS)

    # Calls.

    def call(self, callee: Var, args: tuple[Var, ...], shape: CallShape) -> Share:
        world, shares = self.world, self.world.shares
        given = [self.unit.of.get(arg, NONE) for arg in args]
        method = self.known.method(callee)
        found = world.value(self.unit, self.known, callee)
        if is_method(found) and not self.is_of_torch(found):
            if isinstance(own_attribute(found, "__self__"), random.Random):
                raise NotAlone("it draws from a generator that others see")
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
        calls = whole if method is None else whole | self.unit.join(method[:1])
        if self.may_call(found, method):
            reads_only = not shares.computes and (found is not MISSING or method is not None)
            shares.give(calls & ~TENSORS if reads_only else calls)
        if found is not MISSING:
            if whole & TENSOR and callees.is_known(found):
                return self.tensors_read(found, args, given, shape)
            return self.known_call(found, given, shape)
        if method is not None:
            receiver = self.unit.of.get(method[0], NONE)
            return self.method(method[1], receiver, whole, given, shape)
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
        shares.store(whole)
        if self.unit.of.get(callee, NONE) & CODE:  # a class, perhaps
            world.anything_is_built()
        if world.calls_torch:
            computing.check(shape)
        return shares.anything | shares.hidden  # one of those that escape

    def entered(self, name: str, given: list[Share], shape: CallShape) -> Share:
        """A ``with`` statement calls ``__enter__`` or ``__exit__`` of a manager."""
        world, shares = self.world, self.world.shares
        units = world.called_by_name(name)
        if given[0] & TENSOR or not all(type(member) is FunctionType for _, member in units):
            raise NotAlone("a manager that is not known")
        if not units and not world.suppresses:
            world.doubt(f"a manager whose {name} is not known")
        for unit, _ in units:
            world.passed(unit, given, shape)
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
                self.world.asks(name)
                self.escaping(name, bound=True)
        return patterns.taken(self.world, pattern, whole)

    def may_call(self, found: object, method: tuple[Var, str] | None) -> bool:
        """Whether what is called may call a function of the program's with what it gets.

        A function of the user's does so by calls of its own.
        """
        if found is not MISSING:
            if callees.is_known(found):
                return found not in callees.CALLS_NOTHING
            return not (isinstance(found, FunctionType | MethodType) or self.is_of_torch(found))
        if method is None:
            return True
        name = method[1]
        members = any(name in kind for kind in self.world.classes.values())
        held = name in self.world.assigned or self.world.has_field(name)
        return members or held or name in callees.CALLING_METHODS

    def tensors_read(
        self, found: object, args: tuple[Var, ...], given: list[Share], shape: CallShape
    ) -> Share:
        """A function of Python's gets tensors: it reads them, or goes through them."""
        if self.world.shares.computes and found in computing.GOING_ON:
            return self.known_call(found, given, shape)
        mapped = self.known.looked_up(args[0]) if found is map else MISSING
        if mapped in reads.READERS:
            return self.known_call(found, [share & ~TENSORS for share in given], shape)
        if found not in reads.READERS and found not in reads.GOING_THROUGH:
            raise NotAlone(f"{found!r} gets a tensor")
        return self.known_call(found, given, shape)

    def known_call(self, found: object, given: list[Share], shape: CallShape) -> Share:
        world, shares = self.world, self.world.shares
        whole = NONE
        for share in given:
            whole |= share
        if self.is_of_torch(found):
            return computing.called(found, whole, shares, shape)
        if callees.is_known(found):
            if found in computing.NO_TENSORS:
                return NONE
            if found is contextlib.suppress and not world.suppresses:
                world.suppresses = shares.changed = True
            if found in callees.READS:
                made = TENSORS if found in computing.STARTING else TENSOR
                return shares.hidden | (shares.within(whole) & made if shares.computes else NONE)
            if found is dataclasses.replace:
                world.anything_is_built()
            if found is functools.partial and shares.computes:
                computing.check(shape)
            if found is type:
                return CODE
            if found is super and len(given) == 2:
                return given[1]
            world.scale.made(found)
            if found in callees.GENERATORS:
                return shares.hidden
            if found in callees.CHANGES:
                shares.write(given[0] if shape.is_plain and given else whole)
                shares.store(whole)
                return shares.within(whole)
            shares.store((whole & IN_DEEP) | held(found, given, shape))
            copied = found in callees.COPIES
            return shares.hidden | (whole & CODE) if copied else whole | shares.within(whole)
        world.scale.objects |= kept.is_keeping(found)
        if kept.is_keeping(found):
            unit = world.kept(found)
            world.passed(unit, given, shape)
            return unit.returned
        if kept.is_bound(found):
            world.met(found)
            shares.store(whole)
            return shares.anything | shares.hidden
        if isinstance(found, type):
            world.met_class(found)
            if issubclass(found, BaseException | Enum) and found not in world.classes:
                shares.store(whole)
                return NONE
            world.built(found, whole, given, shape)
            world.scale.objects = True
            return world.met(found) if issubclass(found, Enum) else NONE
        if isinstance(found, MethodType) and isinstance(found.__func__, FunctionType):
            share = world.as_receiver(found.__self__)
            if is_library(found.__func__) and is_kind_of_tuple(found.__self__):  # ``_make``
                shares.store(whole & IN_DEEP)
                return NONE
            unit = world.unit(found.__func__)
            world.passed(unit, [share, *given], shape, 1)
        elif isinstance(found, FunctionType):
            unit = world.unit(found)
            world.freed(unit)
            world.passed(unit, given, shape)
            world.scale.calls(self.unit.source, unit.source)
        else:
            called = vars(type(found)).get("__call__")
            if not isinstance(called, FunctionType) or is_library(type(found)):
                raise NotAlone(f"{found!r} is not known")
            unit = world.unit(called)
            world.passed(unit, [world.met(found), *given], shape, 1)
        return unit.returned

    def method(
        self, name: str, receiver: Share, whole: Share, given: list[Share], shape: CallShape
    ) -> Share:
        """A method of something unknown: one of the user's of that name, or of a container."""
        world, shares = self.world, self.world.shares
        if name in callees.ASKING:
            raise NotAlone(f"{name} asks for any attribute")
        units = world.called_by_name(name)
        result = shares.hidden
        if receiver & TENSOR:
            known = self.of_tensor(name, receiver, shape)
            is_sure = not units and name not in world.assigned and name not in callees.METHODS
            if known is not None and is_sure:
                return known
            if known is None and reads.is_of_tensors(name):
                raise NotAlone(f"the method {name} of a tensor")
            result |= known or NONE
            receiver &= ~TENSORS
        for unit, member in units:
            world.passed_by_name(unit, member, receiver, given, shape)
            result |= unit.returned
        if name == "_replace":
            self.escaping("_make", bound=False)
        if name in callees.METHODS:
            if name in callees.WRITING_METHODS and not (name == "__init__" and units):
                shares.write(receiver)
                shares.store(whole)
            if name in callees.WRITING_ARGUMENTS:
                shares.write(whole)
            if name in callees.HOLDING_METHODS:
                shares.store(whole)
            result |= shares.within(receiver | whole) | whole
            if name not in callees.ELEMENT_METHODS:
                result |= receiver
        elif not units and name not in world.assigned and not world.has_field(name):
            world.doubt(f"the method {name} is not known")
        members = [
            members[name]
            for kind, members in world.classes.items()
            if name in members and not is_pythons(kind, members[name])
        ]
        held = name in world.assigned or world.has_field(name)
        if held or members:
            shares.store(whole)
            is_one = not held and all(type(m) is FunctionType for m in members)
            result |= shares.anything & ~TENSORS if is_one else shares.anything
        return result

    def of_tensor(self, name: str, receiver: Share, shape: CallShape) -> Share | None:
        """What a method of a tensor gives; None if it is none that is known."""
        if self.world.shares.computes:
            return computing.by_method(name, receiver, self.world.shares, shape)
        return reads.read_by_method(name, self.world.scale)


def join(shares: Iterable[Share]) -> Share:
    found = NONE
    for share in shares:
        found |= share
    return found


def is_kind_of_tuple(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, tuple)


def is_pythons(kind: type, member: object) -> bool:
    """Whether a method of a class is one that Python has made: ``_replace`` of a named tuple."""
    function = own_attribute(member, "__func__", member)
    return isinstance(function, FunctionType) and own_function(kind, member) is None


def is_method(found: object) -> bool:
    """Whether it is a method of some value, or of a class of Python's (``dict.fromkeys``)."""
    if isinstance(found, BuiltinMethodType):
        return not isinstance(found.__self__, ModuleType)
    return isinstance(found, ClassMethodDescriptorType)


def held(callee: object, given: list[Share], shape: CallShape) -> Share:
    """Which arguments are themselves within what a function of Python's gives: ``dict(a=x)``."""
    holds = callee in callees.HOLDING or not shape.is_plain
    found = NONE
    for share in given if holds else given[len(shape.positional) :]:
        found |= share
    return found
