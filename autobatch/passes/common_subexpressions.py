"""Common subexpressions: what has been computed already, and cannot have changed, is read again.

Before:                              After:

    b0: %1 = mul i, k                    b0: %1 = mul i, k
        jump b1                              jump b1
    b1: %2 = lt %1, n                    b1: %2 = lt %1, n
        branch %2 ? b2 : b3                  branch %2 ? b2 : b3
    b2: %3 = mul k, i                    b2: %3 = copy %1
        n = sub n, %3                        n = sub n, %3
        jump b1                              jump b1
    b3: %4 = add i, %1                   b3: %4 = add i, %1
        return %4                            return %4

An expression is *available* where every way has computed it, and since then nothing has assigned
its operands, nor what holds its value, nor may have written to a tensor among its operands, under
any name (Cocke 1970, "Global common subexpression elimination"). It is computed from numbers and
tensors only, which ``ir.inference`` must know: an operator on an object may be a method of the
user's, with effects. The first computation has not failed, so the second would not: exceptions and
their order stay. One value stands for two only where nobody can tell (``values.kept``): what is
written to, returned, put into a list or asked for identity is computed by itself. Under other modes
(``no_grad``, ``autocast``) an expression is another one.

A value of an earlier block is read only where it is at hand anyway, since what lives longer is
moved along wherever threads part; a product of matrices is worth that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from autobatch.ir.dataflow import Analysis, liveness, op_writes, solve, terminator_writes
from autobatch.ir.inference import (
    NOTHING,
    Types,
    is_quiet,
    joined_types,
    types_after,
    types_before,
    types_raised,
    unshaped,
    without,
)
from autobatch.ir.ops import COMMUTATIVE, INPLACE
from autobatch.ir.program import Block, Call, Function, Join, Op, Var
from autobatch.passes.facts import Facts, Literal, Same, after, joined_facts, unwritten
from autobatch.passes.values import LOOKING, kept

DEAR = frozenset({"matmul"})
"""Operations that cost more than to move their value along."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An operation on variables and literals, under modes; ``lasting`` if all are numbers."""

    name: str
    args: tuple[Var | Literal, ...]
    modes: tuple[Var, ...]
    lasting: bool

    def survives(self, written: Container[Var]) -> bool:
        return not any(name in written for name in (*self.args, *self.modes))


Available = Mapping[Expression, Var]
"""Expressions, each with the variable that holds its value."""
NONE: Available = {}


@dataclass(frozen=True, slots=True)
class Fact:
    """At a point: what is known of variables, and what has been computed."""

    types: Types
    values: Facts
    available: Available

    def join(self, other: Fact) -> Fact:
        both = self.available.items() & other.available.items()
        types = joined_types(self.types, other.types) or {}
        values = joined_facts(self.values, other.values) or {}
        return Fact(types, values, dict(sorted(both, key=str)))

    def without(self, written: Container[Var], lasting: bool) -> dict[Expression, Var]:
        """What is still available once variables are written; ``lasting``: numbers alone are."""
        return {
            each: name
            for each, name in self.available.items()
            if name not in written and each.survives(written) and (each.lasting or not lasting)
        }


def share_expressions(function: Function, given: Types = NOTHING) -> Function:
    """The function with copies in the place of what is computed a second time.

    ``given`` is what its parameters are known to hold.
    """
    before = types_before(function.blocks, given)
    if not any(count > 1 for count in computed(function, before).values()):
        return function
    sharing = Sharing(kept(function, before))
    analysis: Analysis[Fact | None] = Analysis(
        True, Fact(given, {}, NONE), None, joined, sharing.through, sharing.raised
    )
    known = solve(function.blocks, analysis).before
    live = liveness(function.blocks)
    blocks = tuple(
        block if fact is None else sharing.changed(block, fact, at_hand)
        for block, fact, at_hand in zip(function.blocks, known, live, strict=True)
    )
    same = all(new is old for new, old in zip(blocks, function.blocks, strict=True))
    return function if same else replace(function, blocks=blocks)


