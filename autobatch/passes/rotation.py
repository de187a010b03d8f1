"""Loop rotation: a loop's test stands at its end too, so that a round of it is one block.

Before:                              After:

    b0: i = const 0                      b0: i = const 0
        jump b1                              jump b1
    b1: %1 = lt i, n                     b1: %1 = lt i, n
        branch %1 ? b2 : b3                  branch %1 ? b2 : b3
    b2: i = add i, i                     b2: i = add i, i
        jump b1                              %1 = lt i, n
    b3: return i                             branch %1 ? b2 : b3
                                         b3: return i

Only a test that one block jumps back to is copied: threads that come back by several ways meet at
it. The first test is then in no loop, and control-flow clean-up joins it to what leads there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autobatch.ir.dataflow import predecessors
from autobatch.ir.program import Block, Branch, Function, Jump, Label

MOST = 16
"""Operations of a test that are worth having twice."""


def rotate_loops(function: Function) -> Function:
    """The function with the tests of its loops copied to the ends of their rounds."""
    blocks = list(function.blocks)
    for head in range(len(blocks)):
        sources = predecessors(blocks)
        loops = {last: natural_loop(head, last, sources) for last in sources[head]}
        ends = [last for last, loop in loops.items() if loop]
        if len(ends) != 1:
            continue
        test, before = blocks[head], blocks[ends[0]]
        if may_end(before, test) and is_left_by(test, loops[ends[0]]):
            ops = (*before.ops, *test.ops)
            blocks[ends[0]] = replace(before, ops=ops, terminator=test.terminator)
    return replace(function, blocks=tuple(blocks))


def natural_loop(head: Label, last: Label, sources: Sequence[Sequence[Label]]) -> set[Label]:
    """The blocks that come to ``last`` other than by ``head``, and the two; none if it is no loop.

    A loop is entered at its head alone.
    """
    if last == head:
        return {head}
    found, pending = {head, last}, [last]
    while pending:
        label = pending.pop()
        if label == 0:
            return set()
        pending += [source for source in sources[label] if source not in found]
        found.update(sources[label])
    return found


def may_end(last: Block, test: Block) -> bool:
    """Whether a round's last block may take in the test."""
    if last.handler is not None or test.handler is not None:
        return False
    jumps = isinstance(last.terminator, Jump) and last.modes == test.modes
    return jumps and last is not test and len(test.ops) <= MOST


def is_left_by(test: Block, loop: set[Label]) -> bool:
    """Whether a block decides if its loop goes on."""
    leaves = any(target not in loop for target in test.successors())
    return leaves and isinstance(test.terminator, Branch)
