"""What a function does with its variables, as the proof of plain Python asks of each by itself.

In: a function of a ``World``, and a variable. Out: what is sure of it; nothing is brought in.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from autobatch.alone import asking, computing, patterns
from autobatch.alone.modules import BY_PLACE, THROUGH
from autobatch.alone.taint import NONE, Share, Unit
from autobatch.alone.world import World
from autobatch.frontend import MISSING, generating
from autobatch.ir.dataflow import terminator_reads
from autobatch.ir.program import Call, CallShape, Op, Raise, Var
from autobatch.vm.aliasing import kinds_of
from autobatch.vm.purity import Known


@dataclass(frozen=True, slots=True)
class Looks:
    """A function, and what its names mean."""

    world: World
    unit: Unit
    known: Known

    def is_managed(self, manager: Var) -> bool:
        """Whether the function calls the methods of a manager: it is no mode."""
        ops = [op for block in self.unit.function.blocks for op in block.ops]
        copies = [(op.outs[0], op.args[0]) for op in ops if op.name == "copy"]
        names, found = {manager}, {manager}
        while found:  # what it is a copy of, and that: the methods may be asked of any
            found = {source for name, source in copies if name in found} - names
            names |= found
        return any(op.name == "manager" and op.args[0] in names for op in ops)

    def is_of_generators(self, module: Var) -> bool:
        """Whether it has the functions that generator expressions are lowered to."""
        return self.known.looked_up(module) is generating

    def is_only_called(self, name: Var, as_kind: bool = False) -> bool:
        """Whether a variable is read as what is called, and as nothing else.

        ``as_kind``: or as the class of which something may be an instance, or that is raised or
        caught, or asked for what is known. One that has several assignments (``f = g if x else h``)
        is not: where it is called, nobody knows what it is.
        """
        return self.known.definitions.get(name) is not None and self.is_callee(name, as_kind)

    def is_only_asked(self, name: Var) -> bool:
        """Whether a class is asked for what is known, or what is an instance of it, alone."""
        if self.known.definitions.get(name) is None:
            return False
        for block in self.unit.function.blocks:
            for op in block.ops:
                read = () if op.name == "getattr" and self.is_known(op) else op.args
                if self.is_super(op):
                    read = op.args[2:]
                elif op.name == "call" and patterns.asks_kind(self.known, op):
                    read = (*op.args[:2], *op.args[3:])
                if name in read:
                    return False
            if name in terminator_reads(block.terminator):
                return False
        return True

    def is_super(self, op: Op) -> bool:
        """Whether it is ``super()``, which is asked for methods that are known, and called."""
        if op.name != "call" or len(op.args) != 3 or self.known.looked_up(op.args[0]) is not super:
            return False
        for block in self.unit.function.blocks:
            for each in block.ops:
                if op.outs[0] not in each.args:
                    continue
                asks = each.name == "getattr" and self.is_known(each)
                if not asks or not self.is_only_called(each.outs[0]):
                    return False
            if op.outs[0] in terminator_reads(block.terminator):
                return False
        return True

    def is_callee(self, name: Var, as_kind: bool = False) -> bool:
        """The same of one that may have several assignments."""
        for block in self.unit.function.blocks:
            for op in block.ops:
                if as_kind and self.takes_kind(op):
                    continue
                if name in op.args and self.names_import(op):
                    if not self.is_only_called(op.outs[0], as_kind):
                        return False
                    continue
                read = op.args[1:] if op.name == "call" else op.args
                if as_kind and op.name == "call" and patterns.asks_kind(self.known, op):
                    read = (*op.args[1:2], *op.args[3:])
                if as_kind and op.name == "call" and self.makes_entries(op.args[0], op.attr):
                    read = op.args[2:]
                if name in read:
                    return False
            terminator = block.terminator
            if isinstance(terminator, Call):
                makes = as_kind and self.makes_entries(terminator.callee, terminator.shape)
                if name in terminator.args[makes:]:
                    return False
            elif as_kind and isinstance(terminator, Raise) and name != terminator.cause:
                continue
            elif name in terminator_reads(terminator):
                return False
        return True

    def makes_entries(self, callee: Var, shape: CallShape) -> bool:
        """Whether a call makes a dict that makes its entries by what comes first."""
        is_first = shape.is_plain and len(shape.positional) > 0
        return is_first and self.known.looked_up(callee) is defaultdict

    def names_import(self, op: Op) -> bool:
        """Whether it gives what is imported in the function its name there."""
        definition = self.known.definitions.get(op.args[0]) if op.name == "copy" else None
        is_import = definition is not None and definition.name == "import_from"
        return is_import and self.known.looked_up(op.outs[0]) is not MISSING

    def is_number(self, name: Var) -> bool:
        """Whether a variable is sure to be a number, whatever else is about: ``i += 2``."""
        if self.unit.numbers is None:
            kinds = kinds_of(self.unit.function, self.known)
            self.unit.numbers = frozenset(name for name in kinds if kinds[name] == "number")
        return name in self.unit.numbers

    def is_new_tensor(self, name: Var) -> bool:
        """Whether a variable is sure to hold a tensor that the program makes, or a part of one.

        Nothing that is in a container comes out of that, then.
        """
        definition, seen = self.known.definitions.get(name), {name}
        while definition is not None and definition.name in ("copy", "getitem"):
            name = definition.args[0]
            if name in seen:  # it is read before anything assigns it
                return False
            seen.add(name)
            definition = self.known.definitions.get(name)
        if definition is None or definition.name != "call":
            return False
        found = self.world.value(self.unit, self.known, definition.args[0])
        return computing.makes_one(found)

    def elements(self, name: Var) -> list[nn.Module] | None:
        """The modules one of which a variable is sure to hold: of a list of them, gone through."""
        ops = [o for b in self.unit.function.blocks for o in b.ops if name in o.outs]
        ends = [b.terminator for b in self.unit.function.blocks]
        if any(isinstance(end, Call) and end.out == name for end in ends):
            return None
        params = {param.name for param in self.unit.function.params}
        if not ops or name in params or len({(op.name, op.args[:1]) for op in ops}) > 1:
            return None
        of = ops[0].args[:1]
        if ops[0].name == "copy":
            return self.elements(of[0])
        if ops[0].name == "next" and ops[0].outs[0] == name:
            iterator = self.known.definitions.get(of[0])
            of = iterator.args if iterator is not None and iterator.name == "iter" else ()
        elif ops[0].name != "getitem":
            return None
        found = self.world.value(self.unit, self.known, of[0]) if of else MISSING
        if type(found) not in (THROUGH if ops[0].name == "next" else BY_PLACE):
            return None
        self.world.know(found)
        return [part for part in cast(Any, found)._modules.values() if part is not None]

    def stays(self, name: Var) -> bool:
        """Whether a module that it is sure to hold is only called, gone through, or asked."""
        if self.known.looked_up(name) is MISSING and self.elements(name) is None:
            return False
        for block in self.unit.function.blocks:
            for op in block.ops:
                if name not in op.args:
                    continue
                is_base = op.args[0] == name and name not in op.args[1:]
                if self.is_super(op) and name == op.args[2]:
                    continue
                if op.name in ("copy", "getitem") and is_base:
                    if not self.stays(op.outs[0]):
                        return False
                elif op.name == "iter" and is_base:
                    if not all(map(self.is_gone_through, op.outs)):
                        return False
                elif not (is_base and op.name in ("getattr", "call")):
                    return False
            terminator = block.terminator
            read = terminator.args if isinstance(terminator, Call) else terminator_reads(terminator)
            if name in read:
                return False
        return True

    def is_gone_through(self, iterator: Var) -> bool:
        """Whether what an iterator gives is sure to be known where it is called."""
        for block in self.unit.function.blocks:
            for op in block.ops:
                if iterator not in op.args:
                    continue
                item = op.outs[0] if op.outs else ""
                if op.name != "next" or not self.stays(item):
                    return False
            if iterator in terminator_reads(block.terminator):
                return False
        return True

    def takes_kind(self, op: Op) -> bool:
        """Whether a class among its operands is only asked for what is known, or catches."""
        if op.name == "tuple":
            readers = [o for b in self.unit.function.blocks for o in b.ops if op.outs[0] in o.args]
            ends = [b.terminator for b in self.unit.function.blocks]
            read = any(op.outs[0] in terminator_reads(end) for end in ends)
            return not read and all(each.name == "catches" for each in readers)
        return op.name == "catches" or (op.name == "getattr" and self.is_known(op))

    def is_known(self, op: Op) -> bool:
        if op.attr in asking.TITLES or self.known.looked_up(op.outs[0]) is not MISSING:
            return True
        return op.name == "getattr" and self.of_module(op) is not MISSING

    def of_module(self, op: Op) -> object:
        """What a module has by the name that is asked for, noted; ``math.inf if x else y``."""
        base = self.known.looked_up(op.args[0])
        if not isinstance(base, ModuleType):
            return MISSING
        return self.world.attribute_of_module(base, op.attr)

    def asking(self, call: Op) -> Op | None:
        """``getattr(base, text)`` as ``base.text``, noted, where it is sure what that is."""
        asked = self.known.asking(call)
        if asked is not None:
            self.text(call.args[2])
            self.world.value(self.unit, self.known, call.args[0])
        return asked

    def is_only_titled(self, name: Var) -> bool:
        """Whether a variable is only asked for the name of a class."""
        for block in self.unit.function.blocks:
            for op in block.ops:
                if name in op.args and not (op.name == "getattr" and op.attr in asking.TITLES):
                    return False
            if name in terminator_reads(block.terminator):
                return False
        return True

    def is_caught(self, name: Var) -> bool:
        """Whether a variable, which is none of the user's, holds what a handler has caught."""
        handlers = (block.handler for block in self.unit.function.blocks)
        return any(handler is not None and handler.out == name for handler in handlers)

    def is_of_limits(self, name: Var) -> bool:
        """Whether it is sure to hold ``torch.finfo(dtype)``, say, whose attributes are numbers."""
        made = self.known.definitions.get(name)
        if made is None or made.name != "call":
            return False
        found = self.known.looked_up(made.args[0])
        return any(found is each for each in (torch.finfo, torch.iinfo, np.finfo, np.iinfo))

    def text(self, name: Var) -> str | None:
        """The text that a variable is sure to hold."""
        self.world.value(self.unit, self.known, name)
        return self.known.text(name)

    def prefix(self, name: Var) -> str:
        """What a text is sure to begin with."""
        definition = self.known.definitions.get(name)
        if definition is None:
            return ""
        if definition.name == "const":
            return definition.attr if type(definition.attr) is str else ""
        return self.prefix(definition.args[0]) if definition.name in ("add", "join") else ""

    def kinds(self, callee: Var) -> list[type]:
        """The classes one of which ``cls`` is in a class method; none for all other names."""
        params = self.unit.function.params
        if self.unit.is_free or not params or callee != params[0].name:
            return []
        return [] if callee in self.known.definitions else self.world.kinds_of(self.unit)

    def example(self, definition: Op | None) -> Share | None:
        """What ``x`` shares where the class of it is called: ``type(x)(…)``."""
        if definition is None:
            return None
        if definition.name == "getattr" and definition.attr == "__class__":
            return self.unit.of.get(definition.args[0], NONE)
        if definition.name != "call" or len(definition.args) != 2 or not definition.attr.is_plain:
            return None
        asks = self.known.looked_up(definition.args[0]) is type
        return self.unit.of.get(definition.args[1], NONE) if asks else None

    def is_of_torch(self, found: object) -> bool:
        """Whether it is a function of torch's that the program may call."""
        return self.world.shares.computes and computing.is_function(found)
