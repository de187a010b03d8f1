"""What is asked for by name, of what existed before and of what is unknown: attributes, methods.

In: an operation that brings something in, or asks for an attribute. Out: what that shares.
"""

from __future__ import annotations

import random
from abc import ABCMeta
from dataclasses import dataclass
from functools import reduce
from operator import attrgetter, methodcaller, or_
from types import (
    BuiltinMethodType,
    ClassMethodDescriptorType,
    MethodType,
    ModuleType,
)

import numpy as np
import torch
from torch import Tensor, nn

from autobatch.alone import asking, computing, printing, reads
from autobatch.alone.kinds import ASKED, NotAlone
from autobatch.alone.leading import may_lead
from autobatch.alone.looks import Looks
from autobatch.alone.taint import ARRAY, CODE, FOREIGN, NONE, OUTER, OWN, TENSOR, TENSORS, Share
from autobatch.batching import known_arrays
from autobatch.batching import known_callees as callees
from autobatch.batching import known_library as library
from autobatch.frontend import MISSING
from autobatch.ir.program import Call, Op, Var
from autobatch.structure import own_attribute

ASKS = frozenset({"getattr", "import_from"})
FACTORY = "default_factory"
IMPORTED = "the import may run a module, or look for it:"


@dataclass(frozen=True, slots=True)
class Members(Looks):
    """The names of one function, and the attributes that it asks for."""

    def brought(self, op: Op, value: object) -> Share:
        """A value that existed before is in a variable."""
        if value is MISSING:  # a captured variable of a function within, or no such name
            return self.world.shares.boxed if op.name == "load_free" else NONE
        if isinstance(value, ModuleType):
            self.only_asked(op)
            return NONE
        if is_class_of_modules(value) and self.is_only_asked(op.outs[0]):
            return NONE  # a constant of it, say: nothing is made
        if op.attr == "__class__" and isinstance(value, type):
            self.world.met_class(value)
            return self.world.kind_asked()
        if isinstance(value, nn.Module):
            return self.module(op, value)
        if printing.is_print(value) and op.attr == "print" and self.is_only_called(op.outs[0]):
            self.world.prints(self.known.names.namespace, op.span)
            return NONE
        asked = asking.is_asking(value) or self.world.is_callable(value)
        if asked and self.is_only_called(op.outs[0]):
            return NONE  # looked at where it is called
        if isinstance(value, type) and self.is_only_called(op.outs[0], as_kind=True):
            return self.kind(value)
        return self.world.met(value)

    def imported(self, op: Op) -> Share:
        """An import within a function, which only looks up what has been imported before."""
        found = self.world.value(self.unit, self.known, op.outs[0])
        if found is MISSING or printing.is_print(found):
            raise NotAlone(f"{IMPORTED} write it at the top of the file")
        return self.brought(op, found)

    def imports_of(self, op: Op) -> dict[str, object]:
        """What a function that is made here captures and that an import alone assigns."""
        found: dict[str, object] = {}
        for name, box in zip(op.attr.free, op.args, strict=False):
            held = self.known.boxed(box)
            if held is not MISSING:
                found[name] = held
        return found

    def module(self, op: Op, value: nn.Module) -> Share:
        """A module, which is looked at where it is called, unless it is handed on."""
        return self.world.know(value) if self.stays(op.outs[0]) else self.world.met(value)

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
                if name not in each.args or self.captures_import(each):
                    continue
                if each.name == "copy" and self.is_known(each):
                    self.only_asked(each)
                    continue
                asked = self.known.asking(each) or each
                if asked.name not in ASKS or not self.is_known(asked):
                    raise NotAlone("a module is a value")
            terminator = block.terminator
            if isinstance(terminator, Call) and name in (terminator.callee, *terminator.args):
                raise NotAlone("a module is a value")

    def captures_import(self, op: Op) -> bool:
        """Whether it puts an import into a captured variable that nothing else assigns."""
        boxes = op.outs if op.name == "box" else op.args[:1]
        return op.name in ("box", "store_box") and boxes[0] in self.known.imports

    def attribute(self, op: Op, base: Share) -> Share:
        world = self.world
        if op.attr in asking.TITLES:
            return self.title(op.attr, base)
        if op.attr == "__traceback__" and self.is_caught(op.args[0]):
            return NONE  # of ``__exit__``
        found = world.value(self.unit, self.known, op.outs[0])
        if found is MISSING:
            found = self.of_module(op)
        if found is not MISSING:
            if isinstance(found, ModuleType):
                self.only_asked(op)
                return NONE
            if isinstance(found, nn.Module):
                return self.module(op, found)
            if is_of_module(found) and self.is_only_called(op.outs[0]):
                return NONE
            if is_class_of_modules(found) and self.is_only_asked(op.outs[0]):
                return NONE
            if self.is_of_torch(found):
                if self.is_only_called(op.outs[0]):
                    return NONE
                return self.lent_by_torch(found)
            if is_method(found):
                self.check_own(found, op.args[0], op.attr)
                return base if self.is_only_called(op.outs[0]) else self.lent(op.attr, found, base)
            if world.is_callable(found) and self.is_only_called(op.outs[0]):
                return NONE
            if isinstance(found, type) and self.is_only_called(op.outs[0], as_kind=True):
                return self.kind(found)
            is_ufunc = type(found) is np.ufunc and world.is_callable(found)
            if is_ufunc and self.is_only_called(op.outs[0], as_kind=True):
                return NONE  # asked for a method of its own
            return world.met(found)
        if self.is_of_limits(op.args[0]):
            return NONE
        return self.attribute_of(op.attr, base, self.is_only_called(op.outs[0]))

    def attribute_of(self, name: str, base: Share, is_called: bool = False) -> Share:
        """What is asked for by name of something unknown; ``is_called``: and then only called."""
        world, shares = self.world, self.world.shares
        self.check_factory(name)
        world.asks(name, base)
        if base & TENSOR and name in reads.SHAPES:
            base &= ~TENSORS
        if world.arrays and name in known_arrays.FIXED:
            base &= ~ARRAY
        if world.arrays and name in known_arrays.SHOWING and shares.anything & TENSOR:
            raise NotAlone(f"{name} of an array may be a tensor")
        if base & TENSOR and shares.computes and name in computing.OF_PARTS:
            return base | shares.asked(base, name)
        if base & TENSOR and shares.computes and name in computing.OF_KINDS:
            base &= ~TENSORS
        if base & TENSOR and shares.computes and name in computing.OF_RESULTS:
            return TENSOR | shares.asked(base, name)
        if name == "__class__":
            return world.kind_of(base)
        if name[:2] == "__" and name not in callees.OF_ITEMS:
            raise NotAlone(f"{name} is asked for")
        if is_called:
            return base  # a method: looked at where it is called
        lent = self.escaping(name, not base & CODE, base)
        for part in world.children(name):
            world.met(part)
        if base & TENSOR and reads.is_of_tensors(name):
            return lent | self.lent_by_tensors(name, base)
        if world.makes_chains and name in ("maps", "parents"):
            return shares.of_chain(base, name) | shares.asked(base, name)
        if not base & CODE and not may_lead(world, name):
            base &= ~(OUTER | OWN)
        return lent | shares.asked(base & ~TENSORS, name)

    def lent_by_tensors(self, name: str, base: Share) -> Share:
        """An attribute of what may be a tensor and has, then, a method by that name: ``s.mean``.

        Called somewhere, that gives something new, or a part of its tensor.
        """
        shares = self.world.shares
        if name in reads.NOTHING:
            return shares.asked(base & ~TENSORS, name)
        if not shares.computes or not computing.is_method(name):
            raise NotAlone(f"{name} {ASKED}")
        shares.changed |= not self.world.calls_torch
        self.world.calls_torch = True
        return (base & TENSORS) | shares.asked(base & ~TENSORS, name)

    def title(self, name: str, base: Share) -> Share:
        """``type(x).__name__``: a text, or what an instance has by that name."""
        if any(name in members for members in self.world.classes.values()):
            raise NotAlone(f"a class has a {name} of its own")
        return self.world.shares.asked(base & ~(CODE | TENSORS), name)

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
            self.world.shares.put(name, self.unit.join(args[2:]))
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
                self.world.shares.hand_out(each)
                if found is methodcaller and each in callees.ASKING:
                    self.unknown(each)
        self.world.shares.store(self.unit.join(args))
        return NONE

    def assigned(self, name: str, base: Share) -> None:
        """An attribute is written or deleted."""
        if name in library.HIDDEN:
            raise NotAlone(f"{name} may be a part of a fraction")
        self.world.shares.changed |= name not in self.world.assigned
        self.world.assigned.add(name)
        self.world.asks(name, base)  # of a property, perhaps
        if self.world.shares.computes and not base & FOREIGN and not reads.is_of_tensors(name):
            base &= ~TENSOR  # a tensor of the program's own gets one more attribute
        self.world.shares.write(base, attribute=True)

    def formatted(self, text: str, whole: Share) -> Share:
        """``"{} {0.word}".format(x)``: the attributes that it names are asked for."""
        if whole & TENSOR and not self.world.may_show(self.unit.function.span):
            raise NotAlone("it makes text of what may be a tensor")
        for name in asking.fields(text):
            self.attribute_of(name, whole)
        return self.world.shares.hidden

    def some_attribute(self, base: Share, name: Var) -> Share:
        """``getattr(base, "visit_" + kind)``: any attribute of a name that begins so."""
        world, prefix = self.world, self.prefix(name)
        if base & (TENSOR | CODE) or prefix[:1] in ("", "_") or "tb_frame".startswith(prefix):
            raise NotAlone("any attribute is asked for")
        if FACTORY.startswith(prefix):
            self.check_factory(FACTORY)
        if any(each.startswith(prefix) for each in world.method_names[0]):
            raise NotAlone("a method of a list, say, may be asked for")
        world.meets_parts(prefix)
        for each in {each for members in world.classes.values() for each in members}:
            if each.startswith(prefix):
                world.asks(each)
                self.escaping(each, bound=True)
        names = {*world.shares.members, *world.shares.fields}
        found = [world.shares.of_name(each) for each in names if each.startswith(prefix)]
        return reduce(or_, found, world.shares.within(base))

    def check_factory(self, name: str) -> None:
        """Nobody gets the class by which a dict makes its entries."""
        if name == FACTORY and self.world.makes_entries:
            raise NotAlone(f"{name} is asked for")

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
        drawn = is_generator(own_attribute(found, "__self__"))
        if drawn or name not in callees.LENT_METHODS:
            self.unknown(name)
        return base | self.world.shares.within(base)

    def lent_by_torch(self, found: object) -> Share:
        """One of torch's functions is a value: ``{"max": torch.maximum, "add": operator.add}``."""
        self.world.met_callable(found)
        return CODE

    def escaping(self, name: str, bound: bool, base: Share | None = None) -> Share:
        """A method may be read without being called there; ``bound``: of no class.

        Gives what one of Python's may hand out, of what has the share ``base``, if that is known.
        """
        is_bound, bound = bound, bound and self.world.binds(name)
        for unit, _ in self.world.called_by_name(name):
            self.world.escapes(unit, bound)
        told = self.world.arrays and self.world.shares.anything & ARRAY
        has_out = told and known_arrays.place_of_methods_out(name) < known_arrays.NOWHERE
        if not has_out and name not in self.world.method_names[1]:
            return NONE
        may_lend = self.world.may_lend and is_bound and name in callees.LENT_WRITING
        if has_out or base is None or not may_lend:
            return self.unknown(name)
        return self.world.shares.lend_writing(base & ~TENSORS)


FUNCTIONS_OF_TORCH = frozenset(
    found
    for found in vars(torch).values()
    if isinstance(found, BuiltinMethodType) and not isinstance(found.__self__, ModuleType)
)
"""``torch.rand`` and the like, methods of a class that nobody sees."""


def is_generator(found: object) -> bool:
    """Whether it draws from a state of its own."""
    return isinstance(found, (random.Random, *known_arrays.DRAWING))


def is_method(found: object) -> bool:
    """Whether it is a method of some value, or of a class of Python's (``dict.fromkeys``).

    Functions of torch's are methods, too, and may share the name of one: ``randint``.
    """
    if isinstance(found, BuiltinMethodType):
        return not isinstance(found.__self__, ModuleType) and found not in FUNCTIONS_OF_TORCH
    return isinstance(found, ClassMethodDescriptorType)


def is_class_of_modules(value: object) -> bool:
    """Whether it is a class of modules, and nothing sees what is asked of it."""
    is_plain = type(value) in (type, ABCMeta)
    return is_plain and isinstance(value, type) and issubclass(value, nn.Module)


def is_of_module(found: object) -> bool:
    """Whether it is a method of a module."""
    return isinstance(found, MethodType) and isinstance(found.__self__, nn.Module)
