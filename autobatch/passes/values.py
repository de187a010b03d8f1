"""What variables hold that nobody can tell from an equal value: those that are only computed with.

In: a function, and the types of its variables at the start of each block. Out: the variables whose
values somebody may write to, keep, hand on or ask for identity, wherever they are read; for all
others one value may stand for two equal ones. For a number it may unless ``is`` asks for it here:
nobody can write to it, and which of two equal numbers it is Python itself leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autobatch.ir.dataflow import terminator_reads
from autobatch.ir.inference import Types, types_after
from autobatch.ir.ops import BINARY, COMPARE, INPLACE, UNARY
from autobatch.ir.program import Block, Branch, Function, Op, Var

LOOKING = frozenset({*UNARY, *BINARY, *COMPARE}) - {"is", "is_not", "in", "not_in", "pos"}
"""Operators that, on numbers and tensors, give something new and keep no operand."""


def kept(function: Function, before: Sequence[Types]) -> frozenset[Var]:
    """The variables of whose values someone may tell which they are."""
    found: set[Var] = set()
    for block, types in zip(function.blocks, before, strict=True):
        found.update(block.modes)
        found.update(kept_in(block, types))
    return frozenset(found)


def kept_in(block: Block, types: Types) -> Iterator[Var]:
    for op in block.ops:
        yield from (arg for arg in kept_by(op, types) if not is_number(arg, op, types))
        types = types_after(op, types)
    if not isinstance(block.terminator, Branch):
        reads = terminator_reads(block.terminator)
        yield from (arg for arg in reads if not is_number(arg, None, types))


def is_number(name: Var, op: Op | None, types: Types) -> bool:
    """Whether a variable holds a number that is not asked which one it is."""
    found = types.get(name)
    asked = op is not None and op.name in ("is", "is_not")
    return found is not None and found.is_number and not asked


def kept_by(op: Op, types: Types) -> tuple[Var, ...]:
    """The operands that an operation writes to, or may keep or ask for identity."""
    are_plain = all((found := types.get(arg)) is not None and found.is_plain for arg in op.args)
    if op.name in ("truth", "not") and are_plain:
        return ()
    if op.name in LOOKING and are_plain:
        return ()
    if op.name in INPLACE and are_plain:
        return op.args[:1]
    return op.args
