"""A way of a branch that only names values is gone before the branch: one block less to run.

Before:                                  After:

    b0: %2 = le n, %1                        b0: %2 = le n, %1
        branch %2 ? b1 : b2                      %return = const 1
    b1: %return = const 1                        branch %2 ? b5 : b2
        jump b5

Giving a variable a constant, or what another one holds, cannot fail where that one is bound, and
nobody sees it, so it may happen on the other way too, where the variable is not read. Only blocks
with one predecessor and the branch's modes qualify, and none that leave a loop, since the loop
would do it in each of its rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autobatch.ir.dataflow import liveness, maybe_unbound, op_reads, predecessors, reaching
from autobatch.ir.program import Block, Branch, Function, Jump, Label, Op, Var

MOST = 3
"""Values that are worth naming for threads that do not need them."""


def hoist_constants(function: Function) -> Function:
    """The function with such blocks emptied; clearing control flow up removes them."""
    blocks = list(function.blocks)
    if not any(map(only_names, blocks)):
        return function
    sources, reached = predecessors(blocks), reaching(blocks)
    unbound = maybe_unbound(blocks, {param.name for param in function.params})
    for label, block in enumerate(blocks):
        if not only_names(block) or len(sources[label]) != 1 or reads(block.ops) & unbound:
            continue
        before = sources[label][0]
        leaves_loop = before in reached[before] and before not in reached[label]
        if not leaves_loop and may_take(blocks[before], label, block, liveness(blocks)):
            blocks[before] = replace(blocks[before], ops=(*blocks[before].ops, *block.ops))
            blocks[label] = replace(block, ops=())
    return replace(function, blocks=tuple(blocks))


def only_names(block: Block) -> bool:
    return (
        isinstance(block.terminator, Jump)
        and 0 < len(block.ops) <= MOST
        and all(op.name in ("const", "copy") for op in block.ops)
    )


def reads(ops: Sequence[Op]) -> set[Var]:
    return {arg for op in ops for arg in op_reads(op)}


def may_take(source: Block, label: Label, block: Block, live: Sequence[frozenset[Var]]) -> bool:
    """Whether the block that branches to ``label`` may do what stands there."""
    branch = source.terminator
    if not isinstance(branch, Branch) or source.modes != block.modes:
        return False
    if source.handler is not None:  # the branch may fail, and the handler read the variable
        return False
    other = branch.otherwise if branch.then == label else branch.then
    set_here = {out for op in block.ops for out in op.outs}
    return other != label and not set_here & (live[other] | {branch.condition})
