"""Why both ways of a branch are computed where it is recorded, or why not: for people.

In: a function after ``convert_ifs``. Out: for blocks that end in a branch whose ways meet again, a
sentence with the estimate that decided (``ir.costs``). The ways out of a loop have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autobatch.ir.costs import LAUNCH, PARTING
from autobatch.ir.dataflow import reaching
from autobatch.ir.ops import FREE, RECORDED
from autobatch.ir.program import Block, Branch, Function, Jump, Label, Op
from autobatch.passes.if_conversion import (
    Conversion,
    are_safe,
    is_cheap,
    nearest_postdominators,
)

PARTS = f"parting threads costs {PARTING * 1e6:.0f} µs"


def reasons(function: Function) -> Mapping[Label, str]:
    """By block, what became of its branch."""
    meets, reached = nearest_postdominators(function.blocks), reaching(function.blocks)
    conversion = Conversion(function.blocks, (), meets, reached)
    found: dict[Label, str] = {}
    for label, block in enumerate(function.blocks):
        if not isinstance(block.terminator, Branch):
            continue
        told = why_converted(block) or why_not(label, block.terminator, conversion)
        if told:
            found[label] = told
    return found


def why_converted(block: Block) -> str:
    if block.converted is None:
        return ""
    more = dear(block.converted.ops) - dear(block.ops)
    return (
        f"where it is recorded, both ways are computed: {counted(more)} more, about"
        f" {more * LAUNCH * 1e6:.0f} µs, while {PARTS}"
    )


def why_not(label: Label, branch: Branch, conversion: Conversion) -> str:
    """What keeps a branch from being converted, by the first of its ways that does."""
    meeting = conversion.meets[label]
    if meeting is None or branch.then == branch.otherwise:
        return ""
    if conversion.is_exit(meeting) or is_of_a_loop(label, branch, meeting, conversion):
        return ""
    for to in (branch.then, branch.otherwise):
        told = why_not_way(list(way(to, meeting, conversion.blocks, {label})))
        if told:
            return f"threads part here: {told}"
    return ""


def is_of_a_loop(label: Label, branch: Branch, meeting: Label, conversion: Conversion) -> bool:
    """Whether a branch is a loop's way out, or leads into one."""
    reached = conversion.reached
    leaves = label in reached[label] and label not in reached[meeting]
    ways = [to for to in (branch.then, branch.otherwise) if to != meeting]
    return leaves or any(to in reached[to] and label not in reached[to] for to in ways)


def way(at: Label, meeting: Label, blocks: Sequence[Block], seen: set[Label]) -> Iterator[Block]:
    """The blocks between a branch and where its ways meet."""
    pending = [at]
    while pending:
        label = pending.pop()
        if label != meeting and label not in seen:
            seen.add(label)
            yield blocks[label]
            pending += blocks[label].successors()


def why_not_way(blocks: Sequence[Block]) -> str:
    for block in blocks:
        if block.handler is not None or block.modes:
            return "a way is within a try or with statement"
        if not isinstance(block.terminator, Jump | Branch):
            return "a way calls a function or raises"
    ops = [op for block in blocks for op in block.ops]
    for op in ops:
        if op.name not in RECORDED:
            return f"a way has the operation {op.name}, which no recording can hold"
    if not is_cheap(ops):
        cost = dear(ops)
        return f"a way takes {counted(cost)}, about {cost * LAUNCH * 1e6:.0f} µs, and {PARTS}"
    for at, op in enumerate(ops):
        if not are_safe(ops[: at + 1]):
            return f"the operation {op.name} may fail, or have an effect, for threads not there"
    return ""


def dear(ops: Sequence[Op]) -> int:
    """How many operations cost anything."""
    return sum(op.name not in FREE for op in ops)


def counted(number: int) -> str:
    return f"{number} operation{'' if number == 1 else 's'}"
