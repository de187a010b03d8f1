"""Dead code: an operation goes whose result nobody reads, and which does nothing else.

Before:                              After:

    b0: %1 = const 2                     b0: y = const 3
        %2 = copy x                          %3 = getattr[size] x
        y = const 3                          return x
        %3 = getattr[size] x
        return x

An operation that may fail stays: the exception is a result, too. So only those go that are *total*:
literals, copies, displays, identity, of variables that have a value for certain. A variable of the
user's stays assigned where the source assigns it, since ``explain`` tells of it.
"""

from __future__ import annotations

from dataclasses import replace

from autobatch.ir.dataflow import (
    liveness,
    maybe_unbound,
    op_reads,
    op_writes,
    terminator_reads,
    terminator_writes,
)
from autobatch.ir.ops import SUMS
from autobatch.ir.program import Block, Function, Op, Var

TOTAL = frozenset(
    {"const", "copy", "tuple", "list", "slice", "is", "is_not", "select", *SUMS} - {"sum_begun"}
)
"""Operations that fail for no operand, and that nobody can see."""


def drop_dead_code(function: Function) -> Function:
    """The function without what no one needs."""
    live = liveness(function.blocks)
    params = [param.name for param in function.params]
    unset = maybe_unbound(function.blocks, params)
    made = []
    for block in function.blocks:
        after = frozenset[Var]().union(*(live[target] for target in block.targets()))
        if block.handler is not None:
            after |= live[block.handler.target]
        made.append(kept(block, after, unset))
    return replace(function, blocks=tuple(made))


def kept(block: Block, after: frozenset[Var], unset: frozenset[Var]) -> Block:
    """The block with the operations that are needed; ``after`` are the variables read later."""
    needed = set(after.difference(terminator_writes(block.terminator)))
    needed.update(terminator_reads(block.terminator), block.modes)
    always = frozenset[Var]() if block.handler is None else after
    ops: list[Op] = []
    for op in reversed(block.ops):
        if is_dead(op, unset) and needed.isdisjoint(op.outs):
            continue
        needed.difference_update(op_writes(op))
        needed.update(op_reads(op), always)
        ops.append(op)
    if len(ops) == len(block.ops):
        return block
    return replace(block, ops=tuple(reversed(ops)), converted=None)


def is_dead(op: Op, unset: frozenset[Var]) -> bool:
    """Whether an operation is one that may go, if nobody reads what it gives."""
    temporary = all(out.startswith("%") for out in op.outs)
    return temporary and op.name in TOTAL and unset.isdisjoint(op.args)
