"""What the operations of one function do with what its variables share.

In: a function of a ``World``. Out: its shares, and what it brings into the world; ``NotAlone``
where an operation may be seen from outside, or is not known to work on data.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from enum import Enum
from types import (
    BuiltinMethodType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodType,
    ModuleType,
)

from torch import Tensor

from autobatch.alone import computing, patterns, reads
from autobatch.alone.contents import SCALARS, NotAlone
from autobatch.alone.taint import CODE, IN_DEEP, NONE, OUTER_DEEP, TENSOR, TENSORS, Share, Unit
from autobatch.alone.world import World
from autobatch.batching import known_callees as callees
from autobatch.batching.effects import is_library
from autobatch.frontend import MISSING, generating
from autobatch.ir.ops import BINARY, COMPARE, INPLACE, UNARY, info
from autobatch.ir.program import Block, Call, CallShape, Join, Op, Raise, Return, Var
from autobatch.structure import own_attribute
from autobatch.vm.purity import Known, Names

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
class Steps:
    """The operations of a function, once through."""

    world: World
    unit: Unit
    known: Known

    def run(self) -> None:
        for block in self.unit.function.blocks:
            self.block(block)

    def block(self, block: Block) -> None:
        if block.modes:
            raise NotAlone("a mode is entered")
        for op in block.ops:
            self.op(op)
        shares, unit = self.world.shares, self.unit
        if block.handler is not None:
            shares.add(unit, [block.handler.out], shares.anything)
        match block.terminator:
            case Call(out=out, callee=callee, args=args, shape=shape):
                shares.add(unit, [out], self.call(callee, args, shape))
            case Return(value=value):
                shares.gives(unit, unit.join([value]))
            case Raise(exception=exception):
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
            attribute = name in ("setattr", "delattr")
            if attribute:
                self.world.assigned.add(op.attr)
                self.world.names.add(op.attr)  # of a property, perhaps
            shares.write(self.unit.join(op.args[:1]), attribute)
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
                return self.call(op.args[0], op.args[1:], op.attr)
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

    def is_of_generators(self, module: Var) -> bool:
        """Whether it has the functions that generator expressions are lowered to."""
        return self.known.looked_up(module) is generating

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
        asked = value is getattr or self.world.is_callable(value)
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
                asks = each.name == "getattr" and self.known.looked_up(each.outs[0]) is not MISSING
                if name in each.args and not asks:
                    raise NotAlone("a module is a value")
            terminator = block.terminator
            if isinstance(terminator, Call) and name in (terminator.callee, *terminator.args):
                raise NotAlone("a module is a value")

    def is_only_called(self, name: Var, as_kind: bool = False) -> bool:
        """Whether a variable is read as what is called, and as nothing else.

        ``as_kind``: or as the class of which something may be an instance.
        """
        for block in self.unit.function.blocks:
            for op in block.ops:
                read = op.args[1:] if op.name == "call" else op.args
                if as_kind and op.name == "call" and patterns.asks_kind(self.known, op):
                    read = (*op.args[1:2], *op.args[3:])
                if name in read:
                    return False
            terminator = block.terminator
            if isinstance(terminator, Call):
                if name in terminator.args:
                    return False
            elif name in vars_of(terminator):
                return False
        return True

    def attribute(self, op: Op, base: Share) -> Share:
        world, shares = self.world, self.world.shares
        found = world.value(self.unit, self.known, op.outs[0])
        if found is not MISSING:
            if isinstance(found, ModuleType):
                self.only_asked(op)
                return NONE
            if self.is_of_torch(found):
                return NONE if self.is_only_called(op.outs[0]) else self.unknown(op.attr)
            if is_method(found):
                return base if self.is_only_called(op.outs[0]) else self.unknown(op.attr)
            if world.is_callable(found) and self.is_only_called(op.outs[0]):
                return NONE
            if isinstance(found, type) and self.is_only_called(op.outs[0], as_kind=True):
                return self.kind(found)
            return world.met(found)
        world.names.add(op.attr)
        if base & TENSOR and op.attr in reads.SHAPES:
            base &= ~TENSORS
        if base & TENSOR and shares.computes and op.attr in computing.OF_PARTS:
            return base | shares.within(base)
        if base & TENSOR and shares.computes and op.attr in computing.OF_KINDS:
            base &= ~TENSORS
        if base & TENSOR and shares.computes and op.attr in computing.OF_RESULTS:
            return TENSOR | shares.within(base)
        if op.attr == "__class__":
            return CODE
        if op.attr[:2] == "__" and op.attr != "__init__":
            raise NotAlone(f"{op.attr} is asked for")
        if self.is_only_called(op.outs[0]):
            return base  # a method: looked at where it is called
        self.escaping(op.attr, bound=not base & CODE)
        if base & TENSOR and reads.is_of_tensors(op.attr):
            raise NotAlone(f"{op.attr} is asked of a tensor")
        return shares.within(base & ~TENSORS)

    def some_attribute(self, base: Share, name: Var) -> Share:
        """``getattr(base, "visit_" + kind)``: any attribute of a name that begins so."""
        world, prefix = self.world, self.prefix(name)
        if base & (TENSOR | CODE) or prefix[:1] in ("", "_"):
            raise NotAlone("any attribute is asked for")
        if any(each.startswith(prefix) for each in callees.METHODS):
            raise NotAlone("a method of a list, say, may be asked for")
        for each in {each for members in world.classes.values() for each in members}:
            if each.startswith(prefix):
                world.names.add(each)
                self.escaping(each, bound=True)
        return world.shares.within(base)

    def prefix(self, name: Var) -> str:
        """What a text is sure to begin with."""
        definition = self.known.definitions.get(name)
        if definition is None:
            return ""
        if definition.name == "const":
            return definition.attr if type(definition.attr) is str else ""
        return self.prefix(definition.args[0]) if definition.name in ("add", "join") else ""

    def is_of_torch(self, found: object) -> bool:
        """Whether it is a function of torch's that the program may call."""
        return self.world.shares.computes and computing.is_function(found)

    def unknown(self, name: str) -> Share:
        raise NotAlone(f"{name} is a method that is a value")

    def escaping(self, name: str, bound: bool) -> None:
        """A method may be read without being called there; ``bound``: of no class."""
        bound = bound and self.world.binds(name)
        for unit in self.world.called_by_name(name):
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
            found = MISSING
        whole = self.unit.join(args)
        pattern = patterns.pattern(self.known, callee)
        if pattern is not None:
            return self.matched(pattern, whole, args)
        if found is getattr and shape.is_plain:
            return self.some_attribute(given[0], args[1]) | whole
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
        definition = self.known.definitions.get(callee)
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

    def matched(self, pattern: str, whole: Share, args: tuple[Var, ...]) -> Share:
        """A pattern of a ``match`` statement looks at its subject."""
        if pattern == patterns.KIND:
            for name in patterns.asked_of(self.world, self.known, args):
                self.world.names.add(name)
                self.escaping(name, bound=True)
        return patterns.taken(self.world, pattern, whole)

    def may_call(self, found: object, method: tuple[Var, str] | None) -> bool:
        """Whether what is called may call a function of the program's with what it gets.

        A function of the user's does so by calls of its own.
        """
        if found is not MISSING:
            if isinstance(found, FunctionType | MethodType) or self.is_of_torch(found):
                return False
            return not (callees.is_known(found) and found in callees.CALLS_NOTHING)
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
            if found in callees.READS:
                made = TENSORS if found in computing.STARTING else TENSOR
                return shares.hidden | (shares.within(whole) & made if shares.computes else NONE)
            if found is dataclasses.replace:
                world.anything_is_built()
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
        if isinstance(found, type):
            world.met_class(found)
            if issubclass(found, BaseException | Enum) and found not in world.classes:
                shares.store(whole)
                return NONE
            world.built(found, whole, given, shape)
            world.scale.objects = True
            return world.met(found) if issubclass(found, Enum) else NONE
        if isinstance(found, MethodType) and isinstance(found.__func__, FunctionType):
            share = world.met(found.__self__) if not isinstance(found.__self__, type) else NONE
            unit = world.unit(found.__func__)
            world.passed(unit, [share | (share and OUTER_DEEP), *given], shape, 1)
        elif isinstance(found, FunctionType):
            unit = world.unit(found)
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
        for unit in units:
            world.passed(unit, [receiver, *given], shape, 1)
            result |= unit.returned
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
        members = [kind[name] for kind in world.classes.values() if name in kind]
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


def vars_of(terminator: object) -> tuple[Var, ...]:
    found = [
        getattr(terminator, name, None) for name in ("condition", "value", "exception", "cause")
    ]
    return tuple(name for name in found if name is not None)
