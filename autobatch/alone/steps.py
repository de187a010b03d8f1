"""What the operations of one function do with what its variables share.

In: a function of a ``World``. Out: its shares, and what it brings into the world; ``NotAlone``
where an operation may be seen from outside, or is not known to work on data.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from autobatch.alone import computing, lasting, modes, patterns, printing, reads
from autobatch.alone.calls import Calls
from autobatch.alone.contents import SCALARS
from autobatch.alone.displayed import only_returned
from autobatch.alone.kinds import NotAlone
from autobatch.alone.taint import (
    ARRAY,
    CODE,
    NONE,
    TENSOR,
    TENSORS,
    Share,
    deep,
    elements,
)
from autobatch.frontend import MISSING
from autobatch.ir.ops import BINARY, COMPARE, INPLACE, UNARY, info
from autobatch.ir.program import Block, Call, CallShape, Function, Join, Op, Raise, Return, Var
from autobatch.source import Span
from autobatch.vm.purity import Names

OPERATORS = frozenset({*UNARY, *BINARY, *COMPARE})
NUMBERS = (int, float)
COUNTED = INPLACE - {"imul", "iand", "ior", "ixor", "imatmul"}
"""In place with a number as their second operand, they are for numbers."""
GOING_THROUGH = frozenset({"iadd", "ior"})
"""In place of a container, they go through their second operand."""
VALUES = frozenset(
    {"truth", "format", "join", "catches", "delete", "context", "sum_begun", "sum_lost"}
)
HOLDS = frozenset({"tuple", "list", "set", "dict", "slice", "assertion"})
HAVE_ATTRIBUTES = frozenset({"slice", "assertion"})
WRITES = frozenset({"setattr", "setitem", "delattr", "delitem", "extend", "update", "append"})
INSIDE = frozenset({"getitem", "unpack", "next", "to_tuple", "to_set"})
TEXTS = frozenset({"format", "join"})
BOXES = frozenset({"load_box", "load_outer_box"})


@dataclass(frozen=True, slots=True)
class Steps(Calls):
    """The operations of a function, once through."""

    def run(self) -> None:
        receiver = self.known.names.receiver
        if isinstance(receiver, nn.Module) and not self.stays(self.unit.function.params[0].name):
            self.world.met(receiver)
        for block in self.unit.function.blocks:
            self.block(block)

    def block(self, block: Block) -> None:
        place = [(*block.ops, block.terminator)[0].span]
        try:
            self.through(block, place)
        except NotAlone as error:
            error.at(place[0])
            if self.world.refusals is None:
                raise
            self.world.refuses(error)

    def through(self, block: Block, place: list[Span]) -> None:
        """The operations of a block; ``place`` is where the last one stands that was looked at."""
        if not all(map(self.is_managed, block.modes)) and not self.is_without_gradients(block):
            raise NotAlone("a mode is entered")
        if block.handler is not None and not self.world.catches:
            self.world.catches = self.world.shares.changed = True
        for op in block.ops:
            place[0] = op.span
            if op.name not in TEXTS or not self.is_lost(block, op):
                self.op_or_why_not(op)
        place[0] = block.terminator.span
        shares, unit = self.world.shares, self.unit
        if block.handler is not None:
            shares.add(unit, [block.handler.out], shares.caught())
        match block.terminator:
            case Call(out=out, callee=callee, args=args, shape=shape):
                shares.add(unit, [out], self.call(callee, args, shape))
            case Return(value=value) if unit.yields:
                shares.store(unit.join([value]))  # what ``yield from`` gives, or an exception has
            case Return(value=value):
                given = lasting.returned(self.world, unit, self.known, value)
                shares.gives(unit, given)
            case Raise(exception=exception):
                found = self.world.value(unit, self.known, exception)
                if isinstance(found, type):  # which is called
                    self.known_call(found, [], CallShape((), ()))
                shares.met(unit.join([exception]))  # it comes out where something is caught
            case Join():
                raise NotAlone("calls are forked")

    def is_lost(self, block: Block, text: Op) -> bool:
        """Whether nobody sees a text, since the thread is about to leave plain Python.

        It prints, or fails: then it goes the general way, from its beginning.
        """
        if self.world.may_print and printing.ahead(self.known, block, text):
            return True
        return not self.world.catches and only_raises(self.unit.function, block)

    def op_or_why_not(self, op: Op) -> None:
        """An operation; one that is refused does nothing where all reasons are asked for."""
        try:
            self.op(op)
        except NotAlone as error:
            error.at(op.span)
            if self.world.refusals is None:
                raise
            self.world.refuses(error)

    def is_without_gradients(self, block: Block) -> bool:
        """Whether the only modes that are entered are ``torch.no_grad()``.

        Where a function yields, others run in its modes.
        """
        entered = [mode for mode in block.modes if not self.is_managed(mode)]
        may_enter = self.world.shares.computes and not self.unit.yields
        return may_enter and all(modes.is_no_grad(self.known, mode) for mode in entered)

    def op(self, op: Op) -> None:
        found = self.result(op)
        outs = op.outs
        if found & TENSORS and outs:
            numbers = [name for name in outs if self.is_number(name)]
            self.world.shares.add(self.unit, numbers, found & ~TENSORS)
            outs = tuple(name for name in outs if name not in numbers)
        self.world.shares.add(self.unit, outs, found)

    def result(self, op: Op) -> Share:
        shares, args = self.world.shares, self.unit.join(op.args)
        name = op.name
        self.world.scale.note(op)
        if args & TENSOR and not shares.computes and name in reads.COMPUTES:
            raise NotAlone("it computes with what may be a tensor")
        if args & TENSOR and name in computing.SHOWN and not self.world.may_show(op.span):
            raise NotAlone("it makes text of what may be a tensor")
        if name in OPERATORS:
            # Of two lists, say. What may be a tensor is none that holds some, but one that counts.
            inside = elements(args) & ~TENSORS if name in BINARY else NONE
            shares.contain(inside)
            made = args & (TENSORS if name == "pos" else TENSOR)
            return shares.hidden | (inside & CODE) | made
        if name in INPLACE:
            return self.inplace(op, args)
        if name in HOLDS:
            if self.unit.is_first and self.is_given_back(op):
                shares.gives_within(self.unit, args)
                return NONE
            (shares.store if name in HAVE_ATTRIBUTES else shares.contain)(args)
            return NONE
        if name in WRITES:
            base, put = self.unit.join(op.args[:1]), self.unit.join(op.args[1:])
            if name in ("setattr", "delattr"):
                self.assigned(op.attr, base)
                shares.put(op.attr, put)
            else:
                shares.write(base)
                shares.contain(put)
            return NONE
        if name in INSIDE:
            if name == "getitem" and shares.computes and self.is_new_tensor(op.args[0]):
                return self.unit.join(op.args[:1]) & TENSORS
            if name == "getitem":  # a tensor as the place in a list is no part of it
                base = self.unit.join(op.args[:1])
                rest = args & ~base & ~TENSORS
                if self.is_slice(op.args[1]):
                    return shares.copied(base | rest)
                return shares.item(base) | shares.within(rest)
            return shares.following(args) if name == "next" else shares.within(args)
        if name in BOXES:
            return shares.boxed
        if name in VALUES:
            return NONE
        return self.named(op, args)

    def is_given_back(self, op: Op) -> bool:
        """Whether what it makes is only returned."""
        if self.unit.displays is None:
            self.unit.displays = only_returned(self.unit.function)
        return id(op) in self.unit.displays

    def is_slice(self, index: Var) -> bool:
        definition = self.known.definitions.get(index)
        return definition is not None and definition.name == "slice"

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
                self.world.captures(op.attr, self.imports_of(op))
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
            case "import" | "import_from":
                return self.imported(op)
            case "call":
                asks = op.attr.is_plain and len(op.args) == 2 and self.is_only_titled(op.outs[0])
                if asks and self.world.value(self.unit, self.known, op.args[0]) is type:
                    return NONE  # ``title`` sees to it that no class has another name
                asked = self.asking(op)
                if asked is not None:
                    return self.attribute(asked, self.unit.join(asked.args))
                return self.call(op.args[0], op.args[1:], op.attr)
            case "manager":
                return args  # its method: looked at where it is called
            case "copy" | "load_outer" | "select" | "iter" | "sum_left" | "sum_whole":
                return args | (shares.hidden if op.name == "iter" else NONE)
            case "box":
                shares.box(args)
                return NONE
            case "store_box" | "clear_box":
                shares.box(self.unit.join(op.args[1:]))
                return NONE
            case "free_box":
                value = self.world.read(self.known, op)
                if self.known.boxed(op.outs[0]) is not MISSING:
                    return NONE  # an import is captured: it is only handed on
                shares.box(NONE if value is MISSING else self.world.met(value))
                return NONE
            case "handled":
                return shares.caught()
        raise NotAlone(f"it does {info(op.name).doc}")

    def inplace(self, op: Op, args: Share) -> Share:
        shares = self.world.shares
        base = self.unit.join(op.args[:1])
        other = self.known.definitions.get(op.args[1])
        number = other is not None and other.name == "const" and type(other.attr) in NUMBERS
        if number and op.name in COUNTED:
            if not base & (TENSOR | ARRAY):
                return base | shares.hidden
            shares.write(base & (TENSORS | ARRAY))  # a container takes no number
        else:
            shares.write(base)
        goes_on = op.name in GOING_THROUGH  # a list takes up what a tensor has as its rows
        shares.contain(deep(args) if goes_on else elements(args) & ~TENSORS)
        return base | shares.hidden | (args & TENSOR)


def only_raises(function: Function, block: Block) -> bool:
    """Whether what begins at a block's end is sure to end by an exception, or does not end."""
    for _ in function.blocks:
        if isinstance(block.terminator, Raise):
            return True
        following = block.successors()
        if len(following) != 1:
            return False
        block = function.blocks[following[0]]
    return False
