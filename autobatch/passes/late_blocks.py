"""Late blocks: where threads that fork nothing can wait until all that others fork has run.

In: the blocks of a function with forks and joins. Out: the labels of those blocks. What waits there
runs as one for all depths of a recursion (``vm.late``), as the leaves of trees do.
"""

from __future__ import annotations

from collections.abc import Sequence

from autobatch.ir.dataflow import reaching
from autobatch.ir.ops import MOVES
from autobatch.ir.program import Block, Call, Join, Label, Op


def late_blocks(blocks: Sequence[Block]) -> frozenset[int]:
    """The blocks that threads which fork nothing come to, where they have work left, but no call.

    What calls or forks nothing can be put off until all that others fork has run. Where nothing is
    left but to hand over what is there, that gains nothing.
    """
    after = reaching(blocks)
    working = {label for label, block in enumerate(blocks) if not all(map(is_handed, block.ops))}
    return frozenset(
        label
        for label in quiet_blocks(blocks) & before_joins(blocks)
        if label in working or after[label] & working
    )


def quiet_blocks(blocks: Sequence[Block]) -> frozenset[int]:
    """The blocks from which nothing is called."""
    calling = {label for label, block in enumerate(blocks) if calls_or_forks(block)}
    return frozenset(
        label
        for label, later in enumerate(reaching(blocks))
        if label not in calling and not later & calling
    )


def calls_or_forks(block: Block) -> bool:
    return type(block.terminator) is Call or any(op.name == "fork" for op in block.ops)


def is_handed(op: Op) -> bool:
    """Whether an operation computes nothing."""
    return op.name == "const" or op.name in MOVES


def before_joins(blocks: Sequence[Block]) -> set[Label]:
    """The blocks that can be come to with nothing joined."""
    found: set[Label] = set()
    waiting = [0]
    while waiting:
        label = waiting.pop()
        if label not in found:
            found.add(label)
            if type(blocks[label].terminator) is not Join:
                waiting += blocks[label].successors()
    return found