def computed(function: Function, before: Sequence[Types]) -> Counter[str]:
    """How often each operator computes with what is known to be numbers and tensors."""
    found: Counter[str] = Counter()
    for block, types in zip(function.blocks, before, strict=True):
        for op in block.ops:
            found[op.name] += is_computed(op, types)
            types = types_after(op, types)
    return found


def is_computed(op: Op, types: Types) -> bool:
    return op.name in LOOKING and all(
        (found := types.get(arg)) is not None and found.is_plain for arg in op.args
    )


def joined(one: Fact | None, other: Fact | None) -> Fact | None:
    if one is None or other is None:
        return other if one is None else one
    return one.join(other)


@dataclass(frozen=True, slots=True)
class Sharing:
    """What it takes to know which values may be shared: the variables whose values are kept."""

    kept: frozenset[Var]

    def through(self, block: Block, fact: Fact | None) -> Fact | None:
        if fact is None:
            return None
        for op in block.ops:
            fact = self.after(op, block.modes, fact)
        if not isinstance(block.terminator, Call | Join):
            return fact
        written = terminator_writes(block.terminator)
        types, values = without(unshaped(fact.types), written), unwritten(fact.values, written)
        return Fact(types, values, fact.without(written, True))

    def raised(self, block: Block, fact: Fact | None) -> Fact | None:
        """At a handler, wherever the block has failed."""
        assert block.handler is not None
        if fact is None:
            return None
        written = {name for op in block.ops for name in op_writes(op)}
        written.update(terminator_writes(block.terminator), (block.handler.out,))
        types = types_raised(block, fact.types) or {}
        return Fact(types, unwritten(fact.values, written), fact.without(written, True))

    def after(self, op: Op, modes: tuple[Var, ...], fact: Fact) -> Fact:
        """What is available after an operation."""
        found = self.expression(op, modes, fact)
        written = op_writes(op)
        available = fact.without(written, may_write(op, fact.types))
        if found is not None and found not in available and found.survives(written):
            available[found] = op.outs[0]
        return Fact(types_after(op, fact.types), after(op, fact.values), available)

    def expression(self, op: Op, modes: tuple[Var, ...], fact: Fact) -> Expression | None:
        """What an operation computes, if that may be shared."""
        if not is_computed(op, fact.types) or op.outs[0] in self.kept:
            return None
        lasting = all(fact.types[arg].is_number for arg in op.args)
        args = tuple(operand(arg, fact.values) for arg in op.args)
        args = tuple(sorted(args, key=str)) if op.name in COMMUTATIVE else args
        return Expression(op.name, args, () if lasting else modes, lasting)

    def changed(self, block: Block, fact: Fact, at_hand: frozenset[Var]) -> Block:
        """The block with copies; ``at_hand`` are the variables that live at its start."""
        ops: list[Op] = []
        here = Fact(fact.types, fact.values, NONE)
        for op in block.ops:
            found = self.expression(op, block.modes, fact)
            held = None
            if found is not None:
                before = fact.available.get(found)
                usable = before in at_hand or op.name in DEAR
                held = here.available.get(found) or (before if usable else None)
            fact, here = (self.after(op, block.modes, each) for each in (fact, here))
            if held is not None:
                op = Op("copy", op.outs, (held,), None, op.span)
            ops.append(op)
        if tuple(ops) == block.ops:
            return block
        return replace(block, ops=tuple(ops), converted=None)


def operand(name: Var, values: Facts) -> Var | Literal:
    """What an operand is known as: a literal, what it is a copy of, or its own name."""
    match values.get(name):
        case Literal() as literal:
            return literal
        case Same(source):
            return source
    return name


def may_write(op: Op, types: Types) -> bool:
    """Whether an operation may write to a tensor."""
    if op.name in INPLACE:
        return not all((found := types.get(arg)) and found.is_number for arg in op.args)
    return op.name == "setitem" or not is_quiet(op, types)
