"""Where the values of a function's variables may come from: what a write to one may reach.

In: a ``Function``. Out: for each variable the *origins* of the object that it names, each one of

- ``Made(i)``: the object that the function's ``i``-th operation makes (a display, a sum, …);
- ``Given(p)``: what the parameter ``p`` was given, or something within it;
- ``OUTER``: something that existed before, reached by a global or a captured variable.

One level deep: what an earlier block puts into something that the function makes may come out of
anything that it makes (``stored_before``); what names a variable has is taken without regard to
order. A number or a string needs no origin, since it cannot be written; the analysis knows that
of literals only (Andersen 1994, in its smallest form).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from autobatch.ir.dataflow import reaching
from autobatch.ir.ops import info
from autobatch.ir.program import Call, Function, Label, Op, Var


@dataclass(frozen=True, slots=True)
class Made:
    """The object that an operation makes."""

    index: int


@dataclass(frozen=True, slots=True)
class Given:
    """What a parameter was given."""

    param: Var


@dataclass(frozen=True, slots=True)
class Outer:
    """Something that existed before the call."""


OUTER = Outer()
Fate = Literal["reads", "holds", "returns", "stores"]
"""A call only reads its arguments, or gives something new that may hold them, or may give them
back, or may put them into each other too."""
Origin = Made | Given | Outer
Origins = frozenset[Origin]


@dataclass(eq=False, repr=False)
class Sources:
    """The origins of each variable, and of what was put into things that the function makes."""

    function: Function
    gives_outer: Callable[[Call], bool] = lambda call: True
    """Whether a call may give something that existed before."""
    fate: Callable[[Op | Call], Fate] = lambda call: "stores"
    """What becomes of a call's arguments."""
    of: dict[Var, Origins] = field(default_factory=dict)
    stored_in: dict[Label, Origins] = field(default_factory=dict)
    """What each block puts into something."""
    assigned_in: dict[Var, set[Label]] = field(default_factory=dict)
    """The blocks that assign a variable; for what a call gives, that of the call."""

    def __post_init__(self) -> None:
        for param in self.function.params:
            self.of[param.name] = frozenset({Given(param.name)})
        changed = True
        while changed:
            before = (dict(self.of), dict(self.stored_in))
            for index, (label, outs, origins) in enumerate(self.steps()):
                self.add(outs, origins if origins is not None else frozenset({Made(index)}))
                for out in outs:
                    self.assigned_in.setdefault(out, set()).add(label)
            changed = before != (self.of, self.stored_in)

    def origins(self, names: Iterable[Var]) -> Origins:
        """All that the named variables may name."""
        return frozenset().union(*(self.of.get(name, frozenset()) for name in names))

    def inside(self, names: Iterable[Var], label: Label) -> Origins:
        """All that may come out of what the variables name, when a block runs."""
        found = self.origins(names)
        if any(type(origin) is Made for origin in found):
            return found | self.stored_before(label)
        return found

    def stored_before(self, label: Label) -> Origins:
        """All that may have been put into something when a block runs."""
        return frozenset().union(
            *(stored for at, stored in self.stored_in.items() if self.leads(at, label))
        )

    def is_assigned_before(self, name: Var, label: Label) -> bool:
        """Whether an operation may have assigned a variable when a block runs."""
        return any(self.leads(at, label) for at in self.assigned_in.get(name, ()))

    def leads(self, block: Label, label: Label) -> bool:
        """Whether what a block does may come before what another does."""
        return block == label or label in self.reached[block]

    @cached_property
    def reached(self) -> list[set[Label]]:
        return reaching(self.function.blocks)

    def add(self, outs: Iterable[Var], origins: Origins) -> None:
        for out in outs:
            self.of[out] = self.of.get(out, frozenset()) | origins

    def steps(self) -> Iterator[tuple[Label, tuple[Var, ...], Origins | None]]:
        """For each operation and call its block, its outs and their origins.

        None as the origins: it makes an object.
        """
        index = 0
        for label, block in enumerate(self.function.blocks):
            for op in block.ops:
                yield label, op.outs, self.result(op, label, index)
                index += 1
            if isinstance(block.terminator, Call):
                call = block.terminator
                origins = self.called(call, (call.callee, *call.args), label, index)
                outer = frozenset({OUTER}) if self.gives_outer(call) else frozenset()
                yield label, (call.out,), origins | outer
                index += 1
            if block.handler is not None:
                yield label, (block.handler.out,), self.anything

    @cached_property
    def anything(self) -> Origins:
        """What an exception may hold."""
        return frozenset({OUTER, *(Given(param.name) for param in self.function.params)})

    def result(self, op: Op, label: Label, index: int) -> Origins | None:
        """What the outs of an operation may name."""
        declared = info(op.name)
        match declared.result:
            case "value":
                return frozenset()
            case "fresh":
                return None
            case "display":
                self.store(op.args, label)
                return None
            case "operand":
                return self.origins(op.args)
            case "within":
                return self.inside(op.args, label) | {Made(index)}
            case "inplace":
                self.store(op.args[1:], label)
                return self.origins(op.args[:1]) | {Made(index)}
            case "call":
                return self.called(op, op.args, label, index)
        if declared.effect == "writes":
            self.store(op.args[1:], label)
            return frozenset()
        return frozenset({OUTER})  # a global, a captured variable, a module

    def called(
        self, call: Op | Call, operands: tuple[Var, ...], label: Label, index: int
    ) -> Origins:
        """What a call gives: something new, or what it gets, or what is in there."""
        fate = self.fate(call)
        if fate == "holds":
            self.store(operands[1:], label)
        if fate in ("reads", "holds"):
            return frozenset({Made(index)})
        receiver = frozenset(self.of.get(operands[0], frozenset()) - {OUTER})
        if fate == "stores":
            self.store(operands[1:], label)
        return receiver | self.inside(operands[1:], label) | {Made(index)}

    def store(self, names: tuple[Var, ...], label: Label) -> None:
        self.stored_in[label] = self.stored_in.get(label, frozenset()) | self.origins(names)
