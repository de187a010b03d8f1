"""What holds the results of forked calls, and what may be done with it before they are there.

In: a function with forks, and what is known of its calls. Out, for ``fork_calls``: which variables
name the same thing, what is written where, and which forks get what others give.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from autobatch.ir.dataflow import op_reads, terminator_reads
from autobatch.ir.ops import INPLACE, STORES
from autobatch.ir.program import Call, Function, Label, Op, Var
from autobatch.passes.origins import Fate, Given, Origins, Outer, Sources


class Knowledge(Protocol):
    """What the pass asks about calls. ``seeded``: those that draw may be forked."""

    @property
    def seeded(self) -> bool: ...

    def may_fork(self, call: Call) -> bool:
        """Whether a call can run out of turn."""

    def is_quiet(self, op: Op | Call) -> bool:
        """Whether a call has no effect that others can see, and is not known to be a fork's."""

    def method(self, op: Op) -> tuple[Var, str] | None:
        """The receiver and the name of the method that an operation calls, if it is that."""

    def written_by(self, call: Op | Call) -> tuple[Var, ...]:
        """What a call may write, as far as it is known."""

    def gives_value(self, op: Op) -> bool:
        """Whether a call is of a builtin or torch function that is known, and pure."""

    def fate(self, call: Op | Call) -> Fate:
        """What becomes of a call's arguments."""


STORING = frozenset(["append", "extend", "insert", "add", "update"])
"""Methods of lists, dicts and sets that put what they get into them, and give nothing."""
HOLDING = ("list", "tuple", "getattr")
"""What gives something that holds its operands."""


@dataclass(frozen=True, slots=True)
class Fact:
    """At a point: variables that may hold a forked result, and the blocks of forks not joined.

    Those of ``results`` may be one, or come of one, and not only have it in a list or tuple.
    """

    tainted: frozenset[Var] = frozenset()
    pending: frozenset[Label] = frozenset()
    results: frozenset[Var] = frozenset()

    def join(self, other: Fact) -> Fact:
        results = self.results | other.results
        return Fact(self.tainted | other.tainted, self.pending | other.pending, results)

    def without(self, names: Iterable[Var]) -> Fact:
        """The fact where variables have been given something that is none."""
        lost = frozenset(names)
        return Fact(self.tainted - lost, self.pending, self.results - lost)


NOTHING = Fact()


@dataclass(eq=False, repr=False)
class Results:
    """What the variables of a function with forks may hold."""

    function: Function
    knowledge: Knowledge
    levels: dict[Label, int] = field(default_factory=dict)

    @cached_property
    def sources(self) -> Sources:
        return Sources(self.function, fate=self.knowledge.fate)

    def callee(self, label: Label) -> object:
        """What a fork calls, the same for the same name."""
        name = self.function.blocks[label].ops[-1].args[0]
        ways = self.named.get(name, {name})
        return next(iter(ways)) if len(ways) == 1 else name

    @cached_property
    def named(self) -> dict[Var, set[object]]:
        """By which operations variables come to hold something; a parameter by none."""
        found: dict[Var, set[object]] = {}
        for block in self.function.blocks:
            for op in block.ops:
                for out in op.outs:
                    looked_up = op.name in ("global", "load_free", "load_outer", "getattr")
                    way = (op.name, op.attr, op.args) if looked_up else out
                    found.setdefault(out, set()).add(way)
        return found

    def is_own_append(self, op: Op, label: Label) -> bool:
        """Whether an operation is ``xs.append(x)``, and no other variable may name the list.

        Nor is anything else put into it.
        """
        target = self.appends_to(op)
        if target is None or self.sources.origins([target]) & self.stored:
            return False
        return self.is_unshared(target, label)

    def appends_to(self, op: Op) -> Var | None:
        """The list that ``xs.append(x)`` appends to, if the operation is that."""
        target = self.stores_to(op)
        if target is None or op.name == "setitem" or len(op.args) != 2:
            return None
        method = self.knowledge.method(op)
        return target if method is not None and method[1] == "append" else None

    def stores_to(self, op: Op) -> Var | None:
        """What a store puts something into, if an operation is one: its result is of no use."""
        if op.name == "setitem":
            return op.args[0]
        method = self.knowledge.method(op) if op.name == "call" else None
        if method is None or method[1] not in STORING or self.read.intersection(op.outs):
            return None
        return method[0]

    @cached_property
    def read(self) -> frozenset[Var]:
        """The variables that are read anywhere."""
        found: set[Var] = set()
        for block in self.function.blocks:
            found.update(arg for op in block.ops for arg in op_reads(op))
            found.update(terminator_reads(block.terminator))
        return frozenset(found)

    @cached_property
    def stored(self) -> Origins:
        """What is written by stores that are no ``xs.append(x)``."""
        ops = [op for block in self.function.blocks for op in block.ops]
        targets = [self.stores_to(op) for op in ops if self.appends_to(op) is None]
        return self.sources.origins(name for name in targets if name is not None)

    def written_by(self, op: Op) -> tuple[Var, ...]:
        """What an operation may write."""
        if op.name in (*STORES, *INPLACE):
            return op.args[:1]
        return self.knowledge.written_by(op) if op.name in ("call", "fork") else ()

    def is_unshared(self, name: Var, label: Label) -> bool:
        """Whether a variable, when a block runs, names something made here, and alone does.

        A name or a container that gets it only later, as in ``return total``, does so with what
        stands for the result.
        """
        sources = self.sources
        own = sources.of.get(name, frozenset())
        if any(type(origin) in (Given, Outer) for origin in own):
            return False
        if own & sources.stored_before(label):
            return False
        return all(
            other == name
            or not origins & own
            or self.is_passing(other, name)
            or not sources.is_assigned_before(other, label)
            for other, origins in sources.of.items()
        )

    def is_passing(self, other: Var, name: Var) -> bool:
        """Whether a variable is a temporary that only hands ``name`` on: its method or its copy."""
        if not other.startswith("%"):
            return False
        for block in self.function.blocks:
            for op in block.ops:
                if other in op.outs:
                    handed = op.name in ("getattr", "list", "call", *INPLACE)
                    if not handed or (op.name == "getattr" and op.args[0] != name):
                        return False
                if other in op.args and op.name not in ("call", "copy"):
                    return False
        return True

    def holding(self, op: Op) -> tuple[Var, ...]:
        """What an operation puts something into."""
        target = op.args[0] if op.name == "append" else self.stores_to(op)
        return () if target is None else (target,)

    def in_one_loop(self, left: Label, right: Label) -> bool:
        reached = self.sources.reached
        return right in reached[left] and left in reached[right]

    def level(self, label: Label) -> int:
        """After how many others, one after the other, a fork runs."""
        found = self.levels.get(label)
        if found is None:
            before = [other for other in self.given[label] if other not in self.given[other]]
            found = max((1 + self.level(other) for other in before), default=0)
            self.levels[label] = found
        return found

    @cached_property
    def given(self) -> dict[Label, frozenset[Label]]:
        """For each fork, the forks of which it may get results."""
        held: dict[Var, frozenset[Label]] = {}
        found: dict[Label, frozenset[Label]] = {}
        changed = True
        while changed:
            changed = False
            for label, block in enumerate(self.function.blocks):
                for op in block.ops:
                    got = frozenset().union(*(held.get(arg, frozenset()) for arg in op.args))
                    if op.name == "fork":
                        found[label] = got
                        got |= {label}
                    for name in (*op.outs, *self.holding(op)):
                        if not got <= held.get(name, frozenset()):
                            held[name] = held.get(name, frozenset()) | got
                            changed = True
        return found
