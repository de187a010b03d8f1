"""Ways back to a loop's test meet before it, where a round is dear and its last part is cheap.

Before:                              After:

    b0: i = const 0                      b0: i = const 0
        jump b1                              jump b1
    b1: %1 = lt i, n                     b1: %1 = lt i, n
        branch %1 ? b2 : b4                  branch %1 ? b2 : b5
    b2: …  branch c ? b1 : b3            b2: …  branch c ? b4 : b3
    b3: i = …  jump b1                   b3: i = …  jump b4
    b4: return i                         b4: %1 = lt i, n
                                             branch %1 ? b2 : b5
                                         b5: return i

The smallest waiting block runs next. So a thread that is back at the test at once goes into its
next round without those that have something left to do, and may be rounds ahead of them for good:
each part of a round then runs for fewer threads at a time, and more often. That is dear where what
all threads run in a round is most of it, and where threads would go through what some of them run
without parting (``vm.diamonds``): operations, no calls. Where most of it is a call that only some
threads make, it is cheap: they come to it at rounds of their own, and make it together. An inner
loop that leads back is of that kind.

A product with a large matrix in few rounds, which takes as long for few threads as for many, is
done up to twice as fast by threads that go ahead; one with a small matrix 6 to 13 times slower.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from autobatch.ir.dataflow import predecessors
from autobatch.ir.program import Block, Call, Function, Label
from autobatch.passes.rotation import MOST, is_left_by, natural_loop

FREE = {"const", "global", "getattr", "copy", "tuple", "slice", "list", "dict", "load_box"}
FREE |= {"load_outer", "load_outer_box"}
"""Operations that run no kernel."""
CALL = 10
"""What a call of a program function counts, in operations."""
DEARER = 2
"""How many times the rest what all threads run must count."""


def join_latches(function: Function) -> Function:
    """The function with one block before the test of each loop where ways back are to meet."""
    blocks = list(function.blocks)
    for head in range(len(blocks) - 1, -1, -1):
        ends, loop = round_of(head, blocks)
        if len(ends) > 1 and is_to_meet(head, ends, loop, blocks):
            blocks = with_latch(head, ends, blocks)
    return replace(function, blocks=tuple(blocks))


def round_of(head: Label, blocks: Sequence[Block]) -> tuple[list[Label], set[Label]]:
    """The blocks that lead back to a block, and all that are in the loop which it heads."""
    sources = predecessors(blocks)
    loops = {end: natural_loop(head, end, sources) for end in sources[head]}
    ends = [end for end, loop in loops.items() if loop]
    return ends, {label for end in ends for label in loops[end]}


def is_to_meet(
    head: Label, ends: Sequence[Label], loop: Set[Label], blocks: Sequence[Block]
) -> bool:
    test = blocks[head]
    if test.handler is not None or len(test.ops) > MOST or not is_left_by(test, set(loop)):
        return False
    inner = (round_of(label, blocks)[1] for label in sorted(loop - {head}))
    if any(not found.isdisjoint(ends) for found in inner):
        return False
    shared = {label for label in loop if is_passed(label, head, ends, blocks)}
    if not any(isinstance(blocks[label].terminator, Call) for label in loop - shared):
        return True
    count = {label: weight(blocks[label]) for label in loop}
    return sum(count[label] for label in shared) > DEARER * sum(
        count[label] for label in loop - shared
    )


def is_passed(label: Label, head: Label, ends: Sequence[Label], blocks: Sequence[Block]) -> bool:
    """Whether every way from a loop's head back to it goes by a block."""
    found, pending = {label}, [head]
    while pending:
        each = pending.pop()
        if each not in found:
            found.add(each)
            pending += blocks[each].successors()
    return found.isdisjoint(set(ends) - {label})


def weight(block: Block) -> int:
    dear = sum(op.name not in FREE for op in block.ops)
    return dear + CALL * isinstance(block.terminator, Call)


def with_latch(head: Label, ends: Sequence[Label], blocks: Sequence[Block]) -> list[Block]:
    """The blocks with one more, before the last, that asks the test for all who come back."""
    latch = len(blocks) - 1
    moved = {label: label + (label == latch) for label in range(len(blocks))}
    back = {**moved, head: latch}
    placed = [
        block.retargeted(back if label in ends else moved) for label, block in enumerate(blocks)
    ]
    test = blocks[head].retargeted(moved)
    return [*placed[:-1], test, placed[-1]]
