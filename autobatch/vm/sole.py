"""Writes that nobody else can see: to a tensor that one variable names, and nothing else holds.

    y = x.clone()
    y[i] = y[i] * 1.05      # only y names it here
    points.append(y)

Two names for one tensor cannot be told from two tensors by such a write (see ``aliasing``).

In: a lowered function, and which of its calls make a tensor in memory of its own. Out: the
operations that write in this way. A dataflow problem, forward: for each operation that makes such a
tensor, the variables that may name the last one made there, something that holds it, or a part of
it; what is stored where it cannot be followed is followed no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from autobatch.ir.dataflow import (
    Analysis,
    Solution,
    live_after_each,
    liveness,
    op_reads,
    op_writes,
    solve,
    terminator_reads,
    terminator_writes,
)
from autobatch.ir.ops import BINARY, COMPARE, INPLACE, SUMS, UNARY, having
from autobatch.ir.program import Block, Call, Function, Op, Var

NOBODY: frozenset[Var] = frozenset()
MAKING = frozenset({*UNARY, *BINARY}) - {"not", "pos"}
"""Operators whose result, if it is a tensor, has memory of its own."""
LOOKING = frozenset({*COMPARE, "not", "truth", "format", "join", "sum_begun", "sum_lost"})
"""Operations whose result holds nothing of their operands."""
HANDING = having(
    lambda op: (
        op.result in ("operand", "within", "display") and op.effect in ("pure", "reads", "advances")
    )
) | {"pos"}
"""Operations whose result may hold their operands, and nothing else does."""


@dataclass(frozen=True, slots=True)
class Holders:
    """``groups``: for each place that makes a tensor the variables that may hold it, or of it.

    ``tensors`` are the variables that are sure to name one of these or a part of it, ``wholes``
    those that name all of one. None as the groups: no way has come here yet.
    """

    groups: dict[int, frozenset[Var]] | None = None
    tensors: frozenset[Var] = NOBODY
    wholes: frozenset[Var] = NOBODY

    def joined(self, other: Holders) -> Holders:
        """What holds on either of two ways."""
        if self.groups is None or other.groups is None:
            return other if self.groups is None else self
        groups = dict(self.groups)
        for place, names in other.groups.items():
            groups[place] = groups.get(place, NOBODY) | names
        return Holders(groups, self.tensors & other.tensors, self.wholes & other.wholes)

    def around(self, names: Iterable[Var]) -> frozenset[int]:
        """The places whose tensors the variables may hold."""
        wanted = set(names)
        return frozenset(
            p for p, held in (self.groups or {}).items() if not wanted.isdisjoint(held)
        )

    def assigned(self, names: Iterable[Var]) -> Holders:
        """The variables name something else."""
        gone = frozenset(names)
        groups = {place: held - gone for place, held in (self.groups or {}).items()}
        return Holders(groups, self.tensors - gone, self.wholes - gone)

    def handed(self, operands: Iterable[Var], outs: tuple[Var, ...], source: Var = "") -> Holders:
        """The outs may hold what the operands do; they are what ``source`` is, if it is given."""
        places = self.around(operands)
        fact = self.assigned(outs)
        groups = fact.groups or {}
        groups |= {place: groups[place].union(outs) for place in places}
        tensors = fact.tensors.union(outs) if source in self.tensors else fact.tensors
        wholes = fact.wholes.union(outs) if source in self.wholes else fact.wholes
        return Holders(groups, tensors, wholes)

    def made(self, place: int, out: Var) -> Holders:
        """A new tensor, which ``out`` names."""
        old = (self.groups or {}).get(place, NOBODY)
        fact = Holders(self.groups, self.tensors - old, self.wholes - old).assigned([out])
        groups = {**(fact.groups or {}), place: frozenset({out})}
        return Holders(groups, fact.tensors | {out}, fact.wholes | {out})

    def lost(self, operands: Iterable[Var]) -> Holders:
        """What the operands hold is somewhere that is not followed."""
        places = self.around(operands)
        groups = self.groups or {}
        gone = NOBODY.union(*(groups[place] for place in places))
        kept = {place: held for place, held in groups.items() if place not in places}
        return Holders(kept, self.tensors - gone, self.wholes - gone)


@dataclass(eq=False, repr=False)
class Sole:
    """One function. ``makes``: whether a call makes a tensor in memory of its own; ``keeps``:
    whether it may put its arguments somewhere; ``target``: what an operation writes to in place, if
    that is a tensor's method.
    """

    function: Function
    makes: Callable[[Op], bool]
    keeps: Callable[[Op], bool]
    target: Callable[[Op], Var | None]
    places: dict[int, int] = field(default_factory=dict)

    def writes(self) -> frozenset[int]:
        """The operations, by ``id``, that write to what one variable names and nothing holds."""
        blocks = self.function.blocks
        every = (op for block in blocks for op in block.ops)
        self.places = {id(op): place for place, op in enumerate(every)}
        analysis = Analysis(
            True, Holders({}), Holders(), Holders.joined, self.after, lambda *_: Holders({})
        )
        solution: Solution[Holders] = solve(blocks, analysis)
        alive = liveness(blocks)
        found: set[int] = set()
        for label, block in enumerate(blocks):
            later = NOBODY.union(*(alive[target] for target in block.successors()))
            fact = solution.before[label]
            for op, live in zip(block.ops, live_after_each(block, later), strict=True):
                if self.is_sole(op, fact, live):
                    found.add(id(op))
                fact = self.step(op, fact)
        return frozenset(found)

    def is_sole(self, op: Op, fact: Holders, live: frozenset[Var]) -> bool:
        """Whether an operation writes to a tensor that nothing else holds which is used yet."""
        written = self.written(op)
        if written is None or written not in fact.wholes:
            return False
        places = fact.around([written])
        holders = NOBODY.union(*((fact.groups or {})[place] for place in places))
        own = {written, *op.outs} | ({op.args[0]} if op.name == "call" else set())
        operands = op.args[1:] if op.name == "call" else [a for a in op.args if a != written]
        return holders.isdisjoint(live - own) and holders.isdisjoint({*operands} - {written})

    def written(self, op: Op) -> Var | None:
        if op.name == "setitem" or op.name in INPLACE:
            return op.args[0]
        return self.target(op) if op.name == "call" else None

    def after(self, block: Block, fact: Holders) -> Holders:
        for op in block.ops:
            fact = self.step(op, fact)
        if isinstance(block.terminator, Call):
            fact = fact.lost(terminator_reads(block.terminator))
        return fact.assigned(terminator_writes(block.terminator))

    def step(self, op: Op, fact: Holders) -> Holders:
        """The fact behind an operation."""
        if fact.groups is None:
            return fact
        name, outs = op.name, op_writes(op)
        if name == "call":
            return self.called(op, fact)
        if name in MAKING and not fact.tensors.isdisjoint(op.args):
            return fact.made(self.places[id(op)], outs[0])
        if name in LOOKING or not op.args:
            return fact.assigned(outs)
        if name in INPLACE or name == "setitem":
            known = op.args[0] in fact.tensors
            fact = fact if known else fact.lost(op.args)
            return fact.handed(op.args[:1], outs, op.args[0])
        if name in MAKING or name in HANDING:
            return self.holding(op, fact)
        return fact.lost(op_reads(op)).assigned(outs)

    def called(self, op: Op, fact: Holders) -> Holders:
        written = self.target(op)
        if written is not None and written in fact.tensors:
            return fact.handed([written], op.outs, written)
        if self.makes(op):
            return fact.made(self.places[id(op)], op.outs[0])
        return fact.lost(op.args).assigned(op.outs) if self.keeps(op) else self.holding(op, fact)

    def holding(self, op: Op, fact: Holders) -> Holders:
        """What an operation gives may hold what its operands do."""
        if op.name == "select":
            return fact.handed(op.args[1:], op.outs, self.either(op.args[1], op.args[2], fact))
        if op.name in SUMS:
            return fact.handed(op.args[:1], op.outs, op.args[0])
        source = op.args[0] if op.name == "copy" else ""
        fact, before = fact.handed(op.args, op.outs, source), fact
        if op.name == "getitem" and op.args[0] in before.tensors:
            fact = Holders(fact.groups, fact.tensors.union(op.outs), fact.wholes)
        return fact

    def either(self, one: Var, other: Var, fact: Holders) -> Var:
        """Of two variables the one of which less is known, if that is something."""
        known = [name for name in (one, other) if name in fact.tensors]
        if len(known) < 2:
            return ""
        return one if one not in fact.wholes else other
